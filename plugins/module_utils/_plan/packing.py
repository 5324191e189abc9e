# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Pack guests onto hosts. Pure.

Guests with the same needs are put one after the other: the hosts that they fit on are looked for once, and after each
guest only its host is looked at again. A guest that fits nowhere may have one smaller guest of the batch moved.
"""

from __future__ import annotations

import heapq
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._model.placement import Guest, Host, Placement, Policy
from ansible_collections.corral.virt.plugins.module_utils._plan.load import Load, Loads, Neighbours
from ansible_collections.corral.virt.plugins.module_utils._plan.rules import (
    dislikes,
    first_reason,
    lack,
    namesake,
    refusal,
)

__all__ = ["packed"]

Cost = t.Callable[[Load, Guest], float]
Size = t.Callable[[t.Sequence[float]], float]


def _skewed(load: Load, guest: Guest) -> float:
    return load.skew(guest) + 0.05 * load.cost(guest)


def _skew_after(load: Load, guest: Guest) -> float:
    return abs(
        (load.memory_mib + guest.memory_mib) / load.memory_capacity - (load.vcpus + guest.vcpus) / load.cpu_capacity
    )


def _first(_load: Load, _guest: Guest) -> float:
    return 0.0


def _smallest(shares: t.Iterable[float]) -> float:
    return -max(shares)


# How large a guest is by its shares of the biggest host, the largest comes first; and what it costs on a host. The
# first rule spreads guests evenly. The others are for those that remain: rules that keep memory and processors of a
# host alike pack most where both are scarce, none of them always; where the hosts are too small for all, the smallest
# first leave fewest, and nothing else is tried.
_EVENLY: tuple[Size, Cost] = (max, Load.cost)
_SMALLEST: tuple[tuple[Size, Cost], ...] = ((_smallest, _skewed), (_smallest, _first))
_RULES: tuple[tuple[Size, Cost], ...] = (
    _EVENLY,
    (sum, _skewed),
    (max, _skewed),
    (sum, _skew_after),
    (max, Load.skew),
    (sum, Load.skew),
    (max, _skew_after),
    (max, _first),
    *_SMALLEST,
)


def packed(
    guests: t.Sequence[Guest],
    hosts: t.Sequence[Host],
    policy: Policy,
    *,
    apart: t.Mapping[str, t.Collection[str]],
    last: t.Collection[str],
) -> dict[str, Placement]:
    """Placements by guest. `apart` are further groups by host; guests that come `last` take no room from the others."""
    empty = _loads(guests, hosts, policy, apart)
    hopeless = sum(not any(_may_take(load, guest) for load in empty.values()) for guest in guests)
    best: _Packing | None = None
    for size, cost in (_EVENLY, *_SMALLEST) if _exceed(guests, empty) else _RULES:
        packing = _Packing(_loads(guests, hosts, policy, apart), cost)
        for guest in _ordered(guests, empty, last, size):
            packing.choose(guest)
        if best is None or len(packing.left) < len(best.left):
            best = packing
        if len(best.left) <= hopeless:
            break
    return best.placements() if best else {}


def _exceed(guests: t.Sequence[Guest], loads: Loads) -> bool:
    """Whether all hosts together have too little for all of them."""
    open_loads = [load for load in loads.values() if load.host.maintenance is None]
    memory, cpu = (
        sum(max(0.0, left) for left in lefts)
        for lefts in ([load.memory_left for load in open_loads], [load.cpu_left for load in open_loads])
    )
    return sum(guest.memory_mib for guest in guests) > memory or sum(guest.vcpus for guest in guests) > cpu


def _loads(
    guests: t.Sequence[Guest], hosts: t.Sequence[Host], policy: Policy, apart: t.Mapping[str, t.Collection[str]]
) -> Loads:
    neighbours = Neighbours(hosts, guests)
    return {host.name: Load(host, policy, apart.get(host.name, ()), neighbours) for host in hosts}


def _may_take(load: Load, guest: Guest) -> bool:
    return guest.host in (None, load.host.name) and first_reason(load, guest) is None


def _ordered(guests: t.Iterable[Guest], loads: Loads, last: t.Collection[str], size: Size) -> list[Guest]:
    """The largest first; those of a group that stays together, and those with the same needs, one after the other."""
    memory = max((load.memory_capacity for load in loads.values()), default=1.0)
    cpu = max((load.cpu_capacity for load in loads.values()), default=1.0)
    needs = next(iter(loads.values())).neighbours.needs if loads else {}

    def key(guest: Guest) -> tuple[t.Any, ...]:
        word = min(guest.together, default="")
        together = needs.get(word, (guest.memory_mib, guest.vcpus))
        return (guest.name in last, -size((together[0] / memory, together[1] / cpu)), word, guest.needs, guest.name)

    return sorted(guests, key=key)


class _Choices:
    """The hosts that guests with these needs fit on, by what one costs there."""

    def __init__(self, guest: Guest, loads: Loads, cost: Cost) -> None:
        self.needs, self._guest, self._loads, self._cost = guest.needs, guest, loads, cost
        self._costs: dict[str, tuple[int, float]] = {}  # soft rules that are broken there come first
        names = loads if guest.host is None else [name for name in loads if name == guest.host]
        for name in names:
            self._look(name)
        self._heap = [(cost, name) for name, cost in self._costs.items()]
        heapq.heapify(self._heap)

    def _look(self, name: str) -> None:
        load = self._loads[name]
        self._costs.pop(name, None)
        if load.host.maintenance is None and lack(load, self._guest) is None:
            self._costs[name] = (dislikes(load, self._guest), self._cost(load, self._guest))

    def changed(self, name: str) -> None:
        """Look at that host again, where a guest was put."""
        self._look(name)
        if name in self._costs:
            heapq.heappush(self._heap, (self._costs[name], name))

    def best(self, guest: Guest) -> tuple[str | None, int]:
        """The host where the guest costs least, and how many there are."""
        barred = [name for name in self._costs if namesake(self._loads[name], guest)] if guest.uuid else []
        found, skipped = None, []
        while self._heap and found is None:
            cost, name = heapq.heappop(self._heap)
            if self._costs.get(name) != cost:
                continue  # it was looked at again since
            skipped.append((cost, name))
            if name not in barred:
                found = name
        for each in skipped:
            heapq.heappush(self._heap, each)
        return found, len(self._costs) - len(barred)


class _Packing:
    """Guests put on hosts one after the other, each where it costs least. `left` are those without a host."""

    def __init__(self, loads: Loads, cost: Cost) -> None:
        self._loads, self._cost = loads, cost
        self._domains = any(load.host.domain for load in loads.values())
        self._done: dict[str, Placement] = {}
        self.left: list[Guest] = []
        self._choices: _Choices | None = None
        self._refused: tuple[t.Any, ...] | None = None  # needs that nobody makes room for; until a guest is put

    def choose(self, guest: Guest) -> None:
        """Put the guest on a host."""
        # Where guests of such groups are counts on all hosts, and has changed with each of them.
        everywhere = guest.together or (guest.apart and self._domains)
        if self._choices is None or self._choices.needs != guest.needs or everywhere:
            self._choices = _Choices(guest, self._loads, self._cost)
        name, count = self._choices.best(guest)
        if name is None:
            self._squeeze_in(guest)
            return
        self._loads[name].put(guest)
        self._choices.changed(name)
        self._refused = None
        chosen = "the only one with room" if count == 1 else f"least loaded with it, of {count}"
        self._done[guest.name] = Placement(guest.name, name, "requested" if guest.host else chosen)

    def placements(self) -> dict[str, Placement]:
        """By guest; those without a host with the reasons."""
        refusals: dict[tuple[t.Any, ...], str] = {}
        for guest in self.left:
            key = (guest.needs, guest.name if guest.uuid else "")
            if key not in refusals:
                refusals[key] = refusal(guest, self._loads)
            self._done[guest.name] = Placement(guest.name, None, refusals[key])
        return self._done

    def _squeeze_in(self, guest: Guest) -> None:
        """Put the guest where a smaller one of the batch can go elsewhere, or leave it."""
        again = guest.needs == self._refused
        name = None if guest.host or guest.together or again else self._make_room(guest)
        if name is None:
            self.left.append(guest)
            self._refused = None if guest.uuid else guest.needs
            return
        self._choices = self._refused = None
        self._done[guest.name] = Placement(guest.name, name, "made room by placing a smaller new guest elsewhere")

    def _make_room(self, guest: Guest) -> str | None:
        """Move one guest of this batch to another host where that lets `guest` in."""
        most_memory = max((load.memory_left for load in self._loads.values()), default=0)
        most_cpu = max((load.cpu_left for load in self._loads.values()), default=0)
        for name in sorted(self._loads, key=lambda name: (-self._loads[name].memory_left, name)):
            load = self._loads[name]
            for other in sorted(load.batch.values(), key=lambda each: (each.memory_mib, each.name)):
                if other.host is not None or other.together or other.memory_mib > most_memory or other.vcpus > most_cpu:
                    continue
                if guest.memory_mib > load.memory_left + other.memory_mib or guest.vcpus > load.cpu_left + other.vcpus:
                    continue
                if self._exchanged(guest, other, name):
                    return name
        return None

    def _exchanged(self, guest: Guest, other: Guest, name: str) -> bool:
        """Whether the other guest went to another host, and this one took its place."""
        load, loads = self._loads[name], self._loads
        load.take(other)
        targets = [to for to in loads if to != name and first_reason(loads[to], other) is None]
        if not targets or first_reason(load, guest):
            load.put(other)
            return False
        to = min(targets, key=lambda to: (dislikes(loads[to], other), self._cost(loads[to], other), to))
        loads[to].put(other)
        load.put(guest)
        self._done[other.name] = Placement(other.name, to, f"made room for {guest.name} on {name}")
        return True
