# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What belongs together: a field that libvirt would refuse, or drop without a word, beside the others is told before
it gets there.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._model.item import Item
from ansible_collections.corral.virt.plugins.module_utils._xml.row import (
    Flag,
    Items,
    Row,
    Table,
    Values,
    option_of,
    read,
)
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element

__all__ = ["misfits"]

Places = t.Collection[str]
Misfits = t.Iterator["tuple[str, str]"]  # place and reason


def misfits(
    table: Table, said: Values, element: Element | None = None, changed: Places | None = None, where: str = ""
) -> Misfits:
    """Every field that does not fit to the others.

    Among what a user said, who may leave the rest to what is there; or, with an element, in what it holds after an edit
    that changed those places. What nobody touched is left alone.
    """
    values = said if element is None else {**_identity(table, said), **read(element, table)}
    new = changed is None or _made(where, changed)
    edited = {re.sub(r"\[.*", "", place[len(where) :]) for place in changed or () if place.startswith(where)}
    touched = {field for field in table if new or field in edited}
    for field, row in table.items():
        if isinstance(row, Items):
            for item in [item for item in said.get(field) or () if item.state == "present"]:
                yield from _of_entry(row, item, element, changed, f"{where}{field}[{item.name}]")
        if row.only:
            yield from _alone(field, row, values, touched, where, silent=element is None)
        if row.due and element is not None:
            yield from _incomplete(field, row, values, touched, where)


def _of_entry(row: Items, item: Item, root: Element | None, changed: Places | None, place: str) -> Misfits:
    said = {**row.identity(item.name), **item.fields}
    entry = None if root is None else row.entry(root, item)
    yield from misfits(row.table, said, entry, changed, place + ".")
    places = changed or ()
    edited = any(one == place or one.startswith(place + ".") for one in places)
    if entry is not None and (edited or _made(place + ".", places)):
        values = {**_identity(row.table, said), **read(entry, row.table)}
        missing = [option_of(field) for field in row.needed if values.get(field) is None]
        if missing:
            yield place, f"creating it requires {' and '.join(missing)}"
        yield from ((place, reason) for reason in row.check(entry, values))


def _made(where: str, changed: Places) -> bool:
    """Whether what stands there, or what that is a part of, is new."""
    return any(where.startswith(one + ".") for one in changed)


def _identity(table: Table, said: Values) -> Values:
    return {key: value for key, value in said.items() if key not in table}


def _alone(field: str, row: Row, values: Values, touched: Places, where: str, *, silent: bool) -> Misfits:
    """A field that means nothing without another one, or beside its value."""
    value = values.get(field)
    if silent and isinstance(row, Items):
        value = tuple(item for item in value or () if item.state == "present")
    if value in (None, "", ()) or row.same(None, value) or (value is False and (silent or isinstance(row, Flag))):
        return  # nothing, or what silence means
    for other, fits in row.only.items():
        there = values.get(other)
        if not {field, other} & set(touched) or there in fits or (silent and there is None):
            continue
        if there in (None, "", False):
            yield where + option_of(field), f"it requires {option_of(other)}{_either(fits)}"
        elif fits:
            yield where + option_of(field), f"it applies to {option_of(other)}{_either(fits)}, not {_shown(there)}"


def _incomplete(field: str, row: Row, values: Values, touched: Places, where: str) -> Misfits:
    """A value that means nothing without another field."""
    for other, asks in row.due.items():
        if {field, other} & set(touched) and values.get(other) in asks and values.get(field) in (None, "", ()):
            yield where + option_of(other), f"{_shown(values[other])} requires {option_of(field)}"


def _either(values: t.Iterable[t.Any]) -> str:
    *others, last = [_shown(value) for value in values if value is not None] or [""]
    return f" {', '.join(others)} or {last}" if others else last and f" {last}"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
