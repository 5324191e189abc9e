# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pack guests onto hosts. Pure.

Guests with the same needs are placed one after the other: the hosts that take them are found once, and after each guest
only its host is updated. A guest that fits nowhere may have one smaller guest of the batch moved. If a guest remains,
the batch is packed again by other rules and in other orders.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._placement import plan_host_costs
from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import (
    Guest,
    Host,
    Placement,
    Policy,
)
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_host_costs import Choices, Cost, Fleet
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_host_load import Load, Neighbours
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_rules import refusal

Size = t.Callable[[t.Sequence[float]], float]


def _smallest(shares: t.Iterable[float]) -> float:
    return -max(shares)


# How large a guest is by its shares of the biggest host, the largest comes first; and what it costs on a host. The
# first rule spreads guests evenly. The others are for those that remain: rules that keep memory and processors of a
# host alike pack most where both are scarce, none of them always; where the hosts are too small for all, the smallest
# first leave fewest, and nothing else is tried. Then some rules are repeated, for large batches less often, with guests
# that were left further ahead each time.
_EVENLY: tuple[Size, Cost] = (max, plan_host_costs.evenly)
_SMALLEST: tuple[tuple[Size, Cost], ...] = ((_smallest, plan_host_costs.skewed), (_smallest, plan_host_costs.first))
_RULES: tuple[tuple[Size, Cost], ...] = (
    _EVENLY,
    (sum, plan_host_costs.skewed),
    (max, plan_host_costs.skewed),
    (sum, plan_host_costs.skew_after),
    (max, plan_host_costs.skew),
    (sum, plan_host_costs.skew),
    (max, plan_host_costs.skew_after),
    (max, plan_host_costs.first),
    *_SMALLEST,
)
_AGAIN = _RULES[1:6]
_ROUNDS, _MOST_PAIRS = 30, 300_000  # of a guest and a host
_URGENCY = 0.2  # by how much larger a guest counts for each time that it was left


def packed(
    guests: t.Sequence[Guest],
    hosts: t.Sequence[Host],
    policy: Policy,
    *,
    apart: t.Mapping[str, t.Collection[str]],
    last: t.Collection[str],
    rounds: int = _ROUNDS,
) -> dict[str, Placement]:
    """Placements by guest. `apart` are further groups by host; guests in `last` take no room from the others.

    Guests that remain under all rules come earlier in each of up to `rounds` further rounds.
    """
    empty = _fleet(guests, hosts, policy, apart)
    best: _Packing | None = None
    hopeless: int | None = None  # how many fit on no host even without the others
    urgent = collections.Counter[str]()
    rounds = min(rounds, _MOST_PAIRS // max(1, len(guests) * len(hosts)))
    for size, cost, counts in _attempts(rounds, exceed=_exceed(guests, empty)):
        packing = _Packing(_fleet(guests, hosts, policy, apart), cost)
        for guest in _ordered(guests, empty, last, size, urgent):
            packing.choose(guest)
        if hopeless is None:
            hopeless = sum(not empty.fitting(guest) for guest in packing.left)
        if best is None or len(packing.left) < len(best.left):
            best = packing
        if len(best.left) <= hopeless:
            break
        urgent.update(guest.name for guest in packing.left if counts)
    return best.placements() if best else {}


def _attempts(rounds: int, *, exceed: bool) -> t.Iterator[tuple[Size, Cost, bool]]:
    """The rules to try in order, and True if guests that remain come earlier in the next attempts."""
    if exceed:
        yield from ((size, cost, False) for size, cost in (_EVENLY, *_SMALLEST))
        return
    yield from ((size, cost, (size, cost) == _RULES[-1]) for size, cost in _RULES)
    for _round in range(rounds):
        yield from ((size, cost, True) for size, cost in _AGAIN)


def _exceed(guests: t.Sequence[Guest], fleet: Fleet) -> bool:
    """True if all hosts together have too little for all of these guests."""
    takers = [load for load in fleet.loads if load.host.maintenance is None]
    memory, cpu = (
        sum(max(0.0, left) for left in lefts)
        for lefts in ([load.memory_left for load in takers], [load.cpu_left for load in takers])
    )
    return sum(guest.memory_mib for guest in guests) > memory or sum(guest.vcpus for guest in guests) > cpu


def _fleet(
    guests: t.Sequence[Guest], hosts: t.Sequence[Host], policy: Policy, apart: t.Mapping[str, t.Collection[str]]
) -> Fleet:
    neighbours = Neighbours(hosts, guests)
    return Fleet({host.name: Load(host, policy, apart.get(host.name, ()), neighbours) for host in hosts})


def _ordered(
    guests: t.Iterable[Guest],
    fleet: Fleet,
    last: t.Collection[str],
    size: Size,
    urgent: t.Mapping[str, int],
) -> list[Guest]:
    """The guests, the largest first; urgent ones count as larger.

    Guests of one bundle, and those with the same needs, come one after the other.
    """
    memory = max((load.memory_capacity for load in fleet.loads), default=1.0)
    cpu = max((load.cpu_capacity for load in fleet.loads), default=1.0)
    groups = fleet.loads[0].neighbours.bundles if fleet.loads else {}

    def key(guest: Guest) -> tuple[t.Any, ...]:
        bundle = groups.get(min(guest.together, default=""))
        members, whole = (bundle.members, bundle.guest) if bundle else ((guest,), guest)
        waits = all(one.name in last for one in members)
        shares = (whole.memory_mib / memory, whole.vcpus / cpu)
        forward = 1 + _URGENCY * max(urgent[one.name] for one in members)
        return (waits, -size(shares) * forward, whole.name if bundle else "", guest.needs, guest.name)

    return sorted(guests, key=key)


class _Packing:
    """Puts guests on hosts one after the other, each at the lowest cost. `left` are those without a host."""

    def __init__(self, fleet: Fleet, cost: Cost) -> None:
        self._fleet, self._cost = fleet, cost
        self._done: dict[str, Placement] = {}
        self.left: list[Guest] = []
        self._choices: Choices | None = None
        self._refused: tuple[t.Any, ...] | None = None  # needs that nobody makes room for; until a guest is put

    def choose(self, guest: Guest) -> None:
        """Put the guest on a host, or add it to `left`."""
        choices = self._choices_of(guest)
        place = choices.best
        if place is None:
            self._squeeze_in(guest)
            return
        chosen = "the only host that fits" if choices.count == 1 else f"least loaded with it, of {choices.count}"
        self._note(guest, place, "requested" if guest.host else chosen)
        choices.put(guest)
        self._refused = None

    def _choices_of(self, guest: Guest) -> Choices:
        # Where guests of such groups are counts on all hosts, and has changed with each of them.
        everywhere = guest.together or (guest.apart and self._fleet.domains)
        known = self._choices
        if known is None or everywhere or known.key != self._fleet.key(guest) or known.best is None:
            known = self._choices = Choices(guest, self._fleet, self._cost)
        return known

    def _note(self, guest: Guest, place: int, why: str) -> None:
        self._done[guest.name] = Placement(guest.name, self._fleet.loads[place].host.name, why)

    def placements(self) -> dict[str, Placement]:
        """Placements by guest; those without a host have the reasons."""
        loads = {load.host.name: load for load in self._fleet.loads}
        refusals: dict[tuple[t.Any, ...], str] = {}
        for guest in self.left:
            key = self._fleet.key(guest)
            if key not in refusals:
                refusals[key] = refusal(guest, loads)
            self._done[guest.name] = Placement(guest.name, None, refusals[key])
        return self._done

    def _squeeze_in(self, guest: Guest) -> None:
        """Put the guest where a smaller one of the batch can move away, or add it to `left`."""
        key = self._fleet.key(guest)
        if guest.host or guest.together or key == self._refused or not self._make_room(guest):
            self.left.append(guest)
            self._refused = key
            return
        self._choices = self._refused = None

    def _make_room(self, guest: Guest) -> bool:
        """Move one guest of this batch to another host so that `guest` fits; True if that worked."""
        memory_left, cpu_left = self._fleet.memory_left, self._fleet.cpu_left
        most_memory, most_cpu = max(memory_left, default=0.0), max(cpu_left, default=0.0)
        for place in sorted(self._fleet.takers(guest), key=lambda one: (-memory_left[one], one)):
            need, cpu_need = guest.memory_mib - memory_left[place], guest.vcpus - cpu_left[place]
            others = [
                each
                for each in self._fleet.loads[place].batch.values()
                if need <= each.memory_mib <= most_memory and cpu_need <= each.vcpus <= most_cpu
                if each.host is None and not each.together
            ]
            for other in sorted(others, key=lambda each: (each.memory_mib, each.name)):
                if self._exchanged(guest, other, place):
                    return True
        return False

    def _exchanged(self, guest: Guest, other: Guest, place: int) -> bool:
        """Move `other` to another host, and put the guest in its place; True if that worked."""
        self._fleet.take(other, place)
        places = self._fleet.fitting(guest, [place]) and [one for one in self._fleet.fitting(other) if one != place]
        if not places:
            self._fleet.put(other, place)
            return False
        places = self._fleet.liked(other, places)
        costs = self._cost(self._fleet, float(other.memory_mib), float(other.vcpus), places)
        to = places[costs.index(min(costs))]
        self._fleet.put(other, to)
        self._fleet.put(guest, place)
        self._note(other, to, f"made room for {guest.name} on {self._fleet.loads[place].host.name}")
        self._note(guest, place, "made room by placing a smaller new guest elsewhere")
        return True
