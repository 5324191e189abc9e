# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A document of a noun by table: edited as a whole, and taken apart into the entries of its lists."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._changes import Change
from ansible_collections.corral.virt.plugins.module_utils._model.item import Item
from ansible_collections.corral.virt.plugins.module_utils._model.noun import Edited, Entry
from ansible_collections.corral.virt.plugins.module_utils._xml import fit, merge
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Items, Table, graft, read
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, parse, text

__all__ = ["edit", "values"]

_ENTRY = re.compile(r"([\w.]+)\[([^\]]*)\]\.?")  # `dhcp.ranges[a-b]` in the place of a change


def values(xml: str, table: Table) -> dict[str, t.Any]:
    """Every field of the table that the document speaks of."""
    return read(parse(xml), table)


def edit(
    xml: str,
    fields: t.Mapping[str, t.Any],
    *,
    table: Table,
    shape: merge.Shape,
    piece: str | None = None,
    finish: t.Callable[[Element], None] = lambda _root: None,
) -> Edited:
    """Write fields, and a piece in libvirt's own words, into a document; all else survives.

    `finish` mends what libvirt would refuse after a change.
    """
    found, root = parse(xml), parse(xml)
    changes = merge.merge(root, piece, shape) if piece else []
    changes += graft(root, table, fields)
    before = read(found, table)
    if not changes:
        return Edited(xml, before=before, after=before)
    finish(root)
    return Edited(
        text(root),
        tuple(changes),
        before,
        read(root, table),
        _entries(changes, found, root, table),
        tuple(fit.misfits(table, fields, root, {change.where for change in changes})),
    )


def _entries(changes: t.Iterable[Change], found: Element, root: Element, table: Table) -> dict[str, Entry]:
    """Every entry with a change, and those it is a part of, by place."""
    entries: dict[str, Entry] = {}
    for change in changes:
        for match in _ENTRY.finditer(change.where):
            place = change.where[: match.end()].rstrip(".")
            if place not in entries:
                entries[place] = _entry(place, found, root, table)
    return entries


def _entry(place: str, found: Element, root: Element, table: Table) -> Entry:
    before, after = _at(place, found, table), _at(place, root, table)
    rows, name = _rows(place, table)
    return Entry(
        found=before is not None,
        xml=None if after is None else text(after),
        identity_xml=text(rows.bare(Item(name))),
        parent=_place_of_parent(place, found, table),
    )


def _place_of_parent(place: str, root: Element, table: Table) -> int:
    parts = _ENTRY.findall(place)
    if len(parts) == 1:
        return -1
    field, name = parts[0]
    rows = t.cast(Items, table[field])
    names = [rows.name(element) for element in rows.elements(root)]
    return names.index(name) if name in names else -1


def _rows(place: str, table: Table) -> tuple[Items, str]:
    """The row of the list that an entry stands in, and the entry's name."""
    *way, (field, name) = _ENTRY.findall(place)
    for step, _name in way:
        table = t.cast(Items, table[step]).table
    return t.cast(Items, table[field]), name


def _at(place: str, element: Element | None, table: Table) -> Element | None:
    for field, name in _ENTRY.findall(place):
        rows = t.cast(Items, table[field])
        element = None if element is None else rows.entry(element, Item(name))
        table = rows.table
    return element
