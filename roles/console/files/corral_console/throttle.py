# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limit attempts: so many of a key within a time."""

from __future__ import annotations

import collections
import math
import time
import typing as t

__all__ = ["Throttle"]


class Throttle:
    """Not for use by several threads. Keys that are not seen any more are forgotten; at most `keys` are known."""

    def __init__(
        self, attempts: int, within_s: float, *, keys: int = 10_000, clock: t.Callable[[], float] = time.monotonic
    ) -> None:
        self._attempts, self._within_s, self._keys, self._clock = attempts, within_s, keys, clock
        self._known: collections.OrderedDict[str, collections.deque[float]] = collections.OrderedDict()

    def wait_s(self, key: str) -> int:
        """Seconds until the next attempt may be made; 0: now."""
        times = self._known.get(key)
        if times is None or len(times) < self._attempts:
            return 0
        return max(0, math.ceil(times[0] + self._within_s - self._clock()))

    def count(self, key: str) -> None:
        """An attempt is made."""
        times = self._known.setdefault(key, collections.deque(maxlen=self._attempts))
        now = self._clock()
        while times and times[0] <= now - self._within_s:
            times.popleft()
        times.append(now)
        self._known.move_to_end(key)
        if len(self._known) > self._keys:
            self._known.popitem(last=False)

    def uncount(self, key: str) -> None:
        """The last attempt does not count."""
        if times := self._known.get(key):
            times.pop()

    def forget(self, key: str) -> None:
        """Begin anew with a key."""
        self._known.pop(key, None)
