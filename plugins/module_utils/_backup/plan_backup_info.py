# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Describe a repository: points as data, what each guest's policy misses, and what is damaged. Pure."""

from __future__ import annotations

import datetime
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._backup.model_backup import BackupPoint, Repository, chains
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_repository import path_problems
from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems

__all__ = ["check_found", "checked", "chosen", "described", "inherited", "problems", "seconds"]

_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION = re.compile(r"(\d+) ?([mhdw])")


def seconds(duration: str) -> int:
    """The seconds of a duration such as 24h; raises ValueError."""
    found = _DURATION.fullmatch(duration)
    if not found:
        raise ValueError(f"must be a number and one of m, h, d and w, such as 24h, not {duration!r}")
    return int(found.group(1)) * _UNITS[found.group(2)]


def checked(params: t.Mapping[str, t.Any]) -> int | None:
    """The seconds after which a backup is too old; raises BadInput."""
    wrong = Problems(path_problems(params["repository"]))
    every = params["every"]
    found = wrong.read("every", lambda: seconds(every)) if every is not None else None
    wrong.refuse()
    return found


def chosen(repository: Repository, guests: t.Sequence[str] | None) -> Repository:
    """The repository with the points of these guests, by name or UUID; of all without them."""
    if not guests:
        return repository
    uuids = {point.uuid for point in repository.points if point.guest in guests or point.uuid in guests}
    return repository._replace(
        points=tuple(point for point in repository.points if point.uuid in uuids),
        broken=tuple(one for one in repository.broken if one.uuid in uuids),
        unfinished=tuple(point for point in repository.unfinished if point.uuid in uuids),
    )


def check_found(guests: t.Sequence[str] | None, repository: Repository, known: t.Collection[str], path: str) -> None:
    """Raise NotFound for guests that neither the repository nor the host knows."""
    there = {word for point in repository.points for word in (point.guest, point.uuid)}
    missing = [guest for guest in guests or () if guest not in there and guest not in known]
    if missing:
        raise NotFound(
            f"cannot read backups: {path} has none of {', '.join(missing)}, and there is no such guest here; "
            "omit guests to see those that it has"
        )


def inherited(points: t.Sequence[BackupPoint], damaged: t.Mapping[str, t.Sequence[str]]) -> dict[str, list[str]]:
    """Why points cannot be restored, by ID: their own damage, and that of those which they stand on."""
    found: dict[str, list[str]] = {}
    there = {point.id for point in points}
    for point in points:  # oldest first
        why = list(damaged.get(point.id, ()))
        for parent in sorted(point.parents):
            if parent not in there:
                why.append(f"it stands on {parent}, which is missing or damaged")
            elif found.get(parent):
                why.append(f"it stands on {parent}, which cannot be restored")
        found[point.id] = why
    return found


def described(repository: Repository, damage: t.Mapping[str, t.Sequence[str]], now_s: int) -> list[dict[str, t.Any]]:
    """The guests by name, each with its points, oldest first; `damage` is why a point cannot be restored, by its ID."""
    guests: dict[str, list[BackupPoint]] = {}
    for point in repository.points:
        guests.setdefault(point.uuid, []).append(point)
    depths = chains(repository.points)
    found = [
        {
            "name": points[-1].guest,
            "uuid": uuid,
            "last": points[-1].id,
            "age_s": now_s - points[-1].created_s,
            "stored_bytes": sum(point.stored_bytes for point in points),
            "points": [_point(point, depths, damage.get(point.id, ()), now_s) for point in points],
        }
        for uuid, points in guests.items()
    ]
    return sorted(found, key=lambda guest: str(guest["name"]))


def _point(
    point: BackupPoint, depths: t.Mapping[tuple[str, str], int], problems: t.Sequence[str], now_s: int
) -> dict[str, t.Any]:
    created = datetime.datetime.fromtimestamp(point.created_s, datetime.timezone.utc)
    return {
        "id": point.id,
        "guest": point.guest,
        "created": f"{created:%Y-%m-%dT%H:%M:%SZ}",
        "age_s": now_s - point.created_s,
        "running": point.running,
        "quiesced": point.quiesced,
        "stored_bytes": point.stored_bytes,
        "restorable": not problems,
        "problems": list(problems),
        "disks": [
            {
                "target": disk.target,
                "size_bytes": disk.size_bytes,
                "stored_bytes": disk.stored_bytes,
                "reason": disk.reason or None,
                "parent": disk.parent,
                "depth": depths[point.id, disk.target],
            }
            for disk in point.disks
        ],
    }


def problems(
    repository: Repository,
    guests: t.Sequence[t.Mapping[str, t.Any]],
    *,
    known: t.Collection[tuple[str, str]],
    every_s: int | None,
    wanted: t.Sequence[str] | None,
) -> t.Iterator[str]:
    """What to see to: damaged and interrupted points, and guests of the host whose last backup is too old or missing;
    `known` are name and UUID of those.
    """
    if not repository.id and known:
        yield "the repository is empty: no backup was made yet, or its filesystem is not mounted"
    for one in repository.broken:
        yield f"backup {one.id} of the guest with UUID {one.uuid} cannot be restored: {one.why}"
    for point in repository.unfinished:
        yield f"backup {point.id} of {point.guest} was interrupted, or is being made; the next run sees to it"
    for guest in guests:
        for point in guest["points"]:
            yield from (f"backup {point['id']} of {guest['name']}: {problem}" for problem in point["problems"])
    by_uuid = {guest["uuid"]: guest for guest in guests}
    for name, uuid in sorted(known):
        if every_s is None or (wanted and name not in wanted and uuid not in wanted):
            continue
        newest = by_uuid.get(uuid)
        if newest is None:
            yield f"{name} has no backup"
        elif newest["age_s"] > every_s:
            old, due = newest["age_s"] // 60, every_s // 60
            yield f"the last backup of {name} is {old} minutes old, and one is due every {due} minutes"
