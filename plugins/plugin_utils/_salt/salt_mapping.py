# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A mapping of a Salt file from which keys are taken one by one; what remains is reported, and never lost. Pure."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import size_text

NOT_QEMU = "it is not libvirt with QEMU or KVM, which alone is supported"
_ABOUT = re.compile(
    r"\b(libvirt|qemu|kvm|virsh|virt\b|virt_|virt(logd|lockd|qemud)|ovmf|vfio|iommu|ksm|guestfs|xen|esxi?)|"
    r"\bvms\b|hypervisor|hugepage|hugetlb|numa_balancing|kvm\b|bridge-nf|br_netfilter",
    re.IGNORECASE,
)
NO_COUNTERPART = "it has no counterpart"


@dataclasses.dataclass(frozen=True)
class SaltNote:
    """Something that the variables do not express, or that remains to be done."""

    file: str
    path: str  # in the file, keys joined by `:`
    why: str
    about: bool = True  # about virtualization; of the others the report has the number

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.path, self.why) if part)


def is_about(text: str) -> bool:
    """True if a text mentions virtualization."""
    return _ABOUT.search(text) is not None


class Placed(dict[str, t.Any]):
    """A mapping that records the place of each key."""

    def __init__(self, values: t.Mapping[str, t.Any], file: str, path: str) -> None:
        super().__init__(values)
        own: dict[str, tuple[str, str]] = getattr(values, "places", {})
        self.places = {key: own.get(key, (file, path)) for key in values}  # file, and path of the mapping there


def overlaid(
    below: Placed, values: t.Mapping[str, t.Any], file: str, path: str, notes: list[SaltNote], why: str
) -> Placed:
    """`values` over `below`, merged as Salt does: mappings by key, all else as a whole.

    A value that another one replaces is reported with `why`.
    """
    found = Placed(below, file, path)
    for key, value in values.items():
        old, (old_file, old_path) = found.get(key), found.places.get(key, (file, path))
        if isinstance(old, dict) and isinstance(value, dict):
            inner = Placed(old, old_file, _path(old_path, key))
            found[key] = overlaid(inner, value, file, _path(path, key), notes, why)
            continue
        if old is not None and old != value:
            notes.append(SaltNote(old_file, _path(old_path, key), f"{why} {file}: {_path(path, key)}"))
        found[key], found.places[key] = value, (file, path)
    return found


def _path(*keys: str) -> str:
    return ":".join(key for key in keys if key)


class SaltPart:
    """One mapping, with its place. `refused` are reasons not to write what is made of it."""

    def __init__(
        self,
        notes: list[SaltNote],
        file: str,
        path: str,
        values: t.Mapping[str, t.Any],
        refused: list[SaltNote] | None = None,
    ) -> None:
        self.notes, self.file, self.path = notes, file, path
        self.refused: list[SaltNote] = [] if refused is None else refused
        self._left = dict(values)
        self._places = values.places if isinstance(values, Placed) else {}

    def __contains__(self, key: str) -> bool:
        return self._left.get(key) is not None

    def note(self, key: str, why: str) -> None:
        """Report a key of this mapping; with an empty key, the mapping itself."""
        file, path = self._place(key)
        self.notes.append(SaltNote(file, _path(path, key), why))

    def refuse(self, key: str, why: str) -> None:
        """Record why the object made of this mapping would differ: it is then not written."""
        file, path = self._place(key)
        self.refused.append(SaltNote(file, _path(path, key), why))

    def mentions(self, key: str) -> bool:
        """True if an untaken key is about virtualization."""
        return is_about(f"{key} {self._left.get(key)}")

    def put(self, key: str, part: SaltPart) -> None:
        """Put back the untaken keys of a nested mapping."""
        self._left[key] = {one: part.raw(one) for one in part.untaken()}

    def foreign(self, key: str) -> None:
        """Take a key that is not about virtualization, and count it."""
        if self.raw(key) is not None:
            file, path = self._place(key)
            self.notes.append(SaltNote(file, _path(path, key), key, about=False))

    def is_mapping(self, key: str) -> bool:
        """True if an untaken key holds a mapping or a list."""
        return isinstance(self._left.get(key), (dict, list))

    def raw(self, key: str) -> t.Any:
        """Take a value as it is; None if there is none."""
        return self._left.pop(key, None)

    def skip(self, why: str, *keys: str) -> None:
        """Take these keys, and report those that have a value."""
        for key in keys:
            if self.raw(key) is not None:
                self.note(key, why)

    def text(self, key: str) -> str | None:
        """Take a text, or a number as text."""
        value = self.raw(key)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        self._note_wrong_type(key, "a text")
        return None

    def number(self, key: str) -> int | None:
        """Take a whole number."""
        value = self.raw(key)
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value.strip()):
            return int(value)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        self._note_wrong_type(key, "a whole number")
        return None

    def truth(self, key: str) -> bool | None:
        """Take a boolean."""
        value = self.raw(key)
        if isinstance(value, str) and value.lower() in ("true", "yes", "on", "false", "no", "off"):
            return value.lower() in ("true", "yes", "on")
        if value is None or isinstance(value, bool):
            return value
        self._note_wrong_type(key, "true or false")
        return None

    def mebibytes(self, key: str) -> str | None:
        """Take a size as Salt reads it: MiB unless it has a unit, and `2g`, `2GiB` or, by thousands, `2GB`."""
        value = self.raw(key)
        if value is None:
            return None
        size = 0 if isinstance(value, bool) else _bytes(str(value))
        if not size:
            self._note_wrong_type(key, "a size")
            return None
        return size_text(-(-size // 1024))

    def rows(self, texts: str = "", numbers: str = "", truths: str = "") -> dict[str, t.Any]:
        """Take keys that have the same name on both sides, and return those with a value."""
        found: dict[str, t.Any] = {key: self.text(key) for key in texts.split()}
        found.update({key: self.number(key) for key in numbers.split()})
        found.update({key: self.truth(key) for key in truths.split()})
        return present(**found)

    def numbered(self, key: str) -> list[tuple[int, t.Any]]:
        """Take a mapping of numbers to values, as pairs."""
        value = merged(self.raw(key))
        if isinstance(value, dict) and all(re.fullmatch("[0-9]{1,9}", one) for one in value):
            return [(int(one), inner) for one, inner in value.items()]
        if value is not None:
            self._note_wrong_type(key, "a mapping of numbers")
        return []

    def texts(self, key: str) -> list[str]:
        """Take a list of texts, or a text as a list of words."""
        value = self.raw(key)
        found = value.split() if isinstance(value, str) else value
        if found is None or (isinstance(found, list) and all(isinstance(one, str) for one in found)):
            return found or []
        self._note_wrong_type(key, "a list of texts")
        return []

    def part(self, key: str) -> SaltPart | None:
        """Take a nested mapping, which Salt may write as a list of mappings."""
        value = merged(self.raw(key))
        if value is None:
            return None
        if isinstance(value, dict):
            return self._below(key, value)
        self._note_wrong_type(key, "a mapping")
        return None

    def parts(self, key: str) -> list[SaltPart] | None:
        """Take a list of mappings; None if there is no list."""
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
        """Take mappings by name: from a mapping, or from a list of mappings with one key each."""
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
        """Take all remaining keys, which were reported as a whole."""
        self._left.clear()

    def left(self, why: str = NO_COUNTERPART) -> None:
        """Report all untaken keys."""
        for key in self.untaken():
            if self.raw(key) is not None:
                self.note(key, why)

    def _below(self, key: str, values: t.Mapping[str, t.Any]) -> SaltPart:
        file, path = self._place(key)
        return SaltPart(self.notes, file, _path(path, key), values, self.refused)

    def _place(self, key: str) -> tuple[str, str]:
        head = re.split(r"[:\[]", key, maxsplit=1)[0]
        return self._places.get(key) or self._places.get(head) or (self.file, self.path)

    def _note_wrong_type(self, key: str, what: str) -> None:
        self.note(key, f"it is not {what}, and is left out")


def present(**values: t.Any) -> dict[str, t.Any]:
    """The values that are not None or an empty dictionary."""
    return {key: value for key, value in values.items() if value is not None and value != {}}


def merged(value: t.Any) -> t.Any:
    """Salt's list of mappings `[{a: 1}, {b: 2}]` as one mapping; any other value as it is."""
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        found: dict[str, t.Any] = {}
        for one in value:
            found.update(one)
        return found
    return value


def _bytes(text: str) -> int:
    """The bytes of a size, in MiB without a unit; 0 for a text that is no size."""
    found = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*(?:([kmgtpe])(ib|b)?)?\s*", text.lower())
    if not found:
        return 0
    number, letter, ending = found.groups()
    return int(float(number) * (1000 if ending == "b" else 1024) ** " kmgtpe".index(letter or "m"))
