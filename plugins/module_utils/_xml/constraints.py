# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check fields that depend on each other, before libvirt would refuse one or drop it silently."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.list_item import Item
from ansible_collections.corral.virt.plugins.module_utils._xml.row import (
    Flag,
    Index,
    Items,
    Row,
    Table,
    Values,
    option_of,
    read,
)
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element

Violations = t.Iterator["tuple[str, str]"]  # place and reason
Recent = t.Iterator["tuple[str, tuple[int, int]]"]  # place, and the first libvirt that knows it


class _Edit:
    """The places that an edit changed (`disks[system].cache`)."""

    def __init__(self, places: t.Iterable[str]) -> None:
        self._places = set(places)
        self._fields: dict[str, set[str]] = {}
        for place in self._places:
            for start in (0, *_starts(place)):
                self._fields.setdefault(place[:start], set()).add(re.sub(r"\[.*", "", place[start:]))

    def fields(self, where: str) -> t.Collection[str]:
        """The first word of each field that changed below a place (`disks[system].`)."""
        return self._fields.get(where, ())

    def touched(self, place: str) -> bool:
        """True if an entry, or anything in it, changed or is new."""
        return self.made(place + ".") or f"{place}." in self._fields

    def made(self, where: str) -> bool:
        """True if the place, or one that contains it, is new."""
        return any(where[: start - 1] in self._places for start in _starts(where))


def _starts(place: str) -> list[int]:
    """The offsets of all words of a place but the first."""
    return [number for number, letter in enumerate(place, start=1) if letter == "."]


def violations(
    table: Table,
    given: Values,
    element: Element | None = None,
    changed: t.Collection[str] | None = None,
    where: str = "",
) -> Violations:
    """Every field that does not fit the others.

    Without an element, among the user's options, which may leave the rest as it is; with one, in what it holds after an
    edit that changed the places in `changed`. What nobody touched is not checked.
    """
    return _violations(table, given, element, None if changed is None else _Edit(changed), where)


def _violations(table: Table, given: Values, element: Element | None, edit: _Edit | None, where: str) -> Violations:
    touched = table.keys() if edit is None or edit.made(where) else table.keys() & edit.fields(where)
    if not touched:
        return
    values = given if element is None else {**_identity(table, given), **read(element, table)}
    for field, row in table.items():
        if isinstance(row, Items) and given.get(field):
            index = None if element is None else row.index(element)
            for item in given[field]:
                if item.state == "present":
                    yield from _of_entry(row, item, index, edit, f"{where}{field}[{item.name}]")
        if row.valid_with:
            yield from _alone(field, row, values, touched, where, silent=element is None)
        if element is not None:
            yield from _incomplete(field, row, values, touched, where)


def recent(table: Table, given: Values, changed: t.Collection[str], where: str = "") -> Recent:
    """The changed places that not every libvirt supports, with the first version that does."""
    return _recent(table, given, _Edit(changed), where)


def _recent(table: Table, given: Values, edit: _Edit, where: str) -> Recent:
    touched = table.keys() if edit.made(where) else edit.fields(where)
    for field, row in table.items():
        value = given.get(field)
        if value in (None, "", ()):
            continue
        if row.since and field in touched:
            yield where + option_of(field), row.since
        if isinstance(row, Items):
            for item in value:
                if item.state == "present":
                    yield from _recent(row.table, item.fields, edit, f"{where}{field}[{item.name}].")


def _of_entry(row: Items, item: Item, index: Index | None, edit: _Edit | None, place: str) -> Violations:
    given = {**row.identity(item.name), **item.fields}
    entry = None if index is None else row.entry(index, item)
    yield from _violations(row.table, given, entry, edit, place + ".")
    if entry is not None and edit is not None and edit.touched(place):
        values = {**_identity(row.table, given), **read(entry, row.table)}
        missing = [field for field in row.needed if values.get(field) is None]
        emptied = [option_of(field) for field in missing if given.get(field) in ("", ())]
        if emptied:
            yield place, f"{' and '.join(emptied)} must not be empty; set it, or state: absent to remove the entry"
        elif missing:
            yield place, f"creating it requires {' and '.join(map(option_of, missing))}"
        yield from ((place, reason) for reason in row.check(entry, values))


def _identity(table: Table, given: Values) -> Values:
    return {key: value for key, value in given.items() if key not in table}


def _alone(field: str, row: Row, values: Values, touched: t.Collection[str], where: str, *, silent: bool) -> Violations:
    """A field that requires another one, or another value of it."""
    value = values.get(field)
    if silent and isinstance(row, Items):
        value = tuple(item for item in value or () if item.state == "present")
    if value in (None, "", ()) or row.same(None, value) or (value is False and (silent or isinstance(row, Flag))):
        return  # nothing, or what silence means
    for other, fits in row.valid_with.items():
        there = values.get(other)
        if not {field, other} & set(touched) or there in fits or (silent and there is None):
            continue
        if there in (None, "", False):
            yield where + option_of(field), f"it requires {option_of(other)}{_either(fits)}"
        elif fits:
            reason = f"it applies to {option_of(other)}{_either(fits)}, not {_shown(there)}"
            yield where + option_of(field), reason if silent else f"{reason}{_remedy(row, value)}"


def _remedy(row: Row, value: t.Any) -> str:
    """How to remove the entries of a list: those that are not mentioned stay."""
    if not isinstance(row, Items):
        return ""
    names = ["/".join(str(entry[key]) for key in row.keys if key in entry) for entry in value]
    return f"; remove its entries with state: absent ({', '.join(names)})"


def _incomplete(field: str, row: Row, values: Values, touched: t.Collection[str], where: str) -> Violations:
    """A value that requires another field."""
    for other, asks in row.required_with.items():
        if {field, other} & set(touched) and values.get(other) in asks and values.get(field) in (None, "", ()):
            yield where + option_of(field), f"{option_of(other)} {_shown(values[other])} requires it"


def _either(values: t.Iterable[t.Any]) -> str:
    *others, last = [_shown(value) for value in values if value is not None] or [""]
    return f" {', '.join(others)} or {last}" if others else last and f" {last}"


def _shown(value: object) -> str:
    """The value as text in lower case, as libvirt's words are and as YAML spells booleans."""
    return str(value).lower()
