# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one place that knows the present: values by key, each with the version in which it last changed.

A reader names the version that it has and gets what changed since. So a slow reader costs nothing, skips what is
outdated, and loses nothing when it comes back.
"""

from __future__ import annotations

import collections
import dataclasses
import secrets
import threading
import typing as t

__all__ = ["Delta", "Store", "Value"]

Value = t.Mapping[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Delta:
    """What changed since a mark. With `reset`, the reader forgets all that it has first."""

    mark: str
    reset: bool
    values: dict[str, Value]
    gone: list[str]

    def __bool__(self) -> bool:
        return self.reset or bool(self.values or self.gone)


class Store:
    """Written by many threads, read by all; `remembered` removed keys are known to readers that come back."""

    def __init__(self, *, remembered: int = 10_000) -> None:
        self._lock = threading.Lock()
        self._epoch = secrets.token_hex(4)  # marks of an earlier run mean nothing in this one
        self._remembered = remembered
        self._version = 0
        self._forgotten = 0  # removals up to this version are not known any more
        self._removed = 0
        # In the order of their versions; None: removed.
        self._entries: collections.OrderedDict[str, tuple[int, Value | None]] = collections.OrderedDict()
        self._callbacks: list[t.Callable[[], None]] = []

    def subscribe(self, callback: t.Callable[[], None]) -> None:
        """Call it after each change, from the thread that makes the change."""
        self._callbacks.append(callback)

    def update(self, changes: t.Mapping[str, Value | None]) -> None:
        """Set values, or remove those that are None. A value that is as before is no change."""
        with self._lock:
            before = self._version
            for key, value in changes.items():
                self._set(key, value)
            self._forget()
            changed = self._version != before
        for callback in self._callbacks if changed else ():
            callback()

    def _set(self, key: str, value: Value | None) -> None:
        known = self._entries.get(key)
        if (known[1] if known else None) == value:
            return
        self._removed += (value is None) - (known is not None and known[1] is None)
        self._version += 1
        self._entries[key] = self._version, value
        self._entries.move_to_end(key)

    def _forget(self) -> None:
        if self._removed <= self._remembered:
            return
        removed = [(key, version) for key, (version, value) in self._entries.items() if value is None]
        for key, version in removed[: len(removed) - self._remembered // 2]:
            del self._entries[key]
            self._forgotten = version
            self._removed -= 1

    def get(self, key: str) -> Value | None:
        """One value, None where there is none."""
        with self._lock:
            return self._entries.get(key, (0, None))[1]

    def below(self, prefix: str) -> dict[str, Value]:
        """The values of all keys with that prefix."""
        with self._lock:
            return {
                key: value
                for key, (_version, value) in self._entries.items()
                if value is not None and key.startswith(prefix)
            }

    def keys(self) -> set[str]:
        """All keys, also those that readers who come back are told to be gone."""
        with self._lock:
            return set(self._entries)

    @property
    def mark(self) -> str:
        """Of the present."""
        return f"{self._epoch}.{self._version}"

    def since(self, mark: str | None) -> Delta:
        """What changed since a mark; all there is for a reader without one, or with one that is not known."""
        with self._lock:
            version = self._parsed(mark)
            if version is None:
                values = {key: value for key, (_version, value) in self._entries.items() if value is not None}
                return Delta(self.mark, True, values, [])
            delta = Delta(self.mark, False, {}, [])
            for key, (changed, value) in reversed(self._entries.items()):
                if changed <= version:
                    break
                if value is None:
                    delta.gone.append(key)
                else:
                    delta.values[key] = value
            return delta

    def _parsed(self, mark: str | None) -> int | None:
        epoch, _dot, version = (mark or "").partition(".")
        if epoch != self._epoch or not version.isdecimal() or not version.isascii():
            return None
        return int(version) if self._forgotten <= int(version[:20]) <= self._version else None
