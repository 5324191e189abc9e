# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The rules by which a host is refused for a guest: each returns a reason or None. Pure.

A reason is a pair: its kind, by which refusals are grouped, and its text.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils import _units
from ansible_collections.corral.virt.plugins.module_utils._model.placement import Guest, Host

__all__ = ["RULES", "Neighbours", "Reason", "Side", "dislikes", "mib"]

Reason = tuple[str, str]


class Side(t.Protocol):
    """The input of a rule: a host, its free resources, and the guests on all hosts."""

    host: Host
    neighbours: Neighbours

    @property
    def memory_left(self) -> float:
        """MiB."""

    @property
    def cpu_left(self) -> float:
        """vCPUs."""

    def disk_left(self, pool: str) -> float | None:
        """MiB; None if unknown."""

    def devices_left(self, device: str) -> int | None:
        """How many of the device are free; None if the host has none."""

    def holds_apart(self, word: str) -> bool:
        """Whether a guest of that `apart` group is on the host."""


class Neighbours:
    """Where the guests of each group are, over all hosts: `together` by word, `apart` by word and failure domain."""

    def __init__(self, hosts: t.Iterable[Host] = (), batch: t.Iterable[Guest] = ()) -> None:
        self.together: dict[str, dict[str, int]] = {}
        self.apart: dict[tuple[str, str], int] = {}
        for host in hosts:
            for word in host.together:
                self._count(self.together.setdefault(word, {}), host.name, 1)
            for word in host.apart if host.domain else ():
                self._count(self.apart, (word, host.domain), 1)
        self.needs: dict[str, tuple[int, int]] = {}  # memory and vCPUs of a group of the batch, all of it
        for guest in batch:
            for word in guest.together:
                memory, vcpus = self.needs.get(word, (0, 0))
                self.needs[word] = (memory + guest.memory_mib, vcpus + guest.vcpus)

    @staticmethod
    def _count(counts: dict[t.Any, int], key: t.Any, sign: int) -> None:
        counts[key] = counts.get(key, 0) + sign
        if not counts[key]:
            del counts[key]

    def count(self, guest: Guest, host: Host, sign: int) -> None:
        """Add a guest to a host (sign 1), or remove it (sign -1)."""
        for word in guest.together:
            self._count(self.together.setdefault(word, {}), host.name, sign)
        for word in guest.apart if host.domain else ():
            self._count(self.apart, (word, host.domain), sign)


# Fields that guests and hosts both have; a field that a host does not report (None) refuses no guest.
_PRESENT = (
    ("bridges", "has no bridge"),
    ("pools", "has no active storage pool"),
    ("networks", "has no active network"),
    ("machines", "does not provide machine type"),
    ("cpu_models", "does not provide CPU model"),
    ("groups", "is not in the group"),
)


def _present(side: Side, guest: Guest) -> Reason | None:
    for field, words in _PRESENT:
        wanted: frozenset[str] = getattr(guest, field)
        if wanted:
            offered: frozenset[str] | None = getattr(side.host, field)
            if offered is not None and not wanted <= offered:
                reason = f"{words} {', '.join(sorted(wanted - offered))}"
                return reason, reason
    return None


def _memory(side: Side, guest: Guest) -> Reason | None:
    if guest.memory_mib > side.memory_left:
        return "lacks memory", f"{mib(side.memory_left)} of memory left"
    return None


def _vcpus(side: Side, guest: Guest) -> Reason | None:
    if guest.vcpus > side.cpu_left:
        return "lacks vcpus", f"{max(0, int(side.cpu_left))} vcpus left"
    return None


def _disk(side: Side, guest: Guest) -> Reason | None:
    for pool, needed in guest.disks:
        left = side.disk_left(pool)
        if left is not None and needed > left:
            return f"lacks room in pool {pool}", f"{mib(left)} left in pool {pool}, of {mib(needed)} that it needs"
    return None


def _devices(side: Side, guest: Guest) -> Reason | None:
    for device in guest.devices if side.host.devices is not None else ():
        left = side.devices_left(device)
        if left is None:
            reason = f"has no device {device}"
            return reason, reason
        if left < guest.devices.count(device):
            return f"has device {device} in use", f"device {device} is in use"
    return None


def _versions(side: Side, guest: Guest) -> Reason | None:
    for program, oldest in guest.versions:
        found = side.host.versions.get(program)
        if found is not None and _numbers(found) < _numbers(oldest):
            return f"has {program} older than {oldest}", f"has {program} {found}, and it requires {oldest}"
    return None


def _numbers(version: str) -> list[int]:
    """A version to compare: `9.0.0` equals `9`, and `6.1.0-18-amd64` is newer than `6.1`."""
    numbers = [int(digits) for digits in re.findall(r"\d+", version)]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers


def _migrates(side: Side, guest: Guest) -> Reason | None:
    """A running guest stays within its migration group."""
    if guest.runs_within in (None, side.host.migration_group):
        return None
    reason = f"is not in migration group {guest.runs_within}" if guest.runs_within else "is in a migration group"
    return reason, f"{reason}, and the guest runs"


def _apart(side: Side, guest: Guest) -> Reason | None:
    for word in sorted(guest.apart):
        if side.holds_apart(word):
            reason = f"has a guest of group {word}, whose guests stay apart"
            return reason, reason
    return None


def _together(side: Side, guest: Guest) -> Reason | None:
    """The host has the others of the group; without others, it has room for all of the batch."""
    for word in sorted(guest.together):
        there = side.neighbours.together.get(word)
        if there and side.host.name not in there:
            reason = f"guests of group {word} stay together on {' and '.join(sorted(there))}"
            return reason, reason
        memory, vcpus = side.neighbours.needs.get(word, (0, 0))
        if not there and (memory > side.memory_left or vcpus > side.cpu_left):
            return f"lacks room for group {word}", f"no room for all of group {word} ({vcpus} vcpus, {mib(memory)})"
    return None


RULES: tuple[t.Callable[[Side, Guest], Reason | None], ...] = (
    _present,
    _versions,
    _migrates,
    _devices,
    _memory,
    _vcpus,
    _disk,
    _apart,
    _together,
)


def dislikes(side: Side, guest: Guest) -> int:
    """How many soft rules the host breaks: a preferred host, and another failure domain for guests that stay apart."""
    host, broken = side.host, 0
    if guest.prefer and not (host.name in guest.prefer or guest.prefer & (host.groups or frozenset())):
        broken += 1
    if guest.apart and host.domain:
        broken += any(side.neighbours.apart.get((word, host.domain)) for word in guest.apart)
    return broken


def mib(amount: float) -> str:
    """A size in MiB as a readable text."""
    return f"{max(0, int(amount))} MiB" if amount < 10240 else _units.bytes_text(int(amount) * 1024**2)
