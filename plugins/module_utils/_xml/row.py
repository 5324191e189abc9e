# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One field, one row: its place in the XML and its kind of value.

Reading, writing, diffs and the option itself come from the row.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change, option_of, shown
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._core.list_item import Item
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_of
from ansible_collections.corral.virt.plugins.module_utils._xml.kind import ALIAS, TEXT, Kind
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, child, drop, make, parse, resolve

__all__ = [
    "ANY",
    "Flag",
    "Items",
    "Many",
    "Presence",
    "Row",
    "Table",
    "Values",
    "every",
    "graft",
    "option_of",
    "read",
    "silent_is",
    "values",
]

ANY: tuple[t.Any, ...] = ()  # of what a field depends on: that it is there is enough
Values = t.Mapping[str, t.Any]
Mark = t.Hashable  # one thing that an entry is known by: its name, its address


def every(table: Table, where: str = "") -> t.Iterator[tuple[str, str, Row]]:
    """Option, field and row of everything in a table and its lists: `disks[].cache`."""
    for field, row in table.items():
        yield where + option_of(field), where + field, row
        if isinstance(row, Items):
            yield from every(row.table, f"{where}{field}[].")


def silent_is(default: t.Any) -> t.Callable[[t.Any, t.Any], bool]:
    """A comparison for a value that libvirt does not write: a missing one equals the default."""
    return lambda found, wanted: bool((default if found is None else found) == wanted)


@dataclasses.dataclass(frozen=True)
class Row:
    """A field whose value is text (`os/type`) or an attribute (`driver/@cache`)."""

    path: str
    kind: Kind = TEXT
    unit: str | None = None  # libvirt's `unit` attribute beside a size: we write KiB, and read any
    secret: bool = False  # never shown in changes
    same: t.Callable[[t.Any, t.Any], bool] = operator.eq
    on_change: t.Callable[[Element], None] | None = None  # what else must go when the value changes
    # Fields of the same table, and their values: beside which this one means something, and beside which it must be
    # given.
    valid_with: t.Mapping[str, t.Collection[t.Any]] = dataclasses.field(default_factory=dict)
    required_with: t.Mapping[str, t.Collection[t.Any]] = dataclasses.field(default_factory=dict)
    # The first libvirt after 6.0 that reads it. An older one drops it without a word.
    since: tuple[int, int] | None = None

    @functools.cached_property
    def steps(self) -> tuple[list[str], str | None]:
        """The elements of the path, and the attribute at its end, if any."""
        *steps, last = [step for step in self.path.split("/") if step != "."]
        return (steps, last[1:]) if last.startswith("@") else ([*steps, last], None)

    @functools.cached_property
    def reach(self) -> str:
        """The tags of the path's first two steps at most: without these elements there is no value."""
        return "/".join(resolve(step.partition("[")[0]) for step in self.steps[0][:2])

    def read(self, element: Element) -> t.Any:
        """The value, or None if the XML has none."""
        steps, attribute = self.steps
        for step in steps:
            element = element.find(resolve(step))
            if element is None:
                return None
        raw = element.get(attribute) if attribute else element.text
        if raw is None or (not attribute and len(element) and raw.isspace()):
            return None
        return _in_kib(raw, element.get("unit") or "KiB") if self.unit else self.kind.parse(raw)

    def write(self, element: Element, value: t.Any) -> None:
        """Write the value, creating the path; an empty text removes it, and an element that held nothing else."""
        if value == "":
            self._take_away(element)
            return
        steps, attribute = self.steps
        for step in steps:
            element = child(element, step)
        if attribute:
            element.set(attribute, self.kind.text(value))
        else:
            element.text = self.kind.text(value)
        if self.unit:
            element.set("unit", self.unit)

    def _take_away(self, element: Element) -> None:
        steps, attribute = self.steps
        for found in element.findall("/".join(map(resolve, steps))) if steps else [element]:
            if attribute:
                found.attrib.pop(attribute, None)
            holds = attribute and (found.attrib or len(found) or (found.text or "").strip())
            if found is not element and not holds:
                found.getparent().remove(found)

    def display(self, value: t.Any) -> t.Any:
        """The value as shown in a change."""
        return "(hidden)" if self.secret and value is not None else value

    def clear(self, element: Element) -> None:
        """Remove the value; from an element with attributes, which are other fields, only the text."""
        steps, attribute = self.steps
        holder = None if attribute else element.find("/".join(map(resolve, steps)))
        if holder is not None and holder.attrib:
            holder.text = None
        else:
            self.write(element, "")


def _in_kib(raw: str, unit: str) -> t.Any:
    """The size in KiB; a text with its unit if it cannot be read or stored."""
    try:
        return int(raw) // 1024 if unit in ("b", "bytes") else bytes_of(raw + unit, bare="K", what="") // 1024
    except (BadInput, ValueError):
        return raw + unit


@dataclasses.dataclass(frozen=True)
class Flag(Row):
    """True if an empty element (`readonly`) is present."""

    def read(self, element: Element) -> t.Any:
        """True if the element is there."""
        return element.find(self.path) is not None

    def write(self, element: Element, value: t.Any) -> None:
        """Create or remove the element."""
        *way, last = self.path.split("/")
        if not value and not self.read(element):
            return
        for step in way:
            element = child(element, step)
        found = element.find(last)
        if value and found is None:
            make(element, last)
        elif not value and found is not None:
            element.remove(found)


@dataclasses.dataclass(frozen=True)
class Presence(Row):
    """The value that decides if a whole element exists (a device's model): `none` removes the element, and is read as
    its absence.
    """

    same: t.Callable[[t.Any, t.Any], bool] = lambda found, wanted: (found or "none") == wanted
    element: str = ""

    def write(self, element: Element, value: t.Any) -> None:
        """Create the element, or remove all of its kind."""
        if value != "none":
            super().write(element, value)
            return
        drop(element.findall(self.element))


@dataclasses.dataclass(frozen=True)
class Many(Row):
    """All values of a repeated element or of its attribute, in order."""

    def read(self, element: Element) -> t.Any:
        """A tuple of values, or None if there are none."""
        steps, attribute = self.steps
        found = element.findall("/".join(map(resolve, steps)))
        return tuple(self.kind.parse((item.get(attribute) if attribute else item.text) or "") for item in found) or None

    def write(self, element: Element, value: t.Any) -> None:
        """Replace all values."""
        steps, attribute = self.steps
        if not value and self.read(element) is None:
            return
        for step in steps[:-1]:
            element = child(element, step)
        drop(element.findall(resolve(steps[-1])))
        for item in value:
            made = make(element, steps[-1])
            if attribute:
                made.set(attribute, self.kind.text(item))
            else:
                made.text = self.kind.text(item)


Table = t.Mapping[str, Row]


class Index:
    """The entries of a list by their marks, found at once, however many there are. Of equal marks the first counts."""

    def __init__(self) -> None:
        self._entries: dict[Mark, dict[Element, None]] = {}
        self._marks: dict[Element, tuple[Mark, ...]] = {}
        self._numbers: dict[str, int] = {}  # below them, no mark of a series is free

    def put(self, entry: Element, marks: t.Iterable[Mark]) -> None:
        """Add an entry, or replace its marks."""
        kept = tuple(marks)
        if self._marks.get(entry) == kept:
            return
        self.drop(entry)
        self._marks[entry] = kept
        for mark in kept:
            self._entries.setdefault(mark, {})[entry] = None

    def drop(self, entry: Element) -> None:
        """Forget an entry."""
        for mark in self._marks.pop(entry, ()):
            self._entries.get(mark, {}).pop(entry, None)
            if not self._entries.get(mark):
                self._entries.pop(mark, None)
            self._numbers.clear()

    def find(self, marks: t.Iterable[Mark]) -> Element | None:
        """The entry with the first of these marks that any entry has, or None."""
        return next((next(iter(self._entries[mark])) for mark in marks if mark in self._entries), None)

    def first_free(self, series: str, nth: t.Callable[[int], Mark]) -> int:
        """The least number whose mark in the series no entry has."""
        number = self._numbers.get(series, 0)
        while nth(number) in self._entries:
            number += 1
        self._numbers[series] = number
        return number


@dataclasses.dataclass(frozen=True)
class Items(Row):
    """A repeated element as a list: entries are found by key, edited in place, added, and removed only with state
    absent.
    """

    table: Table = dataclasses.field(default_factory=dict)
    key: str = "name"  # the field that is an entry's identity
    # what the identity is made of, where no field alone is it
    parts: t.Mapping[str, Kind] = dataclasses.field(default_factory=dict)
    key_kind: Kind = ALIAS  # where the identity is no row
    needed: t.Sequence[str] = ()  # fields without which none can be made
    # what else is wrong with an entry
    check: t.Callable[[Element, Values], t.Iterable[str]] = lambda _element, _values: ()
    # What an entry of a kind of its own needs beyond its rows.
    name_of: t.Callable[[Element], str] | None = None
    # What an entry is known by beside its name, and what an item is looked for by where no entry has its name.
    marks: t.Callable[[Element], t.Iterable[Mark]] | None = None
    sought: t.Callable[[Item], t.Iterable[Mark]] = lambda _item: ()
    # what libvirt needs and the user need not say
    new: t.Callable[[Element, Item], None] = lambda _element, _item: None
    seat: t.Callable[[Element, Index], None] = lambda _element, _index: None  # what no other entry has
    normalise: t.Callable[[Element], None] = lambda _element: None  # after an edit
    shown: t.Sequence[str] = ()  # the fields that stand for an entry in a diff

    @property
    def keys(self) -> t.Mapping[str, Kind]:
        """The options that make up an entry's identity, with their kinds."""
        return self.parts or {self.key: self.table[self.key].kind if self.key in self.table else self.key_kind}

    def is_emptied(self, fields: Values) -> bool:
        """True if an empty value removes the entry, which consists of nothing else."""
        values = [field for field in self.table if field != self.key]
        return bool(values) and list(self.needed) == values and all(fields.get(field) in ("", ()) for field in values)

    def elements(self, root: Element) -> list[Element]:
        """All elements of the list."""
        return list(root.findall(self.path))

    def name(self, element: Element) -> str:
        """The identity of an entry."""
        return self.name_of(element) if self.name_of else str(self.table[self.key].read(element))

    def names(self, root: Element) -> list[tuple[str, Element]]:
        """All entries with their identities."""
        return [(self.name(found), found) for found in self.elements(root)]

    def index(self, root: Element) -> Index:
        """All entries by their marks; a caller that looks for several creates the index once."""
        index = Index()
        for name, found in self.names(root):
            index.put(found, self._known_by(name, found))
        return index

    def _known_by(self, name: str, element: Element) -> tuple[Mark, ...]:
        return (name, *(self.marks(element) if self.marks else ()))

    def entry(self, root: Element | Index, item: Item) -> Element | None:
        """The element of an item, or None."""
        index = root if isinstance(root, Index) else self.index(root)
        return index.find((item.name, *self.sought(item)))

    def read(self, element: Element) -> t.Any:
        """A tuple of dictionaries, or None if there are no entries."""
        return tuple({**self.identity(name), **self.values(found)} for name, found in self.names(element)) or None

    def values(self, element: Element) -> dict[str, t.Any]:
        """The fields of an entry."""
        return read(element, self.table)

    def named(self, values: Values) -> str:
        """The identity of an entry, from its values."""
        return "-".join(str(values.get(key)) for key in self.keys)

    def identity(self, name: str) -> dict[str, str]:
        """An entry's name as options."""
        return dict(zip(self.parts, name.rsplit("-", 1))) if self.parts else {self.key: name}

    def summary(self, element: Element) -> str:
        """An entry as text for a diff."""
        values = self.values(element)
        pairs = [
            (field, self.table[field].display(shown(field, values[field])))
            for field in self.shown
            if values.get(field) is not None
        ]
        return " ".join(_word(field, value) for field, value in pairs) or "present"

    def clear(self, element: Element) -> None:
        """Do nothing: entries are removed only on request, and a list contradicts nothing."""

    def graft(self, root: Element, wanted: t.Sequence[Item], where: str) -> list[Change]:
        """Apply the items; returns changes by `disks[name].field`, or one for an entry that is added or removed."""
        changes: list[Change] = []
        index = self.index(root)
        for item in wanted:
            place, found = f"{where}[{item.name}]", self.entry(index, item)
            if item.state == "absent":
                if found is not None:
                    changes.append(Change(place, self.summary(found), None))
                    index.drop(found)
                    _remove(found, root)
            elif found is None:
                changes.append(Change(place, None, self.summary(self._make(root, item, index))))
            else:
                changes += self._edit(found, item, index, place)
        return changes

    def _edit(self, found: Element, item: Item, index: Index, place: str) -> list[Change]:
        changes = graft(found, self.table, item.fields, place + ".")
        if changes:
            self.normalise(found)
            if self.marks:
                index.put(found, self._known_by(self.name(found), found))
        return changes

    def complete(self, root: Element, wanted: t.Sequence[Item], parts: t.Collection[Element]) -> None:
        """Complete the elements in `parts`, which are only parts of entries, with what a new entry has."""
        index = self.index(root)
        for item in wanted:
            found = self.entry(index, item)
            if found in parts and item.state != "absent":
                index.drop(found)
                _fill(found, self.bare(item))
                self.seat(found, index)
                index.put(found, self._known_by(item.name, found))

    def bare(self, item: Item) -> Element:
        """An entry with only its identity and its defaults."""
        *_way, tag = self.path.split("/")
        element = make(parse("<list/>"), tag)
        self._identify(element, item)
        return element

    def _identify(self, element: Element, item: Item) -> None:
        self.new(element, item)
        if self.key in self.table:
            self.table[self.key].write(element, item.name)

    def _make(self, root: Element, item: Item, index: Index) -> Element:
        *way, tag = self.path.split("/")
        for step in way:
            root = child(root, step)
        if item.template:
            element = parse(item.template)
            root.append(element)
        else:
            element = make(root, tag)
            self._identify(element, item)
        self.seat(element, index)
        graft(element, self.table, {**({} if item.template else item.initial), **item.fields})
        self.normalise(element)
        index.put(element, self._known_by(item.name, element))
        return element


def _word(field: str, value: t.Any) -> str:
    if isinstance(value, bool):
        return f"{field}: {str(value).lower()}"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _fill(element: Element, bare: Element) -> None:
    """Add the attributes and children that `element` lacks."""
    for name, value in bare.attrib.items():
        if name not in element.attrib:
            element.set(name, value)
    for part in list(bare):
        there = element.find(part.tag)
        if there is None:
            element.append(part)
        else:
            _fill(there, part)


def _remove(element: Element, root: Element) -> None:
    """Remove an entry, and parents that held nothing else."""
    parent = element.getparent()
    parent.remove(element)
    if parent is not root and not len(parent) and not parent.attrib:
        _remove(parent, root)


def read(element: Element, table: Table) -> dict[str, t.Any]:
    """Every field that the XML sets; plain rows are read only if their elements exist."""
    there = {"", *(one.tag for one in element), *(f"{one.tag}/{two.tag}" for one in element for two in one)}
    values = {
        field: row.read(element) for field, row in table.items() if type(row).read is not Row.read or row.reach in there
    }
    return {field: value for field, value in values.items() if value is not None}


def values(xml: str, table: Table) -> dict[str, t.Any]:
    """Every field of the table that a document sets."""
    return read(parse(xml), table)


def graft(element: Element, table: Table, wanted: t.Mapping[str, t.Any], where: str = "") -> list[Change]:
    """Write the wanted fields, leave everything else; returns the changes.

    `wanted` has only fields that the user set. An empty list means that the document was as wanted.
    """
    changes: list[Change] = []
    for field, row in table.items():
        value = wanted.get(field)
        if value is None:
            continue
        if isinstance(row, Items):
            changes += row.graft(element, value, where + field)
            continue
        found = row.read(element)
        if (found is None and value in ("", (), [])) or row.same(found, value):
            continue
        if row.on_change:
            row.on_change(element)
        row.write(element, value)
        # an empty text takes the value away
        after = None if value == "" else row.display(value)
        changes.append(Change(where + field, row.display(found), after))
    if changes:
        changes += _forget(element, table, wanted, {change.where[len(where) :] for change in changes}, where)
    return changes


def _forget(
    element: Element, table: Table, wanted: Values, changed: t.Collection[str], where: str
) -> t.Iterator[Change]:
    """Remove fields that belonged to another field's former value and would now contradict it."""
    for field, row in table.items():
        old = any(
            fits and other in changed and table[other].read(element) not in fits
            for other, fits in row.valid_with.items()
        )
        found = row.read(element) if old and wanted.get(field) is None else None
        if found is not None:
            row.clear(element)
            if row.read(element) is None:
                yield Change(where + field, row.display(found), None)
