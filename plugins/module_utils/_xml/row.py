# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""One field, one row: where it stands in the XML and how its value is spelt. Read, write and diff come from it."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._changes import Change
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, child, make, resolve

__all__ = ["INT", "KIB", "ONOFF", "TEXT", "YESNO", "Codec", "Flag", "Many", "Row", "Table", "graft", "read"]


class Codec(t.NamedTuple):
    """How one value is read from and written as text."""

    parse: t.Callable[[str], object]
    text: t.Callable[[t.Any], str]


def _lenient(parse: t.Callable[[str], object]) -> t.Callable[[str], object]:
    """A future libvirt may say what we do not expect: give it back as it is rather than fail."""

    def read_value(raw: str) -> object:
        try:
            return parse(raw)
        except ValueError:
            return raw

    return read_value


def _choice(yes: str, no: str) -> Codec:
    return Codec(lambda raw: {yes: True, no: False}.get(raw, raw), lambda value: yes if value else no)


TEXT = Codec(str, str)
INT = Codec(_lenient(int), str)
KIB = INT  # libvirt prints memory in KiB; Row.write names the unit
YESNO = _choice("yes", "no")
ONOFF = _choice("on", "off")


@dataclasses.dataclass(frozen=True)
class Row:
    """A value in text (`os/type`) or in an attribute (`driver/@cache`)."""

    path: str
    codec: Codec = TEXT
    unit: str | None = None  # written beside the value, as libvirt's `unit` attribute
    secret: bool = False  # never shown in changes
    same: t.Callable[[t.Any, t.Any], bool] = lambda found, wanted: bool(found == wanted)

    @property
    def steps(self) -> tuple[list[str], str | None]:
        """The elements to walk, and the attribute to end at."""
        *steps, last = [step for step in self.path.split("/") if step != "."]
        return (steps, last[1:]) if last.startswith("@") else ([*steps, last], None)

    def read(self, element: Element) -> object:
        """The value, or None where the XML is silent."""
        steps, attribute = self.steps
        for step in steps:
            element = element.find(resolve(step))
            if element is None:
                return None
        raw = element.get(attribute) if attribute else element.text
        return None if raw is None else self.codec.parse(raw)

    def write(self, element: Element, value: object) -> None:
        """Put the value there, making the way; an empty text takes it away."""
        steps, attribute = self.steps
        for step in steps[:-1] if not attribute else steps:
            element = child(element, step)
        if attribute and value == "":
            element.attrib.pop(attribute, None)
        elif attribute:
            element.set(attribute, self.codec.text(value))
        elif value == "":
            for found in element.findall(resolve(steps[-1])):
                element.remove(found)
        else:
            leaf = child(element, steps[-1])
            leaf.text = self.codec.text(value)
            if self.unit:
                leaf.set("unit", self.unit)


@dataclasses.dataclass(frozen=True)
class Flag(Row):
    """True where an empty element (`readonly`) is present."""

    def read(self, element: Element) -> object:
        """Whether the element is there."""
        return element.find(self.path) is not None

    def write(self, element: Element, value: object) -> None:
        """Make or remove the element."""
        found = element.find(self.path)
        if value and found is None:
            make(element, self.path)
        elif not value and found is not None:
            element.remove(found)


@dataclasses.dataclass(frozen=True)
class Many(Row):
    """All texts of a repeated element, in order."""

    def read(self, element: Element) -> object:
        """A tuple of values, or None when there is none."""
        steps, _attribute = self.steps
        found = element.findall("/".join(resolve(step) for step in steps))
        return tuple(self.codec.parse(item.text or "") for item in found) or None

    def write(self, element: Element, value: object) -> None:
        """Replace them all."""
        steps, _attribute = self.steps
        for step in steps[:-1]:
            element = child(element, step)
        for found in element.findall(resolve(steps[-1])):
            element.remove(found)
        for item in t.cast("t.Sequence[object]", value):
            make(element, steps[-1]).text = self.codec.text(item)


Table = t.Mapping[str, Row]


def read(element: Element, table: Table) -> dict[str, t.Any]:
    """Every field the XML speaks of."""
    values = {field: row.read(element) for field, row in table.items()}
    return {field: value for field, value in values.items() if value is not None}


def graft(element: Element, table: Table, wanted: t.Mapping[str, t.Any], where: str = "") -> list[Change]:
    """Write what the user said, leave everything else; return what changed.

    `wanted` holds only fields the user spoke of. An empty list means the document was already so.
    """
    changes: list[Change] = []
    for field, row in table.items():
        if wanted.get(field) is None:
            continue
        value, found = wanted[field], row.read(element)
        if row.same(found, value) or (found is None and value in ("", (), [])):
            continue
        row.write(element, value)
        changes.append(Change(where + field, "(hidden)" if row.secret and found else found, "(hidden)" if row.secret else value))
    return changes
