# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fields of a document as options."""

from __future__ import annotations

import collections
import functools
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import shown
from ansible_collections.corral.virt.plugins.module_utils._xml.kind import Kind
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Flag, Items, Many, Presence, Table, option_of


@functools.cache  # a hundred guests in one call have the same fields
def way_to(field: str) -> tuple[str, ...]:
    """The path of a field's option: the dictionaries that lead to it, and its name."""
    return tuple(option_of(field).split("."))


def as_options(table: Table, found: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The fields of a document as options; what no option can express is left out, and so left alone."""
    options: dict[str, t.Any] = {}
    for field, row in table.items():
        value = found.get(field)
        secret = row.secret or (isinstance(value, str) and row.display(value) != value)
        if (
            value is None
            or secret
            or (value is False and isinstance(row, Flag))
            or (value == "none" and isinstance(row, Presence))
        ):
            continue
        if isinstance(row, Items):
            value = _entries(row, value)
        elif isinstance(row, Many):
            value = list(value) if all(takes(row.kind, one) for one in value) else None
        else:
            value = shown(field, value)
            value = value if takes(row.kind, value) else None
        if value is not None:
            *way, last = way_to(field)
            place = options
            for step in way:
                place = place.setdefault(step, {})
            place[last] = value
    return options


def _entries(row: Items, found: t.Sequence[t.Mapping[str, t.Any]]) -> list[dict[str, t.Any]] | None:
    """Entries with a valid, unique name; entries that share a name cannot be told apart."""
    names = [tuple(entry.get(key) for key in row.keys) for entry in found]
    counts = collections.Counter(names)
    entries = []
    for entry, name in zip(found, names):
        if counts[name] == 1 and all(takes(kind, part) for kind, part in zip(row.keys.values(), name)):
            rest = {field: one for field, one in row.table.items() if field != row.key}
            entries.append({**dict(zip(row.keys, name)), **as_options(rest, entry)})
    return entries or None


def takes(kind: Kind, value: object) -> bool:
    """True if a value is of this kind and not empty."""
    try:
        return value not in (None, "") and kind.check(value) is not None
    except ValueError:
        return False
