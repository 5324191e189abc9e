# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How unevenly hosts are loaded, and how moves change that. Pure.

Each move is judged by the two hosts that it changes, so that a cluster of any size is balanced alike.
"""

from __future__ import annotations

import collections
import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import Guest, Host, Policy
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_host_load import Load
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_rules import against

_WEIGHTS = {"memory": 1.0, "cpu": 0.5, "guests": 0.5}  # the first two as in placement
BY = ("memory", "vcpus")  # the default measures of load


@dataclasses.dataclass(frozen=True)
class Resident:
    """A running guest, its host, and its disk size."""

    guest: Guest
    host: str
    disk_mib: int = 0
    cpu_use: float = 0.0  # processors that it keeps busy

    @property
    def cost_mib(self) -> int:
        """MiB to copy at most: disks on shared storage are not copied."""
        return self.guest.memory_mib + self.disk_mib


class _Scale:
    """The weights of memory, allotted or used processors, and guests in the load.

    Each guest counts as an average one: the memory of all guests divided by their number.
    """

    def __init__(self, by: t.Collection[str], residents: t.Sequence[Resident]) -> None:
        self.guest_mib = sum(one.guest.memory_mib for one in residents) / max(1, len(residents))
        self.use = "cpu_use" in by
        self.memory = self.cpu = self.guests = 0.0
        # What alone counts weighs 1.
        if "memory" in by:
            self.memory = _WEIGHTS["memory"]
        if self.use or "vcpus" in by:
            self.cpu = _WEIGHTS["cpu"] if self.memory else 1.0
        if "guests" in by:
            self.guests = _WEIGHTS["guests"] if self.memory or self.cpu else 1.0

    def weighted(self, memory: float, cpu: float, guests: float) -> float:
        """The weighted sum of a host's squared shares."""
        return self.memory * memory * memory + self.cpu * cpu * cpu + self.guests * guests * guests

    def cpu_of(self, one: Resident) -> float:
        """A guest's processors: busy ones, or its vCPUs."""
        return one.cpu_use if self.use else one.guest.vcpus


class _WeighedHost:
    """A host while moves are chosen: capacity, usage, and its share of the squared imbalance."""

    def __init__(self, host: Host, policy: Policy, all_memory: float, scale: _Scale, cpu: float, guests: int) -> None:
        self.load, self._scale = Load(host, policy), scale
        self.memory_capacity = self.load.memory_capacity
        self.cpu_capacity = float(host.cpus) if scale.use else self.load.cpu_capacity
        self.share = self.memory_capacity / all_memory
        self.cpu, self.memory_mib, self.guests = cpu, host.memory_used_mib, guests
        self.weight = 0.0

    def add(self, one: Resident, sign: int) -> None:
        """Add (sign 1) or remove (sign -1) a guest."""
        self.cpu += sign * self._scale.cpu_of(one)
        self.memory_mib += sign * one.guest.memory_mib
        self.guests += sign

    def size(self, one: Resident) -> float:
        """How far this guest changes the load of this host, squared and weighted as the imbalance is."""
        memory, cpu = one.guest.memory_mib / self.memory_capacity, self._scale.cpu_of(one) / self.cpu_capacity
        guests = self._scale.guest_mib / self.memory_capacity
        return self.share * self._scale.weighted(memory, cpu, guests)


@dataclasses.dataclass(frozen=True)
class Candidate:
    """The best move of a guest. `less` is by how much it lowers the squared imbalance of all hosts."""

    less: float
    dest: str

    @property
    def rank(self) -> tuple[float, str]:
        """A sort key, the best candidate first."""
        return -self.less, self.dest


class Cluster:
    """The hosts that take part, weighed against the mean load of all."""

    def __init__(
        self,
        hosts: t.Sequence[Host],
        policy: Policy,
        tolerance: float,
        by: t.Collection[str],
        residents: t.Sequence[Resident],
    ) -> None:
        scale = _Scale(by, residents)
        memory = sum(host.memory_mib * policy.memory_overcommit for host in hosts)
        used, counts = _used(residents), collections.Counter(one.host for one in residents)
        cpu = {host.name: used.get(host.name, 0.0) if scale.use else float(host.vcpus_used) for host in hosts}
        self._scale = scale
        self.hosts = {
            host.name: _WeighedHost(host, policy, memory, scale, cpu[host.name], counts[host.name]) for host in hosts
        }
        self._guests_mean = sum(counts[name] for name in self.hosts) * scale.guest_mib / memory
        self._memory_mean = sum(host.memory_used_mib for host in hosts) / memory
        self._cpu_mean = sum(cpu.values()) / sum(host.cpu_capacity for host in self.hosts.values())
        self._tolerance = (tolerance / 100) ** 2
        for host in self.hosts.values():
            host.weight = self._weigh(host, 0, 0, 0)

    def _weigh(self, host: _WeighedHost, cpu: float, memory_mib: int, guests: int) -> float:
        """The host's share of the squared imbalance, with these additional amounts."""
        memory = (host.memory_mib + memory_mib) / host.memory_capacity - self._memory_mean
        cpu = (host.cpu + cpu) / host.cpu_capacity - self._cpu_mean
        count = (host.guests + guests) * self._scale.guest_mib / host.memory_capacity - self._guests_mean
        return host.share * self._scale.weighted(memory, cpu, count)

    def imbalance(self) -> float:
        """The imbalance of the cluster in percent points."""
        return _percent(sum(host.weight for host in self.hosts.values()))

    def best(self, one: Resident, dests: t.Iterable[str]) -> Candidate | None:
        """The host in `dests` with the largest gain; None if no move is worthwhile."""
        found: Candidate | None = None
        most, source, left = 0.0, self.hosts[one.host], self._left(one)
        cpu, memory_mib = self._scale.cpu_of(one), one.guest.memory_mib
        for name in dests:
            dest = self.hosts[name]
            if name == one.host or left + dest.weight <= most:  # no more than with all of its weight
                continue
            less = left + dest.weight - self._weigh(dest, cpu, memory_mib, 1)
            if less <= most or not self._is_worthwhile(one, source, dest, less):
                continue
            if against(dest.load, one.guest) is None:
                found, most = Candidate(less, name), less
        return found

    def least_bad(self, one: Resident) -> Candidate | None:
        """The host whose balance suffers least, of all that can take the guest; None if none can."""
        cpu, memory_mib, left = self._scale.cpu_of(one), one.guest.memory_mib, self._left(one)
        found = [
            Candidate(left + host.weight - self._weigh(host, cpu, memory_mib, 1), name)
            for name, host in self.hosts.items()
            if name != one.host and not against(host.load, one.guest)
        ]
        return min(found, key=lambda candidate: candidate.rank, default=None)

    def _left(self, one: Resident) -> float:
        """By how much the squared imbalance of the source falls without the guest."""
        source = self.hosts[one.host]
        return source.weight - self._weigh(source, -self._scale.cpu_of(one), -one.guest.memory_mib, -1)

    def _is_worthwhile(self, one: Resident, source: _WeighedHost, dest: _WeighedHost, less: float) -> bool:
        """True if the two hosts differ, and approach each other by at least half of what such a guest could achieve.

        A move that only exchanges their loads, or that evens one resource at the cost of the other, does not.
        """
        before, share = source.weight + dest.weight, source.share + dest.share
        if before < self._tolerance * share:
            return False
        size = source.size(one) + dest.size(one)
        after = max(0.0, before - less)
        overshoots = less < size * (1 - 1e-9)
        return not overshoots and before**0.5 - after**0.5 >= 0.5 * size**0.5

    def move(self, one: Resident, dest: str) -> float:
        """Move the guest; returns how many percent points the imbalance of the two hosts falls by."""
        pair = (self.hosts[one.host], self.hosts[dest])
        share, before = sum(host.share for host in pair), sum(host.weight for host in pair)
        pair[1].load.put(one.guest)
        for host, sign in zip(pair, (-1, 1)):
            host.add(one, sign)
            host.weight = self._weigh(host, 0, 0, 0)
        return _percent(before / share) - _percent(sum(host.weight for host in pair) / share)


def imbalance(
    hosts: t.Iterable[Host],
    policy: Policy | None = None,
    *,
    by: t.Collection[str] = BY,
    residents: t.Iterable[Resident] = (),
) -> float:
    """How far the load of hosts is from their mean, in percent points (a weighted standard deviation).

    0 if all are loaded alike. `residents` are required if `by` has their usage or number.
    """
    usable = counted(hosts)
    return Cluster(usable, policy or Policy(), 0.0, by, list(residents)).imbalance() if usable else 0.0


def _used(residents: t.Iterable[Resident]) -> dict[str, float]:
    used: dict[str, float] = {}
    for one in residents:
        used[one.host] = used.get(one.host, 0.0) + one.cpu_use
    return used


def counted(hosts: t.Iterable[Host]) -> list[Host]:
    """Hosts with capacity that are not in maintenance, by name."""
    usable = [host for host in hosts if host.maintenance is None and host.has_capacity]
    return sorted(usable, key=lambda host: host.name)


def _percent(squares: float) -> float:
    return 100 * float(squares**0.5)
