# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A mapping of a Salt file, from which keys are taken one by one: what nobody takes is reported, so that nothing is
dropped silently. Pure.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._changes import size_text

__all__ = ["SaltNote", "SaltPart", "merged", "present"]

NO_COUNTERPART = "it has no counterpart"


@dataclasses.dataclass(frozen=True)
class SaltNote:
    """Something that the variables do not say, or that is yet to be done."""

    file: str
    path: str  # in the file, keys joined by `:`
    why: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.path, self.why) if part)


class SaltPart:
    """One mapping, with the place it comes from."""

    def __init__(self, notes: list[SaltNote], file: str, path: str, values: t.Mapping[str, t.Any]) -> None:
        self.notes, self.file, self.path = notes, file, path
        self._left = dict(values)

    def __contains__(self, key: str) -> bool:
        return self._left.get(key) is not None

    def note(self, key: str, why: str) -> None:
        """Report a key of it; nothing for the mapping itself."""
        self.notes.append(SaltNote(self.file, ":".join(part for part in (self.path, key) if part), why))

    def is_mapping(self, key: str) -> bool:
        """Whether there is more than one value below a key that is not taken yet."""
        return isinstance(self._left.get(key), (dict, list))

    def raw(self, key: str) -> t.Any:
        """The value as it is; None where there is none."""
        return self._left.pop(key, None)

    def skip(self, why: str, *keys: str) -> None:
        """Report these keys where they are."""
        for key in keys:
            if self.raw(key) is not None:
                self.note(key, why)

    def text(self, key: str) -> str | None:
        """A text, or a number as one."""
        value = self.raw(key)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        self._note_wrong_type(key, "a text")
        return None

    def number(self, key: str) -> int | None:
        """A whole number."""
        value = self.raw(key)
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value.strip()):
            return int(value)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        self._note_wrong_type(key, "a whole number")
        return None

    def truth(self, key: str) -> bool | None:
        """True or false."""
        value = self.raw(key)
        if isinstance(value, str) and value.lower() in ("true", "yes", "on", "false", "no", "off"):
            return value.lower() in ("true", "yes", "on")
        if value is None or isinstance(value, bool):
            return value
        self._note_wrong_type(key, "true or false")
        return None

    def mebibytes(self, key: str) -> str | None:
        """A size, as Salt reads it: MiB unless it has a unit, and `2g`, `2GiB` or, by thousands, `2GB`."""
        value = self.raw(key)
        if value is None:
            return None
        size = 0 if isinstance(value, bool) else _bytes(str(value))
        if not size:
            self._note_wrong_type(key, "a size")
            return None
        return size_text(-(-size // 1024))

    def rows(self, texts: str = "", numbers: str = "", truths: str = "") -> dict[str, t.Any]:
        """Keys that both sides call the same, as far as they are there."""
        found: dict[str, t.Any] = {key: self.text(key) for key in texts.split()}
        found.update({key: self.number(key) for key in numbers.split()})
        found.update({key: self.truth(key) for key in truths.split()})
        return present(**found)

    def numbered(self, key: str) -> list[tuple[int, t.Any]]:
        """Values by number."""
        value = merged(self.raw(key))
        if isinstance(value, dict) and all(re.fullmatch("[0-9]{1,9}", one) for one in value):
            return [(int(one), inner) for one, inner in value.items()]
        if value is not None:
            self._note_wrong_type(key, "a mapping of numbers")
        return []

    def texts(self, key: str) -> list[str]:
        """A list of texts, or a text of words."""
        value = self.raw(key)
        found = value.split() if isinstance(value, str) else value
        if found is None or (isinstance(found, list) and all(isinstance(one, str) for one in found)):
            return found or []
        self._note_wrong_type(key, "a list of texts")
        return []

    def part(self, key: str) -> SaltPart | None:
        """A mapping below it, as Salt writes one: also a list of mappings."""
        value = merged(self.raw(key))
        if value is None:
            return None
        if isinstance(value, dict):
            return self._below(key, value)
        self._note_wrong_type(key, "a mapping")
        return None

    def parts(self, key: str) -> list[SaltPart] | None:
        """Mappings of a list; None where there is no list."""
        value = self.raw(key)
        if value is None:
            return None
        found: list[SaltPart] = []
        for number, one in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(one, dict):
                found.append(self._below(f"{key}[{number}]", one))
            else:
                self._note_wrong_type(f"{key}[{number}]", "a mapping")
        return found

    def named(self, key: str) -> list[tuple[str, SaltPart]]:
        """Mappings by name: of a mapping, or of a list of mappings with one key each."""
        value = merged(self.raw(key))
        if value is None:
            return []
        if not isinstance(value, dict):
            self._note_wrong_type(key, "a mapping")
            return []
        found = []
        for name, one in value.items():
            inner = merged(one)
            if inner is None or isinstance(inner, dict):
                found.append((name, self._below(f"{key}:{name}", inner or {})))
            else:
                self._note_wrong_type(f"{key}:{name}", "a mapping")
        return found

    def untaken(self) -> list[str]:
        """Keys that nobody has taken yet."""
        return list(self._left)

    def drop(self) -> None:
        """Take the rest, which was reported as a whole."""
        self._left.clear()

    def left(self, why: str = NO_COUNTERPART) -> None:
        """Report what nobody has taken."""
        for key in self.untaken():
            if self.raw(key) is not None:
                self.note(key, why)

    def _below(self, key: str, values: t.Mapping[str, t.Any]) -> SaltPart:
        return SaltPart(self.notes, self.file, ":".join(part for part in (self.path, key) if part), values)

    def _note_wrong_type(self, key: str, what: str) -> None:
        self.note(key, f"it is not {what}, and is left out")


def present(**values: t.Any) -> dict[str, t.Any]:
    """What there is of it."""
    return {key: value for key, value in values.items() if value is not None and value != {}}


def merged(value: t.Any) -> t.Any:
    """Salt's list of mappings as one mapping: `[{a: 1}, {b: 2}]`, with what is not one left as it is."""
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        found: dict[str, t.Any] = {}
        for one in value:
            found.update(one)
        return found
    return value


def _bytes(text: str) -> int:
    """0 for a text that is no size."""
    found = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*(?:([kmgtpe])(ib|b)?)?\s*", text.lower())
    if not found:
        return 0
    number, letter, ending = found.groups()
    return int(float(number) * (1000 if ending == "b" else 1024) ** " kmgtpe".index(letter or "m"))
