# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What libvirt stores under a name and can run (pools, networks): looked at, and each verb on it."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._model.noun import Found
from ansible_collections.corral.virt.plugins.module_utils._plan import noun as steps

__all__ = ["Library", "doer", "find", "found"]

Doer = t.Callable[[t.Any, t.Any], object]  # libvirt's object, and the step


@dataclasses.dataclass(frozen=True)
class Library:
    """How libvirt names a kind of what it stores, and what it does there in its own way."""

    what: str  # in messages
    lookup: str  # methods of a connection; followed by ByName or ByUUIDString
    define: str
    missing: str  # names of libvirt's constants: the error of one that is not there,
    stored: str  # and the flag that asks for the definition beside what runs
    own: t.Mapping[type[steps.NounStep], Doer] = dataclasses.field(default_factory=dict)
    host: t.Callable[[Connection, str], t.Any] = lambda _connection, _name: None  # facts


_DO: dict[type[steps.NounStep], Doer] = {
    steps.Start: lambda thing, _step: thing.create(),
    steps.Stop: lambda thing, _step: thing.destroy(),
    steps.SetAutostart: lambda thing, step: thing.setAutostart(step.on),
    steps.Undefine: lambda thing, _step: thing.undefine(),
}


def doer(connection: Connection, library: Library, before: Found | None) -> t.Callable[[steps.NounStep], None]:
    """Carries out the steps on one object, and on no other that has its name by then: they know it by its UUID."""
    uuid = before.uuid if before else None

    def do(step: steps.NounStep) -> None:
        nonlocal uuid
        with explained(_verb(step, library), step.name):
            if isinstance(step, steps.Define):  # libvirt refuses the name of another UUID
                uuid = getattr(connection, library.define)(step.xml).UUIDString()
            else:
                thing = getattr(connection, f"{library.lookup}ByUUIDString")(uuid)
                {**_DO, **library.own}[type(step)](thing, step)

    return do


def find(connection: Connection, library: Library, name: str) -> Found | None:
    """What libvirt has under that name, or None."""
    try:
        thing = getattr(connection, f"{library.lookup}ByName")(name)
    except libvirt.libvirtError as error:
        if error.get_error_code() == getattr(libvirt, library.missing):
            return None
        with explained(f"find {library.what}", name):
            raise
    return found(thing, library)


def found(thing: t.Any, library: Library) -> Found:
    """One of libvirt's objects: its definition, and what runs."""
    with explained(f"read {library.what}", thing.name()):
        return Found(
            uuid=thing.UUIDString(),
            persistent=bool(thing.isPersistent()),
            autostart=bool(thing.autostart()),
            xml=_definition(thing, library),
            live_xml=thing.XMLDesc(0) if thing.isActive() else None,
        )


def _definition(thing: t.Any, library: Library) -> str:
    """The stored document; a driver without that flag (libvirt's test driver) has one document."""
    try:
        return t.cast(str, thing.XMLDesc(getattr(libvirt, library.stored)))
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_INVALID_ARG:
            raise
        return t.cast(str, thing.XMLDesc(0))


def _verb(step: steps.NounStep, library: Library) -> str:
    if isinstance(step, steps.SetAutostart):
        return f"set autostart of {library.what}"
    if isinstance(step, steps.Update):
        return f"{step.command} {step.what} of running {library.what}"
    return f"{step.verb} {library.what}"
