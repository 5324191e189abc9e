# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What libvirt stores of a guest: written, handed on, forgotten."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt

__all__ = ["define", "portable", "set_autostart", "undefine", "undefine_moved"]


def define(connection: Connection, guest: str, xml: str) -> None:
    """Store it; a guest that runs goes on as it is."""
    with explained("define", guest):
        connection.defineXML(xml)


def portable(domain: t.Any) -> str:
    """In the form that libvirt itself sends: without what a newer libvirt adds by itself and an older one does not
    know.
    """
    with explained("read guest", domain.name()):
        flags = libvirt.VIR_DOMAIN_XML_SECURE | libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_MIGRATABLE
        return t.cast(str, domain.XMLDesc(flags))


_UNDEFINE = {
    "managed_save": "MANAGED_SAVE",
    "snapshots": "SNAPSHOTS_METADATA",
    "checkpoints": "CHECKPOINTS_METADATA",  # libvirt 5.6
    "nvram": "NVRAM",
    "tpm": "TPM",
}
_TPM_FLAG = 8_009_000


def undefine(domain: t.Any, kinds: t.Iterable[str]) -> None:
    """Forget a guest, and these kinds of what libvirt keeps of it; its disks stay."""
    flags = 0
    with explained("undefine", domain.name()):
        for kind in kinds:
            if kind == "tpm" and domain.connect().getLibVersion() < _TPM_FLAG:
                continue  # older ones remove the state unasked
            flags |= getattr(libvirt, f"VIR_DOMAIN_UNDEFINE_{_UNDEFINE[kind]}", 0)
        domain.undefineFlags(flags)


def undefine_moved(domain: t.Any) -> None:
    """Forget a guest that is off, its UEFI variables and its TPM state. Raises Failed when it is on."""
    with explained("undefine", domain.name()):
        if domain.isActive():
            raise Failed(f"cannot undefine {domain.name()}: it was started in the meantime; run again")
        undefine(domain, ("nvram", "tpm"))


def set_autostart(domain: t.Any, *, on: bool) -> None:
    """Start with the host, or not."""
    with explained("set autostart of", domain.name()):
        domain.setAutostart(int(on))
