# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which disks of a pool move to which other pools, what stays, and what must not be so. Pure."""

from __future__ import annotations

import collections
import dataclasses
import os.path
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems, refuse_all
from ansible_collections.corral.virt.plugins.module_utils._disk_move import plan_disk_move, plan_disk_place
from ansible_collections.corral.virt.plugins.module_utils._disk_move.plan_disk_move import Mark, MoveHost, MoveSpec
from ansible_collections.corral.virt.plugins.module_utils._disk_move.plan_disk_place import DiskFile, DiskPlace
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_disk
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory


@dataclasses.dataclass(frozen=True)
class DrainSpec:
    """What is asked for."""

    pool: str
    to: tuple[str, ...]
    movable_only: bool = False


class DrainHost(MoveHost, t.Protocol):
    """The host of the pools."""

    def guests(self) -> tuple[FoundGuest, ...]:
        """All guests."""

    def files(self, pool: str) -> dict[str, int]:
        """Paths of the volumes of a pool, with the bytes that they take."""

    def which(self, path: str) -> t.Hashable:
        """What tells a file or device from others, whatever its path; None if there is none."""

    def storage(self, pool: PoolDirectory) -> t.Hashable:
        """What the volumes of a pool take their room from: the number of a filesystem, or a volume group."""


class PoolMove(t.NamedTuple):
    """One disk that moves, or whose move is to be finished."""

    guest: str
    disk: str
    pool: str  # that it moves to
    path: str  # where it is
    size_bytes: int
    goes: bool  # whether the file is deleted then
    to: str = ""  # where it will be


class Left(t.NamedTuple):
    """A file that stays in the pool."""

    path: str
    size_bytes: int
    why: str


@dataclasses.dataclass(frozen=True)
class DrainPlan:
    """The disks that move, the largest first; why others cannot; and the files that stay when all have moved."""

    moves: tuple[PoolMove, ...]
    refused: tuple[VirtError, ...]
    left: tuple[Left, ...]


class _Disk(t.NamedTuple):
    """A disk that leaves the pool, or has left it in a run that was interrupted."""

    guest: FoundGuest
    name: str
    begun: str | None  # the pool to which an interrupted run has begun to move it
    path: str
    format: str
    file: DiskFile | None = None
    is_seed: bool = False

    @property
    def size_bytes(self) -> int:
        """What the disk takes now; nothing if only the end of its move is left to do."""
        return self.file.allocated_bytes if self.file else 0


def checked(params: t.Mapping[str, t.Any]) -> DrainSpec:
    """The options; raises BadInput with every problem."""
    problems = Problems([] if params["pool"] else ["pool: must not be empty"])
    if not params["to"]:
        problems.found.append("to: must name a pool")
    for name in sorted(set(params["to"])):
        if name == params["pool"]:
            problems.found.append(f"to: {name} is the pool that is to be drained; name another one")
        elif params["to"].count(name) > 1:
            problems.found.append(f"to: names {name} more than once")
    problems.found += plan_disk_move.check_limits(params)
    problems.refuse()
    return DrainSpec(params["pool"], tuple(params["to"]), params["movable_only"])


def plan(spec: DrainSpec, host: DrainHost) -> DrainPlan:
    """The plan; raises with all problems at once, unless only those disks shall move that can."""
    pool, *goals = _pools(spec, host)
    disks = sorted(_disks(pool, goals, host), key=lambda one: (-one.size_bytes, one.guest.name, one.name))
    promised: dict[t.Hashable, int] = collections.defaultdict(int)  # bytes, by what they are taken from
    moves, refused = list[PoolMove](), [*_by_other_paths(spec, pool, host)]
    for disk in disks:
        goal = _goal(disk, goals, promised, host)
        place = host.storage(goal)
        try:
            made = plan_disk_move.plan(
                MoveSpec(disk.guest.name, disk.name, goal.name), host, promised_bytes=promised[place]
            )
            _check_name(disk, made.path, moves)
        except VirtError as error:
            refused.append(error)
            continue
        if made.steps:
            goes = made.old_file == "deleted"
            moves.append(PoolMove(disk.guest.name, disk.name, goal.name, made.before, made.size_bytes, goes, made.path))
            if not (goes and place == host.storage(pool)):  # it makes room for the next
                promised[place] += made.needed_bytes
    if not spec.movable_only:
        refuse_all(refused)
    return DrainPlan(tuple(moves), tuple(refused), left(spec, host, moves))


def _pools(spec: DrainSpec, host: DrainHost) -> list[PoolDirectory]:
    """The pool and those that its disks move to."""
    refuse_all(plan_disk_move.unknown_pools((spec.pool, *spec.to), f"cannot drain pool {spec.pool}", host))
    found = [host.pool(name) for name in (spec.pool, *spec.to)]
    for one in found[1:]:
        if one.path == found[0].path:
            raise BadInput([f"to: {one.name} is the same directory as {spec.pool} ({one.path}); name another pool"])
    return found


def _check_name(disk: _Disk, to: str, moves: t.Sequence[PoolMove]) -> None:
    """Raise Refused if another disk goes there: only the endings of two names may differ."""
    other = next((move for move in moves if move.to == to), None)
    if other:
        raise Refused(
            f"cannot move disk {disk.name} of {disk.guest.name}: {to} is where disk {other.disk} of {other.guest} "
            "goes; rename one of the two files, or move one to another pool"
        )


def _disks(pool: PoolDirectory, goals: t.Sequence[PoolDirectory], host: DrainHost) -> t.Iterator[_Disk]:
    by_path = {goal.path: goal for goal in goals}
    for guest in host.guests():
        for disk in _disks_of(guest):
            path = plan_disk_move.path_of(disk, host)
            if not (disk.get("shareable") or plan_disk_move.is_alone(disk, path, guest)):
                continue  # a medium, or a file that is only read
            if not path:
                continue
            folder, form = os.path.dirname(path), disk.get("format", "raw")
            found = _Disk(guest, disk["name"], None, path, form, is_seed=bool(disk.get("readonly")))
            if folder == pool.path:
                marked = (goal.name for goal in goals if _mark(guest, disk, _place(found, goal, host), host))
                yield found._replace(begun=next(marked, None), file=host.file(path, form))
            elif folder in by_path:
                mark = _mark(guest, disk, _place(found, by_path[folder], host), host)
                if mark and os.path.dirname(mark.source) == pool.path:
                    yield found._replace(begun=by_path[folder].name)


def _by_other_paths(spec: DrainSpec, pool: PoolDirectory, host: DrainHost) -> t.Iterator[VirtError]:
    """A refusal for each disk that is a volume of the pool, and that its guest names by another path: through a link, a
    second mount or another pool.
    """
    volumes = {host.which(path): path for path in host.files(spec.pool)}
    for guest in host.guests():
        for disk in _disks_of(guest):
            path = plan_disk_move.path_of(disk, host)
            if not path or os.path.dirname(path) == pool.path or path in volumes.values():
                continue
            which = host.which(path)
            its = volumes.get(which) if which is not None else None
            if its and (disk.get("shareable") or plan_disk_move.is_alone(disk, path, guest)):
                edit = shlex.join(["virsh", "edit", guest.name])
                yield Refused(
                    f"cannot move disk {disk['name']} of {guest.name}: its definition names {its} of pool {spec.pool} "
                    f"by another path, {path}; write {its} there while the guest is off (`{edit}`), and run again"
                )


def _place(disk: _Disk, goal: PoolDirectory, host: DrainHost) -> DiskPlace:
    return plan_disk_place.place_in(goal, disk.path, disk.format, group=host.group(goal.name))


def _disks_of(guest: FoundGuest) -> t.Iterator[dict[str, t.Any]]:
    """The disks of a guest, by its definition or as it runs."""
    stored, live = (fields_disk.by_name(xml) if xml else {} for xml in (guest.xml, guest.live_xml))
    return (disk for name, disk in {**live, **stored}.items() if name == disk["name"])


def _mark(guest: FoundGuest, disk: t.Mapping[str, t.Any], place: DiskPlace, host: DrainHost) -> Mark | None:
    """The mark that an interrupted move of this disk to the place has left."""
    mark = Mark.of((host.mark(place.pool.name, place.name) or ("", None))[0])
    return mark if mark and (mark.guest, mark.disk) == (guest.uuid, disk["name"]) else None


def _goal(
    disk: _Disk, goals: t.Sequence[PoolDirectory], promised: t.Mapping[t.Hashable, int], host: DrainHost
) -> PoolDirectory:
    """The pool where the move was begun, else the first with room, else the one with most, whose lack is told."""

    def free(goal: PoolDirectory) -> int:
        return host.free_bytes(goal) - promised.get(host.storage(goal), 0)

    possible = [goal for goal in goals if not (disk.is_seed and goal.type == "logical")] or goals
    begun = (goal for goal in goals if goal.name == disk.begun)
    with_room = (goal for goal in possible if free(goal) >= _needed(disk, goal, host))
    return next(begun, None) or next(with_room, None) or max(possible, key=free)


def _needed(disk: _Disk, goal: PoolDirectory, host: DrainHost) -> int:
    """What the disk takes in a pool; 0 if it cannot be read, which its plan tells."""
    if disk.file is None or disk.file.format != disk.format:
        return 0
    place = _place(disk, goal, host)
    return place.needed_bytes(disk.file, plan_disk_move.copied_bytes(disk.file, place, disk.path, host))


def left(spec: DrainSpec, host: DrainHost, moves: t.Sequence[PoolMove] = ()) -> tuple[Left, ...]:
    """The files in the pool, with why they stay; without those that these moves delete."""
    gone, freed = ({move.path for move in moves if move.goes is goes} for goes in (True, False))
    media = _media(host)
    remaining = {path: size for path, size in host.files(spec.pool).items() if path not in gone}
    return tuple(
        Left(path, size, _why(spec, path, None if path in freed else host.user(path, ""), media.get(path)))
        for path, size in sorted(remaining.items())
    )


def _media(host: DrainHost) -> dict[str, str]:
    """Who only reads a file, by path."""
    found = {}
    for guest in host.guests():
        for xml in filter(None, (guest.xml, guest.live_xml)):
            for name, disk in fields_disk.by_name(xml).items():
                path = plan_disk_move.path_of(disk, host)
                if path and name == disk["name"] and disk.get("device", "disk") != "disk":
                    found[path] = f"drive {name} of {guest.name} has it; eject it first"
                elif path and disk.get("readonly") and not plan_disk_move.is_alone(disk, path, guest):
                    found[path] = f"{guest.name} reads it as disk {name}, and it was not made for that guest alone"
    return found


def _why(spec: DrainSpec, path: str, user: str | None, medium: str | None) -> str:
    if user is None:
        remove = shlex.join(["virsh", "vol-delete", "--pool", spec.pool, os.path.basename(path)])
        return f"no guest of this host uses it; if nobody else needs it, `{remove}`"
    if medium:
        return medium
    return f"{user} stands on it" if user.startswith("/") and not user.startswith("/dev/") else f"{user} uses it"


def unmoved(failed: t.Sequence[str], refused: t.Sequence[VirtError], pool: str) -> str:
    """The message of a run after which disks are left that should have moved; empty if there are none."""
    texts = [*failed, *map(str, refused)]
    return f"disks are left in pool {pool}: {'; '.join(texts)}" if texts else ""
