# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entries of a list by their marks: found at once, however many there are."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element

Mark = t.Hashable  # one thing that an entry is known by: its name, its address


class Index:
    """Entries by their marks. Of two with the same mark the first counts."""

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
