# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One object of a noun: as the user wants it, as libvirt has it, and after an edit."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.object_ref import Ref


@dataclasses.dataclass(frozen=True)
class ObjectKind:
    """A kind of libvirt's objects: what one has, beside a name and a document, and what can be done with it."""

    name: str  # in steps and messages
    within: str | None = None  # the kind of what it lies in, which is also the option that says in which: pool
    uuid: bool = True
    persistence: bool = False  # it may run without a stored definition
    activity: bool = False  # it is started and stopped
    autostart: bool = False
    redefine: bool = True  # its definition can be replaced; else it is created once
    volatile: tuple[str, ...] = ()  # elements of its document that change by themselves

    def ref(self, name: str, within: str | None = None, uuid: str | None = None) -> Ref:
        """One of this kind, by name."""
        return Ref(self.name, name, Ref(self.within, within) if self.within and within else None, uuid)


@dataclasses.dataclass(frozen=True)
class Spec:
    """All options of one call. None: the user does not set it."""

    name: str
    state: str
    fields: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)  # by path
    autostart: bool | None = None
    uuid: str | None = None
    xml: str | None = dataclasses.field(default=None, repr=False)
    allow_restart: bool = False
    force: bool = False
    seen: str | None = None  # of the plan that was reviewed
    within: str | None = None  # the name of what it lies in
    own: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict, repr=False)  # options of this noun only


@dataclasses.dataclass(frozen=True)
class Found:
    """An object as libvirt has it. `xml` is the definition, `live_xml` the running one."""

    uuid: str | None
    persistent: bool = True
    autostart: bool = False
    xml: str = dataclasses.field(default="", repr=False)
    live_xml: str | None = dataclasses.field(default=None, repr=False)
    digest: str = ""  # of the definition, without what changes by itself

    @property
    def active(self) -> bool:
        """True if the object is running."""
        return self.live_xml is not None


@dataclasses.dataclass(frozen=True)
class Entry:
    """An entry of a list in a document, before and after an edit."""

    found: bool  # whether it was there
    xml: str | None = dataclasses.field(repr=False)  # None: it is gone
    identity_xml: str = dataclasses.field(repr=False)  # holds only what tells it from the others
    parent: int = -1  # place of the entry that it is a part of, among its like


@dataclasses.dataclass(frozen=True)
class Edited:
    """A document after the options were written into it."""

    xml: str = dataclasses.field(repr=False)
    changes: tuple[Change, ...] = ()
    before: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    after: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    entries: t.Mapping[str, Entry] = dataclasses.field(default_factory=dict)  # that changed
    violations: tuple[tuple[str, str], ...] = ()  # place and reason
    recent: tuple[tuple[str, tuple[int, int]], ...] = ()  # places, with the first libvirt that knows them
