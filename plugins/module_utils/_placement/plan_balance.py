# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How unevenly hosts are loaded, and which running guests should move so that they are loaded evenly. Pure."""

from __future__ import annotations

import collections
import dataclasses
import math
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


_NEARLY_BEST = 0.5  # among moves with at least this share of the best gain, the cheapest one wins


@dataclasses.dataclass(frozen=True)
class SuggestedMove:
    """A guest to move; `gain` is how many percent points it lowers the imbalance of its two hosts by.

    `mends` is the `apart` group that the move repairs, if two of its guests share the source.
    """

    guest: str
    source: str
    dest: str
    gain: float
    cost_mib: int
    mends: str = ""


def broken(residents: t.Iterable[Resident]) -> dict[tuple[str, str], list[str]]:
    """Guests that must stay apart but share a host, by host and group."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in residents:
        for word in one.guest.apart:
            found.setdefault((one.host, word), []).append(one.guest.name)
    return {key: sorted(names) for key, names in sorted(found.items()) if names[1:]}


def plan(
    hosts: t.Iterable[Host],
    residents: t.Iterable[Resident],
    *,
    policy: Policy | None = None,
    max_moves: int | None = None,
    tolerance: float = 5.0,
    stay: t.Collection[str] = (),
    by: t.Collection[str] = BY,
) -> list[SuggestedMove]:
    """Moves, the most valuable first; hosts in maintenance are left out.

    Moves that part guests of one `apart` group come before all others, at any cost. Load is what `by` names. Two hosts
    whose loads differ from the mean by less than `tolerance` percent points are even. Guests that `stay`, run in two
    places, use a device of their host, or belong to a `together` group are left alone. Without `max_moves`, all
    worthwhile moves: a second plan has none.
    """
    usable = counted(hosts)
    known = sorted(residents, key=lambda one: (one.guest.name, one.host))
    if not usable:
        return []
    cluster = Cluster(usable, policy or Policy(), tolerance, by, known)
    limit = len(known) if max_moves is None else max_moves
    movable = _movable(known, cluster.hosts, stay)
    moves = _parted(cluster, known, movable, limit)
    gone = {move.guest for move in moves}
    search = _Search(cluster, [one for one in movable if one.guest.name not in gone])
    while len(moves) < limit and (move := search.next()):
        moves.append(move)
    return moves


def _parted(
    cluster: Cluster, known: t.Sequence[Resident], movable: t.Sequence[Resident], limit: int
) -> list[SuggestedMove]:
    """Moves that leave one guest of each `apart` group on a host; the guests that are cheapest to copy move."""
    free = {one.guest.name: one for one in movable}
    moves: list[SuggestedMove] = []
    for (host, word), names in broken(known).items():
        left = [name for name in names if name not in {move.guest for move in moves}]
        cheapest = sorted((free[name] for name in left if name in free), key=lambda one: (one.cost_mib, one.guest.name))
        for one in cheapest:
            if len(left) < 2 or len(moves) >= limit:
                break
            best = cluster.least_bad(one)
            if best is not None:
                gain = cluster.move(one, best.dest)
                moves.append(SuggestedMove(one.guest.name, host, best.dest, gain, one.cost_mib, word))
                left.remove(one.guest.name)
    return moves


def _movable(known: t.Sequence[Resident], hosts: t.Container[str], stay: t.Collection[str]) -> list[Resident]:
    seen: dict[str, int] = {}
    for one in known:
        seen[one.guest.name] = seen.get(one.guest.name, 0) + 1
    return [
        one
        for one in known
        if one.host in hosts and one.guest.name not in stay and seen[one.guest.name] == 1 and not _is_bound(one.guest)
    ]


def _is_bound(guest: Guest) -> bool:
    """True if a guest belongs to a `together` group, or uses a host device, which prevents live migration."""
    return bool(guest.together or guest.devices)


class _Search:
    """The best move of each guest. After a move, only moves that concern its two hosts are computed again.

    A guest whose best destination was one of them now gains no more than before: its exact best move is computed
    when it could come next.
    """

    def __init__(self, cluster: Cluster, residents: t.Iterable[Resident]) -> None:
        self._cluster, self._names = cluster, sorted(cluster.hosts)
        self._free = {one.guest.name: one for one in residents}
        found = {name: self._weighed(one, self._names) for name, one in self._free.items()}
        self._best = {name: best for name, best in found.items() if best}
        self._bounds: set[str] = set()  # guests of which `_best` is only a limit

    def next(self) -> SuggestedMove | None:
        """Make the next move and return it; None if no move is worthwhile."""
        most = self._first(0.0, lambda name: -self._best[name].less)
        if most is None:
            return None
        name = self._first(_NEARLY_BEST * self._best[most].less, self._price_rank) or most
        one, best = self._free.pop(name), self._best.pop(name)
        move = SuggestedMove(name, one.host, best.dest, self._cluster.move(one, best.dest), one.cost_mib)
        self._weigh_again((one.host, best.dest))
        return move

    def _price_rank(self, name: str) -> tuple[float, int, str]:
        one = self._free[name]
        return -_gain_per_mib(self._best[name], one), one.cost_mib, name

    def _first(self, least: float, key: t.Callable[[str], t.Any]) -> str | None:
        """The first guest by `key` with a gain of at least `least`. The key only grows when a bound becomes exact."""
        found: tuple[t.Any, str] | None = None
        for limit, name in sorted((key(name), name) for name, best in self._best.items() if best.less >= least):
            if found and found <= (limit, name):
                break
            if name in self._bounds:
                self._weigh_exactly(name)
            if name in self._best and self._best[name].less >= least:
                this = (key(name), name)
                found = min(found, this) if found else this
        return found[1] if found else None

    def _weigh_exactly(self, name: str) -> None:
        self._bounds.discard(name)
        best = self._weighed(self._free[name], self._names)
        if best:
            self._best[name] = best
        else:
            self._best.pop(name, None)

    def _weigh_again(self, changed: tuple[str, str]) -> None:
        for name, one in self._free.items():
            if one.host in changed:
                self._weigh_exactly(name)
                continue
            best, other = self._best.get(name), self._weighed(one, changed)
            if other and (best is None or other.rank < best.rank):
                self._best[name] = other
                self._bounds.discard(name)
            elif best and best.dest in changed:
                self._bounds.add(name)

    def _weighed(self, one: Resident, dests: t.Sequence[str]) -> Candidate | None:
        return self._cluster.best(one, dests)


def _gain_per_mib(best: Candidate, one: Resident) -> float:
    """The gain for each copied MiB, to six digits: of nearly equal moves, the cheaper one comes first."""
    gain = best.less / max(1, one.cost_mib)  # above zero, as each candidate's
    return round(gain, 5 - math.floor(math.log10(gain)))


def moved(hosts: t.Iterable[Host], residents: t.Iterable[Resident], moves: t.Iterable[SuggestedMove]) -> list[Host]:
    """The hosts after these moves."""
    guests = {one.guest.name: one.guest for one in residents}
    now = {host.name: host for host in hosts}
    for move in moves:
        guest = guests[move.guest]
        for name, sign in ((move.source, -1), (move.dest, 1)):
            host = now[name]
            vcpus, memory_mib = host.vcpus_used + sign * guest.vcpus, host.memory_used_mib + sign * guest.memory_mib
            now[name] = dataclasses.replace(host, vcpus_used=vcpus, memory_used_mib=memory_mib)
    return list(now.values())
