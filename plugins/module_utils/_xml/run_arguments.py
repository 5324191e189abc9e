# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options from rows: Ansible's argument spec of a table, and the user's values as its fields."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.list_item import Item
from ansible_collections.corral.virt.plugins.module_utils._core.units import written
from ansible_collections.corral.virt.plugins.module_utils._xml.kind import Kind
from ansible_collections.corral.virt.plugins.module_utils._xml.options import way_to
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Items, Many, Row, Table, option_of

__all__ = ["fields_of", "items_of", "option_of", "spec"]

ITEM_STATE = {"type": "str", "choices": ["present", "absent"], "default": "present"}


def spec(table: Table, *, without: t.Collection[str] = ()) -> dict[str, t.Any]:
    """The argument spec of a table; dots in a field's path are levels of dictionaries."""
    options: dict[str, t.Any] = {}
    for field, row in table.items():
        if field not in without:
            *way, last = way_to(field)
            place = options
            for step in way:
                place = place.setdefault(step, {"type": "dict", "options": {}})["options"]
            place[last] = _option(row)
    return options


def _option(row: Row) -> dict[str, t.Any]:
    if isinstance(row, Items):
        identity = {key: {**kind.option, "required": True} for key, kind in row.keys.items()}
        return {
            "type": "list",
            "elements": "dict",
            "options": {**identity, "state": ITEM_STATE, **spec(row.table, without=(row.key,))},
        }
    if isinstance(row, Many):
        one = dict(row.kind.option)
        return {"type": "list", "elements": one.pop("type"), **one}
    return {**row.kind.option, **({"no_log": True} if row.secret else {})}


def fields_of(
    table: Table, given: t.Mapping[str, t.Any], what: str, problems: list[str], where: str = ""
) -> dict[str, t.Any]:
    """The user's values by field, as they are kept.

    Errors are added to `problems`.
    """
    fields: dict[str, t.Any] = {}
    for field, row in table.items():
        value = _dig(given, way_to(field))
        if value is None:
            continue
        place = where + option_of(field)
        if isinstance(row, Items):
            fields[field] = items_of(row, value, what, problems, place)
            continue
        try:
            kept = tuple(_named(row.kind, one) for one in value) if isinstance(row, Many) else row.kind.check(value)
        except ValueError as error:
            problems.append(problem(place, what, str(error), None if row.secret else row.display(value)))
        else:
            fields[field] = kept
    return fields


def items_of(
    row: Items, given: t.Sequence[t.Mapping[str, t.Any]], what: str, problems: list[str], where: str
) -> tuple[Item, ...]:
    """The entries of a list; names are identities, so each must be unique."""
    found = []
    for entry in given:
        parts = []
        for key, kind in row.keys.items():
            try:
                parts.append(str(_named(kind, entry[key])))
            except ValueError as error:
                problems.append(problem(f"{where}[].{key}", what, str(error), entry[key]))
        name = "-".join(parts)
        rest = {field: one for field, one in row.table.items() if field != row.key}
        fields = fields_of(rest, entry, what, problems, f"{where}[{name}].")
        state = "absent" if row.is_emptied(fields) else entry.get("state") or "present"
        found.append(Item(name, state=state, fields=fields))
    counts = collections.Counter(item.name for item in found)
    for name in sorted(name for name, count in counts.items() if count > 1):
        problems.append(f"{where} of {what}: {name} is given twice; names must be unique")
    return tuple(found)


def _named(kind: Kind, value: t.Any) -> t.Any:
    """The checked value of an identity, which must not be the empty text that elsewhere removes a value."""
    if value == "":
        raise ValueError("must not be empty")
    return kind.check(value)


def problem(place: str, what: str, reason: str, value: object) -> str:
    """One problem: its place, the object (`web1`, `network lan`), what the value must be, and what it is."""
    shown = written(value)
    named = value is None or reason.endswith(f"not {shown}") or (isinstance(value, str) and shown in reason)
    return f"{place} of {what}: {reason}" + ("" if named else f", not {shown}")


def _dig(given: t.Mapping[str, t.Any], way: tuple[str, ...]) -> t.Any:
    value: t.Any = given
    for step in way:
        value = value.get(step) if isinstance(value, dict) else None
    return value
