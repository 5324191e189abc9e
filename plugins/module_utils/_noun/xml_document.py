# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edit the XML document of a noun, and find the changed entries of its lists."""

from __future__ import annotations

import hashlib
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.list_item import Item
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Edited, Entry, ObjectKind
from ansible_collections.corral.virt.plugins.module_utils._xml import constraints, overlay
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Index, Items, Table, graft, read
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, canonical, drop, parse, text

_ENTRY = re.compile(r"([\w.]+)\[([^\]]*)\]\.?")  # `dhcp.ranges[a-b]` in the place of a change


def digest(xml: str, kind: ObjectKind) -> str:
    """The SHA-256 of a definition, without what changes by itself."""
    root = parse(xml)
    drop([part for path in kind.volatile for part in root.findall(path)])
    return hashlib.sha256(canonical(root)).hexdigest()


def edit(
    xml: str,
    fields: t.Mapping[str, t.Any],
    *,
    table: Table,
    shape: overlay.Shape,
    piece: str | None = None,
    finish: t.Callable[[Element], None] = lambda _root: None,
) -> Edited:
    """Write fields, and a piece of libvirt's XML, into a document; all else survives.

    `finish` corrects what libvirt would refuse after a change.
    """
    found, root = parse(xml), parse(xml)
    changes = overlay.merge(root, piece, shape) if piece else []
    changes += graft(root, table, fields)
    before = read(found, table)
    if not changes:
        return Edited(xml, before=before, after=before)
    finish(root)
    places = {change.where for change in changes}
    return Edited(
        text(root),
        tuple(changes),
        before,
        read(root, table),
        _entries(changes, found, root, table),
        tuple(constraints.violations(table, fields, root, places)),
        tuple(constraints.recent(table, fields, places)),
    )


class _Places:
    """A document with its entries looked up by place."""

    def __init__(self, root: Element, table: Table) -> None:
        self._root = root
        self._table = table
        self._indexes: dict[str, Index] = {}  # by the place of the list
        self._numbers: dict[str, dict[str, int]] = {}

    def at(self, place: str) -> Element | None:
        """The element of an entry, or None."""
        element, table = self._root, self._table
        for match in _ENTRY.finditer(place):
            rows, way = t.cast(Items, table[match.group(1)]), place[: match.end(1)]
            if element is None:
                return None
            if way not in self._indexes:
                self._indexes[way] = rows.index(element)
            element, table = rows.entry(self._indexes[way], Item(match.group(2))), rows.table
        return element

    def number(self, field: str, name: str) -> int:
        """The position of an entry in its list; -1 if it is not there."""
        if field not in self._numbers:
            names = [one for one, _element in t.cast(Items, self._table[field]).names(self._root)]
            self._numbers[field] = {one: number for number, one in reversed(list(enumerate(names)))}
        return self._numbers[field].get(name, -1)


def _entries(changes: t.Iterable[Change], found: Element, root: Element, table: Table) -> dict[str, Entry]:
    """Every entry with a change, and those that contain it, by place."""
    entries: dict[str, Entry] = {}
    was, now = _Places(found, table), _Places(root, table)
    for change in changes:
        for match in _ENTRY.finditer(change.where):
            place = change.where[: match.end()].rstrip(".")
            if place not in entries:
                entries[place] = _entry(place, was, now, table)
    return entries


def _entry(place: str, was: _Places, now: _Places, table: Table) -> Entry:
    before, after = was.at(place), now.at(place)
    rows, name = _rows(place, table)
    parents = _ENTRY.findall(place)[:-1]
    return Entry(
        found=before is not None,
        xml=None if after is None else text(after),
        identity_xml=text(rows.bare(Item(name))),
        parent=was.number(*parents[0]) if parents else -1,
    )


def _rows(place: str, table: Table) -> tuple[Items, str]:
    """The row of an entry's list, and the entry's name."""
    *way, (field, name) = _ENTRY.findall(place)
    for step, _name in way:
        table = t.cast(Items, table[step]).table
    return t.cast(Items, table[field]), name
