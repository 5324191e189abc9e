# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Query libvirt's objects that can be defined and started (pools, networks)."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.object_ref import Ref
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Found, ObjectKind

Lookup = t.Callable[[Connection, Ref], t.Any]


@dataclasses.dataclass(frozen=True)
class ObjectType:
    """libvirt's names for a type of object."""

    kind: ObjectKind
    what: str  # in messages
    missing: str  # names of libvirt's constants: the error of one that is not there,
    flag: str = ""  # and the flag that asks for the definition beside what runs
    lookup: str = ""  # method of a connection; followed by ByName or ByUUIDString
    by_name: Lookup | None = None  # where libvirt looks such objects up in another way

    def named(self, connection: Connection, ref: Ref) -> t.Any:
        """libvirt's object with this name."""
        if self.by_name:
            return self.by_name(connection, ref)
        return getattr(connection, f"{self.lookup}ByName")(ref.name)

    def identified(self, connection: Connection, ref: Ref) -> t.Any:
        """libvirt's object with this UUID, whatever has its name by now; of kinds without a UUID, the one so named."""
        if self.kind.uuid and ref.uuid:
            return getattr(connection, f"{self.lookup}ByUUIDString")(ref.uuid)
        return self.named(connection, ref)


def find(connection: Connection, type_: ObjectType, ref: Ref) -> Found | None:
    """The object that libvirt has under this name, or None."""
    thing = _if_any(lambda: type_.named(connection, ref), type_, "find", ref)
    return None if thing is None else found(thing, type_)


def definition(connection: Connection, type_: ObjectType, ref: Ref) -> str | None:
    """The stored XML of this very object, or None."""
    xml = _if_any(lambda: _definition(type_.identified(connection, ref), type_), type_, "read", ref)
    return t.cast("str | None", xml)


def _if_any(look: t.Callable[[], t.Any], type_: ObjectType, verb: str, ref: Ref) -> t.Any:
    try:
        return look()
    except libvirt.libvirtError as error:
        if error.get_error_code() == getattr(libvirt, type_.missing):
            return None
        with explained(f"{verb} {type_.what}", ref.name):
            raise


def found(thing: t.Any, type_: ObjectType) -> Found:
    """The definition and running state of one of libvirt's objects."""
    kind = type_.kind
    with explained(f"read {type_.what}", _name(thing)):
        return Found(
            uuid=thing.UUIDString() if kind.uuid else None,
            persistent=bool(thing.isPersistent()) if kind.persistence else True,
            autostart=bool(thing.autostart()) if kind.autostart else False,
            xml=_definition(thing, type_),
            live_xml=thing.XMLDesc(0) if kind.activity and thing.isActive() else None,
        )


def _name(thing: t.Any) -> str:
    """The name of an object; of a secret, which has none, its UUID."""
    return str(thing.name() if hasattr(thing, "name") else thing.UUIDString())


def _definition(thing: t.Any, type_: ObjectType) -> str:
    """The stored XML; a driver without that flag (libvirt's test driver) has only one document."""
    try:
        return t.cast(str, thing.XMLDesc(getattr(libvirt, type_.flag) if type_.flag else 0))
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_INVALID_ARG:
            raise
        return t.cast(str, thing.XMLDesc(0))
