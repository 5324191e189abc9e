# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which running guests should move so that hosts are loaded evenly. Pure.

Of the moves with the largest gain, the cheapest to copy comes first. No move relies on another: the room that a move
frees is not used before the next plan, so moves can be done in any order, or left out.
"""

from __future__ import annotations

import dataclasses
import math
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import Guest, Host, Policy
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_imbalance import (
    BY,
    Candidate,
    Cluster,
    Resident,
    counted,
)

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
