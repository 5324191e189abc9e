# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All hosts during placement: which take a guest, and at what cost. Pure.

Loads are kept in columns for speed: each of ten thousand guests is compared with a thousand hosts.
"""

from __future__ import annotations

import math
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import Guest
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_host_load import Load, Loads
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_rules import (
    FIXED,
    FIXED_FIELDS,
    dislikes,
    namesake,
    of_few,
)


class Fleet:
    """Hosts by their place in the order of their names."""

    def __init__(self, loads: Loads) -> None:
        self.loads: t.Sequence[Load] = [loads[name] for name in sorted(loads)]
        self.domains = any(load.host.domain for load in self.loads)
        self.memory_capacity = [load.memory_capacity for load in self.loads]
        self.per_mib = [1 / load.memory_capacity for load in self.loads]
        self.per_vcpu = [1 / load.cpu_capacity for load in self.loads]
        self.memory_left = [load.memory_left for load in self.loads]
        self.cpu_left = [load.cpu_left for load in self.loads]
        self.memory_share = [load.memory_mib / load.memory_capacity for load in self.loads]
        self.cpu_share = [load.vcpus / load.cpu_capacity for load in self.loads]
        # Of the cost that spreads guests evenly: what grows with a guest, and what grows with its square.
        self.cpu_weight = [0.5 * load.memory_capacity / load.cpu_capacity**2 for load in self.loads]
        self.memory_pull = [2 * share for share in self.memory_share]
        self.cpu_pull = [2 * load.vcpus * weight for load, weight in zip(self.loads, self.cpu_weight)]
        self._fixed: dict[tuple[t.Any, ...], list[int]] = {}
        self._names = {name for load in self.loads for name in load.host.guests}

    def _look(self, place: int) -> None:
        load = self.loads[place]
        self.memory_left[place], self.cpu_left[place] = load.memory_left, load.cpu_left
        self.memory_share[place] = load.memory_mib / load.memory_capacity
        self.cpu_share[place] = load.vcpus / load.cpu_capacity
        self.memory_pull[place], self.cpu_pull[place] = (
            2 * self.memory_share[place],
            2 * load.vcpus * self.cpu_weight[place],
        )

    def put(self, guest: Guest, place: int) -> None:
        """Add the guest to the load of the host at that place."""
        self.loads[place].put(guest)
        self._look(place)

    def take(self, guest: Guest, place: int) -> None:
        """Remove the guest from the load of the host at that place."""
        self.loads[place].take(guest)
        self._look(place)

    def key(self, guest: Guest) -> tuple[t.Any, ...]:
        """A key, equal for guests that fit on the same hosts."""
        return guest.needs, guest.name if guest.uuid and guest.name in self._names else ""

    def fitting(self, guest: Guest, places: t.Sequence[int] | None = None) -> list[int]:
        """Places of the hosts that can take the guest now, of these places or of all."""
        memory_left, cpu_left, memory, vcpus = self.memory_left, self.cpu_left, guest.memory_mib, guest.vcpus
        places = self.takers(guest) if places is None else places
        found = [one for one in places if memory_left[one] >= memory and cpu_left[one] >= vcpus]
        for rule in of_few(guest):
            found = [one for one in found if rule(self.loads[one], guest) is None]
        if guest.uuid and guest.name in self._names:
            found = [one for one in found if namesake(self.loads[one], guest) is None]
        return found

    def takers(self, guest: Guest) -> list[int]:
        """Places of the hosts that would take the guest if they had room."""
        key = tuple(getattr(guest, field) for field in FIXED_FIELDS)
        if key not in self._fixed:
            self._fixed[key] = [
                place
                for place, load in enumerate(self.loads)
                if load.host.maintenance is None
                and guest.host in (None, load.host.name)
                and not any(rule(load, guest) for rule in FIXED)
            ]
        return self._fixed[key]

    def liked(self, guest: Guest, places: list[int]) -> list[int]:
        """The places among these that violate the fewest preferences of the guest."""
        if not guest.prefer and not (guest.apart and self.domains):
            return places
        broken = [dislikes(self.loads[place], guest) for place in places]
        least = min(broken, default=0)
        return [place for place, count in zip(places, broken) if count == least]


Cost = t.Callable[[Fleet, float, float, t.Sequence[int]], "list[float]"]


def evenly(fleet: Fleet, memory: float, vcpus: float, places: t.Sequence[int]) -> list[float]:
    """By how much a guest raises the weighted sum of squared loads; memory counts twice as much as processors."""
    had, add, used, more = fleet.memory_pull, fleet.per_mib, fleet.cpu_pull, fleet.cpu_weight
    return [memory * (had[one] + memory * add[one]) + vcpus * (used[one] + vcpus * more[one]) for one in places]


def skew(fleet: Fleet, memory: float, vcpus: float, places: t.Sequence[int]) -> list[float]:
    """By how much a guest makes the hosts' shares of used memory and processors differ more.

    If both are scarce, this avoids leaving one that no guest can use.
    """
    now = [fleet.memory_share[one] - fleet.cpu_share[one] for one in places]
    more = [memory * fleet.per_mib[one] - vcpus * fleet.per_vcpu[one] for one in places]
    return [fleet.memory_capacity[one] * own * (2 * was + own) for one, was, own in zip(places, now, more)]


def skewed(fleet: Fleet, memory: float, vcpus: float, places: t.Sequence[int]) -> list[float]:
    """The skew, and a small part of the load."""
    costs = zip(skew(fleet, memory, vcpus, places), evenly(fleet, memory, vcpus, places))
    return [apart + 0.05 * load for apart, load in costs]


def skew_after(fleet: Fleet, memory: float, vcpus: float, places: t.Sequence[int]) -> list[float]:
    """The difference of a host's shares of used memory and processors with the guest."""
    return [
        abs(fleet.memory_share[one] + memory * fleet.per_mib[one] - fleet.cpu_share[one] - vcpus * fleet.per_vcpu[one])
        for one in places
    ]


def first(_fleet: Fleet, _memory: float, _vcpus: float, places: t.Sequence[int]) -> list[float]:
    """A cost of 0 for all hosts: the first one is chosen."""
    return [0.0] * len(places)


class Choices:
    """The hosts that take guests with the same needs, and the cost on each."""

    def __init__(self, guest: Guest, fleet: Fleet, cost: Cost) -> None:
        self.key = fleet.key(guest)
        self._fleet, self._cost = fleet, cost
        places = fleet.fitting(guest)
        self.count = len(places)
        self._places = fleet.liked(guest, places)
        self._costs = cost(fleet, float(guest.memory_mib), float(guest.vcpus), self._places)

        self._first = self._least()

    def _least(self) -> int:
        least = min(self._costs, default=math.inf)
        return -1 if least == math.inf else self._costs.index(least)

    @property
    def best(self) -> int | None:
        """The place at which the guest costs least; None if no host takes it."""
        return None if self._first < 0 else self._places[self._first]

    def put(self, guest: Guest) -> None:
        """Put the guest at the best place, and update the cost there."""
        place = self._places[self._first]
        self._fleet.put(guest, place)
        again = self._fleet.fitting(guest, [place])
        costs = self._cost(self._fleet, float(guest.memory_mib), float(guest.vcpus), again)
        self._costs[self._first] = costs[0] if costs else math.inf
        self.count -= not costs
        self._first = self._least()
