# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What the collection records with a guest, beside its definition."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import NotMade, VirtError
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._model import xml_names
from ansible_collections.corral.virt.plugins.module_utils._plan import steps

__all__ = ["claimed", "record_addresses"]


@contextlib.contextmanager
def claimed(connection: Connection, uuid: str, guest: str, claim: steps.Claim) -> t.Iterator[None]:
    """Around the making of a file: the guest's record names it before it exists, and does not when nothing was made.

    What an interrupted run left is replaced by the next one only where the record names it: a file that appeared
    under that name is somebody else's.
    """
    _record(connection, uuid, guest, claim.with_it)
    try:
        yield
    except NotMade:
        with contextlib.suppress(VirtError):  # without libvirt nobody can tell whether it was made
            _record(connection, uuid, guest, claim.without)
        raise


def _record(connection: Connection, uuid: str, guest: str, xml: str) -> None:
    element = (libvirt.VIR_DOMAIN_METADATA_ELEMENT, xml, "corral", xml_names.CORRAL)
    with explained("set metadata of", guest):
        connection.lookupByUUIDString(uuid).setMetadata(*element, libvirt.VIR_DOMAIN_AFFECT_CONFIG)


def record_addresses(domain: t.Any, step: steps.RecordAddresses) -> None:
    """Record the addresses the guest was seen at, in what is stored and in what runs; an empty text removes them."""
    element = (
        libvirt.VIR_DOMAIN_METADATA_ELEMENT,
        step.xml or None,
        "corral-seen" if step.xml else None,
        xml_names.SEEN,
    )
    with explained("set metadata of", step.guest):
        flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG if domain.isPersistent() else 0
        domain.setMetadata(*element, flags | (libvirt.VIR_DOMAIN_AFFECT_LIVE if domain.isActive() else 0))
