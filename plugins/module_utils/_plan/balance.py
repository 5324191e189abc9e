# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Which running guests should move so that hosts are loaded evenly. Pure.

The best single move is taken again and again while it is worth it. No move relies on another: what leaves a host makes
no room there before the next plan, so they can be done in any order, and some of them not at all.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._plan.placement import Guest, Host, Load, Policy

__all__ = ["Move", "Resident", "imbalance", "plan"]

_CPU_WEIGHT = 0.5  # of a processor's load beside memory's, as in placement

Figures = dict[str, tuple[int, int]]  # vcpus and MiB in use, by host


@dataclasses.dataclass(frozen=True)
class Resident:
    """A running guest, where it is, and how much its disks take."""

    guest: Guest
    host: str
    disk_mib: int = 0

    @property
    def cost_mib(self) -> int:
        """What would travel at most: disks on shared storage do not."""
        return self.guest.memory_mib + self.disk_mib


@dataclasses.dataclass(frozen=True)
class Move:
    """A guest to move; `gain` is by how many percent points it lowers the imbalance."""

    guest: str
    source: str
    dest: str
    gain: float
    cost_mib: int


class _Scale:
    """Weighs the load of hosts against the mean of all."""

    def __init__(self, hosts: t.Sequence[Host], policy: Policy) -> None:
        self._rooms = {
            host.name: (host.cpus * policy.cpu_overcommit, host.memory_mib * policy.memory_overcommit) for host in hosts
        }
        self._cpus, self._memory = (sum(room[index] for room in self._rooms.values()) for index in (0, 1))
        self._means = (
            sum(host.vcpus_used for host in hosts) / self._cpus,
            sum(host.memory_used_mib for host in hosts) / self._memory,
        )

    def weigh(self, host: str, vcpus: int, memory_mib: int) -> float:
        """One host's share of the squared imbalance."""
        (cpu_room, memory_room), (cpu_mean, memory_mean) = self._rooms[host], self._means
        squares = (memory_mib / memory_room - memory_mean) ** 2 + _CPU_WEIGHT * (vcpus / cpu_room - cpu_mean) ** 2
        return float(memory_room / self._memory * squares)


def imbalance(hosts: t.Iterable[Host], policy: Policy | None = None) -> float:
    """How far the load of hosts is from their mean, in percent points (a weighted standard deviation).

    0 when all are loaded alike.
    """
    counted = _counted(hosts)
    if not counted:
        return 0.0
    scale = _Scale(counted, policy or Policy())
    return _percent(sum(scale.weigh(host.name, host.vcpus_used, host.memory_used_mib) for host in counted))


def plan(
    hosts: t.Iterable[Host],
    residents: t.Iterable[Resident],
    *,
    policy: Policy | None = None,
    max_moves: int = 10,
    min_gain: float = 1.0,
    stay: t.Collection[str] = (),
) -> list[Move]:
    """Moves, the best first; hosts in maintenance neither give nor take.

    Guests that `stay`, or run in two places, are left alone.
    """
    policy, counted = policy or Policy(), _counted(hosts)
    loads = {host.name: Load(host, policy) for host in counted}
    known = sorted(residents, key=lambda one: (one.guest.name, one.host))
    names = [one.guest.name for one in known]
    free = {
        one.guest.name: one
        for one in known
        if one.host in loads and one.guest.name not in stay and names.count(one.guest.name) == 1
    }
    if not free:
        return []
    scale = _Scale(counted, policy)
    figures: Figures = {host.name: (host.vcpus_used, host.memory_used_mib) for host in counted}
    moves: list[Move] = []
    while len(moves) < max_moves:
        best = _best(free.values(), loads, figures, scale)
        if best is None or best.gain < min_gain:
            break
        guest = free.pop(best.guest).guest
        loads[best.dest].put(guest)
        figures[best.source], figures[best.dest] = _moved(figures, best.source, best.dest, guest)
        moves.append(best)
    return moves


def _best(residents: t.Iterable[Resident], loads: t.Mapping[str, Load], figures: Figures, scale: _Scale) -> Move | None:
    """The move that gains most; of equals the cheapest, then by name."""
    weights = {host: scale.weigh(host, *figures[host]) for host in figures}
    now, found = sum(weights.values()), []
    for one in residents:
        for dest in sorted(loads):
            source, guest = one.host, one.guest
            if dest == source or loads[dest].against(guest) is not None:
                continue
            left, joined = _moved(figures, source, dest, guest)
            less = weights[source] + weights[dest] - scale.weigh(source, *left) - scale.weigh(dest, *joined)
            if less > 0:
                found.append(
                    Move(guest.name, source, dest, _percent(now) - _percent(max(0.0, now - less)), one.cost_mib)
                )
    return min(found, key=lambda move: (-round(move.gain, 6), move.cost_mib, move.guest, move.dest), default=None)


def _moved(figures: Figures, source: str, dest: str, guest: Guest) -> tuple[tuple[int, int], tuple[int, int]]:
    """The figures of both hosts afterwards."""
    left, joined = figures[source], figures[dest]
    return (left[0] - guest.vcpus, left[1] - guest.memory_mib), (joined[0] + guest.vcpus, joined[1] + guest.memory_mib)


def _counted(hosts: t.Iterable[Host]) -> list[Host]:
    usable = [host for host in hosts if host.maintenance is None and host.cpus > 0 and host.memory_mib > 0]
    return sorted(usable, key=lambda host: host.name)


def _percent(squares: float) -> float:
    return 100 * float(squares**0.5)
