# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Which running guests should move so that hosts are loaded evenly. Pure.

Each move is judged by the two hosts that it changes, so that a cluster of any size is balanced alike. Of the moves that
gain most, the one that copies least for it comes first. No move relies on another: what leaves a host makes no room
there before the next plan, so they can be done in any order, and some of them not at all.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._plan.placement import Guest, Host, Load, Policy

__all__ = ["Move", "Resident", "imbalance", "moved", "plan"]

_CPU_WEIGHT = 0.5  # of a processor's load beside memory's, as in placement
_NEARLY_BEST = 0.5  # moves that gain at least this share of the best one are chosen from by what they cost
_LEAST_MOVES = 10


@dataclasses.dataclass(frozen=True)
class Resident:
    """A running guest, where it is, and how much its disks take."""

    guest: Guest
    host: str
    disk_mib: int = 0

    @property
    def cost_mib(self) -> int:
        """What would be copied at most: disks on shared storage are not."""
        return self.guest.memory_mib + self.disk_mib


@dataclasses.dataclass(frozen=True)
class Move:
    """A guest to move; `gain` is by how many percent points it lowers the imbalance of its two hosts."""

    guest: str
    source: str
    dest: str
    gain: float
    cost_mib: int


class _Side:
    """A host while moves are chosen: what it has, what is used, and its share of the squared imbalance."""

    def __init__(self, host: Host, policy: Policy, all_memory: float) -> None:
        self.load = Load(host, policy)
        self.cpu_room, self.memory_room = self.load.cpu_room, self.load.memory_room
        self.share = self.memory_room / all_memory
        self.vcpus, self.memory_mib = host.vcpus_used, host.memory_used_mib
        self.weight = 0.0

    def add(self, guest: Guest, sign: int) -> None:
        """Count a guest in, or out."""
        self.vcpus, self.memory_mib = self.vcpus + sign * guest.vcpus, self.memory_mib + sign * guest.memory_mib

    def size(self, guest: Guest) -> float:
        """How far this guest moves the load of this host, squared and weighted as the imbalance is."""
        return self.share * (
            (guest.memory_mib / self.memory_room) ** 2 + _CPU_WEIGHT * (guest.vcpus / self.cpu_room) ** 2
        )


@dataclasses.dataclass(frozen=True)
class _Candidate:
    """The best that can be done with a guest. `less` is what the squared imbalance of all hosts loses."""

    less: float
    dest: str


class _Cluster:
    """The hosts that count, weighed against the mean load of all."""

    def __init__(self, hosts: t.Sequence[Host], policy: Policy, tolerance: float) -> None:
        memory = sum(host.memory_mib * policy.memory_overcommit for host in hosts)
        self.sides = {host.name: _Side(host, policy, memory) for host in hosts}
        self._memory_mean = sum(host.memory_used_mib for host in hosts) / memory
        self._cpu_mean = sum(host.vcpus_used for host in hosts) / sum(side.cpu_room for side in self.sides.values())
        self._tolerance = (tolerance / 100) ** 2
        for side in self.sides.values():
            side.weight = self._weigh(side, 0, 0)

    def _weigh(self, side: _Side, vcpus: int, memory_mib: int) -> float:
        """The host's share of the squared imbalance, with that much more used."""
        memory = (side.memory_mib + memory_mib) / side.memory_room - self._memory_mean
        cpu = (side.vcpus + vcpus) / side.cpu_room - self._cpu_mean
        return side.share * (memory * memory + _CPU_WEIGHT * cpu * cpu)

    def imbalance(self) -> float:
        """In percent points."""
        return _percent(sum(side.weight for side in self.sides.values()))

    def best(self, guest: Guest, home: str, dests: t.Iterable[str]) -> _Candidate | None:
        """Where the guest gains most, of these hosts."""
        source = self.sides[home]
        left = source.weight - self._weigh(source, -guest.vcpus, -guest.memory_mib)
        found: _Candidate | None = None
        for name in dests:
            if name == home:
                continue
            dest = self.sides[name]
            less = left + dest.weight - self._weigh(dest, guest.vcpus, guest.memory_mib)
            if less <= (found.less if found else 0.0) or not self._is_worth(guest, source, dest, less):
                continue
            if dest.load.against(guest) is None:
                found = _Candidate(less, name)
        return found

    def _is_worth(self, guest: Guest, source: _Side, dest: _Side, less: float) -> bool:
        """Whether the two hosts differ, and come together by at least half of what so large a guest could do.

        A move that only exchanges their loads, or that evens one resource at the cost of the other, does not.
        """
        before, share = source.weight + dest.weight, source.share + dest.share
        if before < self._tolerance * share:
            return False
        size = source.size(guest) + dest.size(guest)
        after = max(0.0, before - less)
        overshoots = less < size * (1 - 1e-9)
        return not overshoots and before**0.5 - after**0.5 >= 0.5 * size**0.5

    def move(self, guest: Guest, source: str, dest: str) -> float:
        """Do it; by how much the imbalance of the two hosts falls, in percent points."""
        pair = (self.sides[source], self.sides[dest])
        share, before = sum(side.share for side in pair), sum(side.weight for side in pair)
        pair[1].load.put(guest)
        for side, sign in zip(pair, (-1, 1)):
            side.add(guest, sign)
            side.weight = self._weigh(side, 0, 0)
        return _percent(before / share) - _percent(sum(side.weight for side in pair) / share)


def imbalance(hosts: t.Iterable[Host], policy: Policy | None = None) -> float:
    """How far the load of hosts is from their mean, in percent points (a weighted standard deviation).

    0 when all are loaded alike.
    """
    counted = _counted(hosts)
    return _Cluster(counted, policy or Policy(), 0.0).imbalance() if counted else 0.0


def plan(
    hosts: t.Iterable[Host],
    residents: t.Iterable[Resident],
    *,
    policy: Policy | None = None,
    max_moves: int | None = None,
    tolerance: float = 5.0,
    stay: t.Collection[str] = (),
) -> list[Move]:
    """Moves, the first ones the most worth; hosts in maintenance neither give nor take.

    Two hosts whose loads differ from the mean by less than `tolerance` percent points are even. Guests that `stay`, or
    run in two places, are left alone. Without `max_moves`, as many moves as hosts, and at least ten.
    """
    counted = _counted(hosts)
    known = sorted(residents, key=lambda one: (one.guest.name, one.host))
    if not counted or not known:
        return []
    cluster = _Cluster(counted, policy or Policy(), tolerance)
    search = _Search(cluster, _movable(known, cluster.sides, stay))
    limit = max(_LEAST_MOVES, len(counted)) if max_moves is None else max_moves
    moves: list[Move] = []
    while len(moves) < limit and (move := search.next()):
        moves.append(move)
    return moves


def _movable(known: t.Sequence[Resident], hosts: t.Container[str], stay: t.Collection[str]) -> list[Resident]:
    seen: dict[str, int] = {}
    for one in known:
        seen[one.guest.name] = seen.get(one.guest.name, 0) + 1
    return [one for one in known if one.host in hosts and one.guest.name not in stay and seen[one.guest.name] == 1]


class _Search:
    """The best move of each guest. After a move, only what concerns its two hosts is weighed again."""

    def __init__(self, cluster: _Cluster, residents: t.Iterable[Resident]) -> None:
        self._cluster, self._names = cluster, sorted(cluster.sides)
        self._free = {one.guest.name: one for one in residents}
        self._best = {name: self._weighed(one, self._names) for name, one in self._free.items()}

    def next(self) -> Move | None:
        """Do the next move; None where no move is worth it."""
        found = [(best, self._free[name]) for name, best in self._best.items() if best]
        if not found:
            return None
        most = max(best.less for best, _one in found)
        near = [(best, one) for best, one in found if best.less >= _NEARLY_BEST * most]
        best, one = min(near, key=lambda each: (-_worth(*each), each[1].cost_mib, each[1].guest.name))
        del self._free[one.guest.name], self._best[one.guest.name]
        move = Move(
            one.guest.name, one.host, best.dest, self._cluster.move(one.guest, one.host, best.dest), one.cost_mib
        )
        self._weigh_again((one.host, best.dest))
        return move

    def _weigh_again(self, changed: tuple[str, str]) -> None:
        for name, one in self._free.items():
            best = self._best[name]
            if one.host in changed or (best and best.dest in changed):
                self._best[name] = self._weighed(one, self._names)
            elif (other := self._weighed(one, changed)) and (best is None or _rank(other) < _rank(best)):
                self._best[name] = other

    def _weighed(self, one: Resident, dests: t.Sequence[str]) -> _Candidate | None:
        return self._cluster.best(one.guest, one.host, dests)


def _worth(best: _Candidate, one: Resident) -> float:
    """What a move gains for each MiB that is copied; of nearly equal ones the cheaper counts."""
    return float(f"{best.less / max(1, one.cost_mib):.6g}")


def _rank(candidate: _Candidate) -> tuple[float, str]:
    return -candidate.less, candidate.dest


def moved(hosts: t.Iterable[Host], residents: t.Iterable[Resident], moves: t.Iterable[Move]) -> list[Host]:
    """The hosts once these moves are done."""
    guests = {one.guest.name: one.guest for one in residents}
    now = {host.name: host for host in hosts}
    for move in moves:
        guest = guests[move.guest]
        for name, sign in ((move.source, -1), (move.dest, 1)):
            host = now[name]
            vcpus, memory_mib = host.vcpus_used + sign * guest.vcpus, host.memory_used_mib + sign * guest.memory_mib
            now[name] = dataclasses.replace(host, vcpus_used=vcpus, memory_used_mib=memory_mib)
    return list(now.values())


def _counted(hosts: t.Iterable[Host]) -> list[Host]:
    usable = [host for host in hosts if host.maintenance is None and host.cpus > 0 and host.memory_mib > 0]
    return sorted(usable, key=lambda host: host.name)


def _percent(squares: float) -> float:
    return 100 * float(squares**0.5)
