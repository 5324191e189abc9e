# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limit attempts: so many of a key within a time."""

from __future__ import annotations

import collections
import contextlib
import ipaddress
import math
import time
import typing as t

__all__ = ["Attempt", "Attempts", "Refused", "Throttle", "network_of"]

_WITHIN_S = 300.0
_TELL_S = 60.0
_OF_ONE, _OF_NAME = 20, 100  # one: an address, a device


class Throttle:
    """Not for use by several threads. Keys that are not seen any more are forgotten; at most `keys` are known."""

    def __init__(
        self, attempts: int, within_s: float, *, keys: int = 10_000, clock: t.Callable[[], float] = time.monotonic
    ) -> None:
        self._attempts, self._within_s, self._keys, self._clock = attempts, within_s, keys, clock
        self._known: collections.OrderedDict[str, collections.deque[float]] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

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


class Refused:
    """Attempts that were refused unseen: the first of a network is told, and then, once a minute, how many there were.

    Else everybody could make the server write, and wait for its disk, as often as they ask.
    """

    def __init__(self, *, keys: int = 10_000, clock: t.Callable[[], float] = time.monotonic) -> None:
        self._keys, self._clock = keys, clock
        # By network, when one was told, and how many there were since.
        self._told: collections.OrderedDict[str, tuple[float, int]] = collections.OrderedDict()

    def count(self, address: str) -> int:
        """How many there were since one was told, with this one; 0: it is not told now."""
        network, now = network_of(address), self._clock()
        told, since = self._told.get(network, (-math.inf, 0))
        tells = now - told >= _TELL_S
        self._told[network] = (now, 0) if tells else (told, since + 1)
        self._told.move_to_end(network)
        if len(self._told) > self._keys:
            self._told.popitem(last=False)
        return since + 1 if tells else 0


class Attempt(t.NamedTuple):
    """One login that is tried."""

    name: str
    address: str
    device: str = ""  # of a device that this user was logged in with before; else empty
    stamp: str = ""  # another one when the user's password changes


class Attempts:
    """Failures count for the address, and for the account. Who was there before has limits apart from all others'.

    So nobody can lock out a user at the devices and addresses that the user has logged in from.
    """

    def __init__(self, *, keys: int = 10_000, clock: t.Callable[[], float] = time.monotonic) -> None:
        self._by_address, self._by_name, self._by_device, self._by_place = self.limits = tuple(
            Throttle(attempts, _WITHIN_S, keys=keys, clock=clock) for attempts in (_OF_ONE, _OF_NAME, _OF_ONE, _OF_ONE)
        )
        self._keys = keys
        self.known: collections.OrderedDict[tuple[str, str], str] = collections.OrderedDict()

    def wait_s(self, attempt: Attempt, *, familiar: bool = False) -> int:
        """Seconds until it may be made; 0: now. `familiar`: the user has a session from that address."""
        return max(limit.wait_s(key) for limit, key in self._limits(attempt, familiar=familiar))

    def count(self, attempt: Attempt, *, familiar: bool = False) -> None:
        """It is made; as long as nobody knows how it ends, it counts as one that fails."""
        for limit, key in self._limits(attempt, familiar=familiar):
            limit.count(key)

    def succeeded(self, attempt: Attempt, *, familiar: bool = False) -> None:
        """It does not count, and its address is known from now on. What failed there goes on counting."""
        for limit, key in self._limits(attempt, familiar=familiar):
            limit.uncount(key)
        place = attempt.name, network_of(attempt.address)
        self.known[place] = attempt.stamp
        self.known.move_to_end(place)
        if len(self.known) > self._keys:
            self.known.popitem(last=False)

    def _limits(self, attempt: Attempt, *, familiar: bool) -> tuple[tuple[Throttle, str], ...]:
        network = network_of(attempt.address)
        if attempt.device:
            return ((self._by_device, attempt.device),)
        if familiar or (attempt.stamp and self.known.get((attempt.name, network)) == attempt.stamp):
            return ((self._by_place, f"{attempt.name} {network}"),)
        return (self._by_address, network), (self._by_name, attempt.name)


def network_of(address: str) -> str:
    """The address, or its network: IPv6 users have 2**64 addresses."""
    with contextlib.suppress(ValueError):
        parsed = ipaddress.ip_address(address.partition("%")[0])
        if isinstance(parsed, ipaddress.IPv6Address):
            return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))
    return address
