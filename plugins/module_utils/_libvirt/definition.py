# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What libvirt stores of a guest: written, handed on, forgotten."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt

__all__ = ["define", "portable", "rename", "reserve", "set_autostart", "undefine", "undefine_by", "undefine_moved"]


def define(connection: Connection, guest: str, xml: str) -> None:
    """Store it; a guest that runs goes on as it is."""
    with explained("define", guest):
        connection.defineXML(xml)


def reserve(connection: Connection, name: str, xml: str) -> None:
    """Define a guest only where no guest has its UUID or its name; raises Failed else, and nothing is changed.

    libvirt replaces a definition of the same name and UUID without a word. It refuses a UUID that it knows under
    another name, and a new name that it knows: so `xml` has a name that nobody has, and then becomes `name`.
    """
    with explained("reserve", f"{name} on {connection.getURI()}"):
        domain = connection.defineXML(xml)
        try:
            domain.rename(name, 0)
        except libvirt.libvirtError:
            domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM)
            raise


def rename(connection: Connection, uuid: str, name: str) -> None:
    """Give a guest that is off another name."""
    with explained("rename", f"{uuid} to {name}"):
        connection.lookupByUUIDString(uuid).rename(name, 0)


def portable(domain: t.Any, *, live: bool = False) -> str:
    """In the form that libvirt itself sends: without what a newer libvirt adds by itself and an older one does not
    know. What is stored, or what runs (`live`).
    """
    with explained("read guest", domain.name()):
        flags = libvirt.VIR_DOMAIN_XML_SECURE | libvirt.VIR_DOMAIN_XML_MIGRATABLE
        return t.cast(str, domain.XMLDesc(flags if live else flags | libvirt.VIR_DOMAIN_XML_INACTIVE))


_UNDEFINE = {
    "managed_save": "MANAGED_SAVE",
    "snapshots": "SNAPSHOTS_METADATA",
    "checkpoints": "CHECKPOINTS_METADATA",  # libvirt 5.6
    "nvram": "NVRAM",
    "tpm": "TPM",
    "keep_nvram": "KEEP_NVRAM",
    "keep_tpm": "KEEP_TPM",
}
_TPM_FLAG = 8_009_000


def undefine(domain: t.Any, kinds: t.Iterable[str]) -> None:
    """Forget a guest, and these kinds of what libvirt keeps of it; its disks stay."""
    flags = 0
    with explained("undefine", domain.name()):
        for kind in kinds:
            if kind.endswith("tpm") and domain.connect().getLibVersion() < _TPM_FLAG:
                continue  # older ones remove the state unasked
            flags |= getattr(libvirt, f"VIR_DOMAIN_UNDEFINE_{_UNDEFINE[kind]}", 0)
        domain.undefineFlags(flags)


def undefine_by(connection: Connection, uuid: str, guest: str, kinds: t.Iterable[str]) -> None:
    """The same of the guest with that UUID, and of no other that has its name by now."""
    with explained("find guest", f"{guest} ({uuid})"):
        domain = connection.lookupByUUIDString(uuid)
    undefine(domain, kinds)


def undefine_moved(domain: t.Any, *, keeps_state: bool) -> None:
    """Forget a guest that is off; with its UEFI variables and TPM state, unless it `keeps_state`. Raises Failed when it
    is on.
    """
    with explained("undefine", domain.name()):
        if domain.isActive():
            raise Failed(f"cannot undefine {domain.name()}: it was started in the meantime; run again")
        undefine(domain, ("keep_nvram", "keep_tpm") if keeps_state else ("nvram", "tpm"))


def set_autostart(domain: t.Any, *, on: bool) -> None:
    """Start with the host, or not."""
    with explained("set autostart of", domain.name()):
        domain.setAutostart(int(on))
