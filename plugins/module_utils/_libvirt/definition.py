# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest's definition in libvirt: define, export, rename, undefine, and the collection's records in its metadata."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, NotMade, VirtError
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._xml.names import PREFIXES


def define(connection: Connection, guest: str, xml: str) -> None:
    """Define the guest; a running one goes on unchanged."""
    with explained("define", guest):
        connection.defineXML(xml)


def reserve(connection: Connection, name: str, xml: str, kept: t.Collection[str] = ()) -> None:
    """Define a guest only if no guest has its UUID or name; otherwise raises Failed and changes nothing.

    libvirt silently replaces a definition of the same name and UUID. It refuses a known UUID under another name, and a
    rename to a known name: so `xml` has a name that no guest has, and is then renamed to `name`. `kept` are kinds of
    state, beside UEFI variables, that stay if that fails.
    """
    with explained("reserve", f"{name} on {connection.getURI()}"):
        domain = connection.defineXML(xml)
        try:
            domain.rename(name, 0)
        except libvirt.libvirtError:
            domain.undefineFlags(undefine_flags(domain, ("keep_nvram", *kept)))
            raise


def rename(connection: Connection, uuid: str, name: str) -> None:
    """Rename an inactive guest."""
    with explained("rename", f"{uuid} to {name}"):
        connection.lookupByUUIDString(uuid).rename(name, 0)


def portable(domain: t.Any, *, live: bool = False) -> str:
    """The guest's XML in libvirt's migratable form, without defaults that an older libvirt does not know.

    The stored definition, or the running one (`live`).
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
_NUMBERS = {"tpm": 1 << 5, "keep_tpm": 1 << 6}  # of virDomainUndefineFlagsValues: this host's libvirt may be older


def undefine(domain: t.Any, kinds: t.Iterable[str]) -> None:
    """Undefine a guest with these kinds of state that libvirt keeps of it; its disks stay."""
    with explained("undefine", domain.name()):
        domain.undefineFlags(undefine_flags(domain, kinds))


def undefine_flags(domain: t.Any, kinds: t.Iterable[str]) -> int:
    """libvirt's flags for these kinds of state, as far as the guest's libvirt knows them."""
    flags = 0
    for kind in kinds:
        if kind.endswith("tpm") and domain.connect().getLibVersion() < _TPM_FLAG:
            continue  # older ones remove the state unasked
        flags |= getattr(libvirt, f"VIR_DOMAIN_UNDEFINE_{_UNDEFINE[kind]}", _NUMBERS.get(kind, 0))
    return flags


def undefine_by(connection: Connection, uuid: str, guest: str, kinds: t.Iterable[str]) -> None:
    """Undefine the guest with that UUID, and no other of its name."""
    with explained("find guest", f"{guest} ({uuid})"):
        domain = connection.lookupByUUIDString(uuid)
    undefine(domain, kinds)


def undefine_moved(domain: t.Any, *, keeps_state: bool, keeps_variables: bool = False) -> None:
    """Undefine an inactive guest, with UEFI variables and TPM state unless it `keeps` them; raises Failed if active."""
    with explained("undefine", domain.name()):
        if domain.isActive():
            raise Failed(f"cannot undefine {domain.name()}: it was started in the meantime; run again")
        kept = {"nvram": keeps_state or keeps_variables, "tpm": keeps_state}
        undefine(domain, [f"keep_{kind}" if stays else kind for kind, stays in kept.items()])


def set_autostart(domain: t.Any, *, on: bool) -> None:
    """Set whether the guest starts with the host."""
    with explained("set autostart of", domain.name()):
        domain.setAutostart(int(on))


def write_metadata(domain: t.Any, xml: str, flags: int, prefix: str = "corral") -> None:
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
        write_metadata(connection.lookupByUUIDString(uuid), xml, libvirt.VIR_DOMAIN_AFFECT_CONFIG)


def set_record(domain: t.Any, stored: str | None, live: str | None) -> None:
    """Replace the collection's record in the stored and the running definition; None leaves one unchanged."""
    for record, flag in ((stored, libvirt.VIR_DOMAIN_AFFECT_CONFIG), (live, libvirt.VIR_DOMAIN_AFFECT_LIVE)):
        if record is not None:
            write_metadata(domain, record, flag)


def set_everywhere(domain: t.Any, xml: str, prefix: str) -> None:
    """Replace an element of the metadata in the stored and the running definition; an empty text removes it."""
    with explained("set metadata of", domain.name()):
        flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG if domain.isPersistent() else 0
        write_metadata(domain, xml, flags | (libvirt.VIR_DOMAIN_AFFECT_LIVE if domain.isActive() else 0), prefix)
