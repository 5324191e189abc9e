# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's records in a guest's metadata."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotMade, VirtError
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._xml.names import PREFIXES


def write(domain: t.Any, xml: str, flags: int, prefix: str = "corral") -> None:
    """Replace the metadata element of that prefix in the stored or running definition; an empty text removes it."""
    kind = libvirt.VIR_DOMAIN_METADATA_ELEMENT
    with explained("set metadata of", domain.name()):
        domain.setMetadata(kind, xml or None, prefix if xml else None, PREFIXES[prefix], flags)


@contextlib.contextmanager
def claimed(connection: Connection, uuid: str, guest: str, *, with_file: str, without_file: str) -> t.Iterator[None]:
    """While a file is created, the guest's record names it; the entry is removed if nothing was created (NotMade).

    A later run replaces leftovers of an interrupted one only if the record names them: any other file of that name is
    somebody else's.
    """
    _store(connection, uuid, guest, with_file)
    try:
        yield
    except NotMade:
        with contextlib.suppress(VirtError):  # without libvirt nobody can tell whether it was made
            _store(connection, uuid, guest, without_file)
        raise


def _store(connection: Connection, uuid: str, guest: str, xml: str) -> None:
    with explained("set metadata of", guest):
        write(connection.lookupByUUIDString(uuid), xml, libvirt.VIR_DOMAIN_AFFECT_CONFIG)


def set_record(domain: t.Any, stored: str | None, live: str | None) -> None:
    """Replace the collection's record in the stored and the running definition; None leaves one unchanged."""
    for record, flag in ((stored, libvirt.VIR_DOMAIN_AFFECT_CONFIG), (live, libvirt.VIR_DOMAIN_AFFECT_LIVE)):
        if record is not None:
            write(domain, record, flag)


def set_everywhere(domain: t.Any, xml: str, prefix: str) -> None:
    """Replace an element of the metadata in the stored and the running definition; an empty text removes it."""
    with explained("set metadata of", domain.name()):
        flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG if domain.isPersistent() else 0
        write(domain, xml, flags | (libvirt.VIR_DOMAIN_AFFECT_LIVE if domain.isActive() else 0), prefix)
