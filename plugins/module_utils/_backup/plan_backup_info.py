# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describe a repository: points as data, what each guest's policy misses, and what is damaged. Pure."""

from __future__ import annotations

import datetime
import functools
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._backup import plan_repository
from ansible_collections.corral.virt.plugins.module_utils._backup.model_backup import (
    BackupPoint,
    Proof,
    Repository,
    chains,
    is_proof_name,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_repository import path_problems
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, NotFound
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems
from ansible_collections.corral.virt.plugins.module_utils._core.units import age_text
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_backup_record import BackupNote, due, seconds

_PINNED_S = 86400  # an instant restore that takes longer is told
_STANDS = "it stands on"  # how the problem of a point begins that is another point's


class KnownGuest(t.NamedTuple):
    """A guest of the host, with what is noted with it."""

    name: str
    uuid: str
    tags: tuple[str, ...] = ()
    note: BackupNote = BackupNote()


class BackupPolicy(t.NamedTuple):
    """How old the last backup and the last proven restore of a guest may be, in seconds; None: as old as they are.

    `at_s` is the time at which the repository is looked at; None: now.
    """

    every_s: int | None = None
    proven_s: int | None = None
    at_s: int | None = None


def checked(params: t.Mapping[str, t.Any]) -> BackupPolicy:
    """How old backups and proofs may be; raises BadInput."""
    wrong = Problems(path_problems(params["repository"]))
    readers = {"every": seconds, "proven": seconds, "at": plan_repository.seconds}
    every_s, proven_s, at_s = (
        wrong.read(name, functools.partial(read, params[name])) if params[name] is not None else None
        for name, read in readers.items()
    )
    if params["at"] is not None and (params["every"] is not None or params["proven"] is not None):
        wrong.found.append("at: every and proven count from now; leave them out")
    wrong.refuse()
    return BackupPolicy(every_s, proven_s, at_s)


def until(repository: Repository, at_s: int | None) -> Repository:
    """The repository as it was at a time, as far as its points are still there."""
    if at_s is None:
        return repository
    then = tuple(point for point in repository.points if point.created_s <= at_s)
    return repository._replace(points=then, unfinished=())


def chosen(repository: Repository, guests: t.Sequence[str] | None, known: t.Collection[KnownGuest] = ()) -> Repository:
    """The repository with the points of these guests, by UUID, by their name in a point or by that of a `known` guest,
    as damaged points have no name; of all guests without them.
    """
    if guests is None:
        return repository
    uuids = {*guests, *(one.uuid for one in known if one.name in guests)}
    uuids |= {point.uuid for point in (*repository.points, *repository.unfinished) if point.guest in guests}
    return repository._replace(
        points=tuple(point for point in repository.points if point.uuid in uuids),
        broken=tuple(one for one in repository.broken if one.uuid in uuids),
        unfinished=tuple(point for point in repository.unfinished if point.uuid in uuids),
    )


def missing(guests: t.Sequence[str] | None, repository: Repository, known: t.Collection[KnownGuest]) -> list[str]:
    """The guests that neither the repository nor the host knows."""
    there = {word for point in repository.points for word in (point.guest, point.uuid)}
    there |= {word for one in known for word in (one.name, one.uuid)} | {one.uuid for one in repository.broken}
    return [guest for guest in guests or () if guest not in there]


def check_found(missing: t.Sequence[str], path: str) -> None:
    """Raise NotFound for guests that nobody knows."""
    if missing:
        raise NotFound(
            f"cannot read backups: {path} has none of {', '.join(missing)}, and there is no such guest here; omit "
            "guests to see those that it has"
        )


def check_tags(unknown: t.Collection[str], path: str) -> None:
    """Raise Failed for guests whose tags cannot be read: they may be among those that are asked for."""
    if unknown:
        raise Failed(
            f"cannot read the tags of {', '.join(sorted(unknown))}: no definition of their backups in {path} can be "
            "read; see which are damaged (virt_backup_info with verify), and move them away"
        )


def inherited(points: t.Sequence[BackupPoint], damaged: t.Mapping[str, t.Sequence[str]]) -> dict[str, list[str]]:
    """Why points cannot be restored, by ID: their own damage, and that of those which they stand on."""
    found: dict[str, list[str]] = {}
    there = {point.id for point in points}
    for point in points:  # oldest first
        why = list(damaged.get(point.id, ()))
        for parent in sorted(point.parents):
            if parent not in there:
                why.append(f"{_STANDS} {parent}, which is missing or damaged")
            elif found.get(parent):
                why.append(f"{_STANDS} {parent}, which cannot be restored")
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
            "host": points[-1].host,
            "age_s": now_s - points[-1].created_s,
            "stored_bytes": sum(point.stored_bytes for point in points),
            "chain": 1 + max((depths[points[-1].id, disk.target] for disk in points[-1].disks), default=0),
            "full_reason": next((why for point in reversed(points) if (why := _why_full(point))), None),
            "proven": _last_proven(points, repository.proofs, now_s),
            "points": [
                _point(point, depths, damage.get(point.id, ()), repository.proofs.get(point.id), now_s)
                for point in points
            ],
        }
        for uuid, points in guests.items()
    ]
    return sorted(found, key=lambda guest: str(guest["name"]))


def _why_full(point: BackupPoint) -> str:
    """Why all of its disks was copied; empty if only changes were."""
    return "; ".join(f"{disk.target}: {disk.reason}" for disk in point.disks if disk.reason)


def _last_proven(points: t.Iterable[BackupPoint], proofs: t.Mapping[str, Proof], now_s: int) -> dict[str, t.Any] | None:
    found = [(proofs[point.id], point.id) for point in points if point.id in proofs and proofs[point.id].ok]
    proof, ident = max(found, key=lambda one: one[0].ended_s, default=(None, ""))
    return {"point": ident, **_proof(proof, now_s)} if proof else None


def _proof(proof: Proof, now_s: int) -> dict[str, t.Any]:
    return {
        "at": _time(proof.ended_s),
        "age_s": now_s - proof.ended_s,
        "evidence": proof.evidence or None,
        "seconds": proof.seconds,
        "ok": proof.ok,
        "why": proof.why or None,
    }


def _time(seconds_utc: int) -> str:
    return f"{datetime.datetime.fromtimestamp(seconds_utc, datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def _point(
    point: BackupPoint,
    depths: t.Mapping[tuple[str, str], int],
    problems: t.Sequence[str],
    proof: Proof | None,
    now_s: int,
) -> dict[str, t.Any]:
    return {
        "id": point.id,
        "guest": point.guest,
        "created": _time(point.created_s),
        "age_s": now_s - point.created_s,
        "running": point.running,
        "quiesced": point.quiesced,
        "stored_bytes": point.stored_bytes,
        "restorable": not problems,
        "problems": list(problems),
        "proof": _proof(proof, now_s) if proof else None,
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
    known: t.Collection[KnownGuest],
    now_s: int,
    policy: BackupPolicy,
    wanted: t.Sequence[str] | None,
) -> t.Iterator[str]:
    """What to see to: damaged and interrupted points, and guests of the host that miss a backup."""
    if not repository.id and known:
        yield "the repository is empty: no backup was made yet, or its filesystem is not mounted"
    for one in repository.broken:
        yield f"backup {one.id} of the guest with UUID {one.uuid} cannot be restored: {one.why}"
    for point in repository.unfinished:
        yield f"backup {point.id} of {point.guest} was interrupted, or is being made; the next run sees to it"
    for point in repository.points:
        for pin in repository.pins.get(point.id, ()):
            if now_s - pin.since_s > _PINNED_S:
                yield (
                    f"{pin.guest} on the host with UUID {pin.host} runs on backup {point.id} since "
                    f"{_time(pin.since_s)} (an instant restore), and so it is kept; if that host is gone for good, "
                    f"remove {point.uuid}/{point.id}/{pin.file} of the repository"
                )
    for guest in guests:
        yield from _damaged(guest)
        tried = [(one["id"], one["proof"]) for one in guest["points"] if one["proof"]]
        if tried and not tried[-1][1]["ok"]:
            ident, proof = tried[-1]
            yield f"backup {ident} of {guest['name']} was not proven on {proof['at']}: {proof['why']}"
    by_uuid = {guest["uuid"]: guest for guest in guests}
    for here in sorted(known) if policy.at_s is None else ():
        if not is_proof_name(here.name) and (wanted is None or {here.name, here.uuid} & {*wanted}):
            yield from _missed(here, by_uuid.get(here.uuid), policy, now_s)


def _damaged(guest: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """The damages of a guest's points, and the others that stand on these."""
    above = list[str]()
    for point in guest["points"]:
        own = [problem for problem in point["problems"] if not problem.startswith(_STANDS)]
        yield from (f"backup {point['id']} of {guest['name']}: {problem}" for problem in own)
        above += [point["id"]] if point["problems"] and not own else []
    if above:
        more = f" and later ones (in all {len(above)})" if above[1:] else ""
        yield f"backup {above[0]}{more} of {guest['name']} cannot be restored: a backup below is missing or damaged"
    if guest["points"] and guest["points"][-1]["problems"]:
        name = guest["name"]
        again = shlex.join(["ansible-playbook", "corral.virt.backup", "-e", f"guest={name}", "-e", "full=true"])
        yield f"the last backup of {name} cannot be restored; make one that stands on none: {again}"


def _missed(one: KnownGuest, guest: t.Mapping[str, t.Any] | None, policy: BackupPolicy, now_s: int) -> t.Iterator[str]:
    """What a guest of the host lacks, by its own tags or else by what is asked for."""
    name, own = one.name, due(one.tags)
    asked = (policy.every_s, policy.proven_s)
    policy = BackupPolicy(*(asked[at] if own[at] is None else own[at] for at in (0, 1)))
    if guest is None:
        if policy.every_s is not None or policy.proven_s is not None:
            yield f"{name} has no backup"
        return
    for what, age_s, due_s in (
        ("backup", _age_s(guest, one.note, now_s), policy.every_s),
        ("proven restore", guest["proven"] and guest["proven"]["age_s"], policy.proven_s),
    ):
        if due_s is not None and age_s is None:
            prove = shlex.join(["ansible-playbook", "corral.virt.prove", "-e", f"guest={name}"])
            yield f"no backup of {name} was proven by a restore; prove one: {prove}"
        elif due_s is not None and age_s > due_s:
            yield f"the last {what} of {name} is {age_text(age_s)} old, and one is due every {age_text(due_s)}"


def _age_s(guest: t.Mapping[str, t.Any], note: BackupNote, now_s: int) -> int:
    """For how long the guest may differ from its last point: a later run has seen that it was the same until then."""
    since_s = now_s - note.at_s if note.at_s is not None and note.point == guest["last"] else guest["age_s"]
    return int(min(guest["age_s"], since_s))
