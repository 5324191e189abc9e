# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Query libvirt's objects that can be defined and started (pools, networks)."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Found

__all__ = ["ObjectType", "find", "found"]


@dataclasses.dataclass(frozen=True)
class ObjectType:
    """libvirt's names for a type of object."""

    what: str  # in messages
    lookup: str  # method of a connection; followed by ByName or ByUUIDString
    missing: str  # names of libvirt's constants: the error of one that is not there,
    flag: str  # and the flag that asks for the definition beside what runs


def find(connection: Connection, kind: ObjectType, name: str) -> Found | None:
    """The object that libvirt has under this name, or None."""
    try:
        thing = getattr(connection, f"{kind.lookup}ByName")(name)
    except libvirt.libvirtError as error:
        if error.get_error_code() == getattr(libvirt, kind.missing):
            return None
        with explained(f"find {kind.what}", name):
            raise
    return found(thing, kind)


def definition(connection: Connection, kind: ObjectType, uuid: str) -> str | None:
    """The stored XML of the object with this UUID, or None."""
    try:
        return _definition(getattr(connection, f"{kind.lookup}ByUUIDString")(uuid), kind)
    except libvirt.libvirtError as error:
        if error.get_error_code() == getattr(libvirt, kind.missing):
            return None
        with explained(f"read {kind.what}", uuid):
            raise


def found(thing: t.Any, kind: ObjectType) -> Found:
    """The definition and running state of one of libvirt's objects."""
    with explained(f"read {kind.what}", thing.name()):
        return Found(
            uuid=thing.UUIDString(),
            persistent=bool(thing.isPersistent()),
            autostart=bool(thing.autostart()),
            xml=_definition(thing, kind),
            live_xml=thing.XMLDesc(0) if thing.isActive() else None,
        )


def _definition(thing: t.Any, kind: ObjectType) -> str:
    """The stored XML; a driver without that flag (libvirt's test driver) has only one document."""
    try:
        return t.cast(str, thing.XMLDesc(getattr(libvirt, kind.flag)))
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_INVALID_ARG:
            raise
        return t.cast(str, thing.XMLDesc(0))
