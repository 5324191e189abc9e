# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether a directory is a repository, which of its points is meant, and whether all of it is there. Pure."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os.path
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._backup.model_backup import (
    MARKER,
    UNREADABLE,
    VERSION,
    BackupDisk,
    BackupPoint,
    Repository,
    RepositoryFacts,
)
from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, Refused


def path_problems(path: str) -> t.Iterator[str]:
    """The problems of the path that is given for a repository."""
    if not path.startswith("/"):
        yield (
            f"repository: must be an absolute path, not {path!r}; the playbooks take it from the variable "
            "virt_backup_repository, too"
        )


def checked_repository(
    path: str, facts: RepositoryFacts, cannot: str, *, new: bool = False, empty: bool = False
) -> bool:
    """True if the directory is empty, and may be (`empty`) or is made a repository (`new`); raises Refused if it is
    none.
    """
    if not facts.is_directory:
        raise Refused(
            f"{cannot}: there is no directory {path}; create it, or mount the filesystem that holds it: backups never "
            "go to a directory that this module has made"
        )
    if facts.marker is None:
        if facts.others or not (new or empty):
            more = f" and has other files ({', '.join(facts.others[:3])})" if facts.others else ""
            raise Refused(
                f"{cannot}: {path} is no repository of backups: it has no {MARKER}{more}; mount the filesystem that "
                "holds the repository, or use an empty directory"
            )
    elif not _is_ours(facts.marker):
        raise Refused(
            f"{cannot}: {os.path.join(path, MARKER)} was not written by this version of the collection; use the "
            "version that has written it"
        )
    if new and facts.is_open:
        raise Refused(
            f"{cannot}: other users may write to {path}, and could put links to files of this host there; let only its "
            f"owner do so ({shlex.join(['chmod', 'go-w', path])})"
        )
    if new and facts.closed and not (facts.marker is None and facts.closes_itself):
        raise Refused(
            f"{cannot}: QEMU's user cannot pass through {facts.closed} to {path}; let it "
            f"({shlex.join(['chmod', 'o+x', facts.closed])}), which lets nobody list or read what is there"
        )
    return facts.marker is None


def _is_ours(marker: str) -> bool:
    try:
        told = json.loads(marker)
        return bool(told["version"] == VERSION and told["id"])
    except (ValueError, TypeError, KeyError):
        return False


@dataclasses.dataclass(frozen=True)
class PointSpec:
    """Which point is asked for."""

    repository: str
    guest: str  # name or UUID in the repository
    point: str | None = None
    at_s: int | None = None


class PointHost(t.Protocol):
    """The machine with the repository."""

    def facts(self, path: str) -> RepositoryFacts:
        """What is at the path of the repository."""

    def repository(self, path: str) -> Repository:
        """The repository, with the points of all guests."""

    def sha256(self, path: str) -> str:
        """The SHA-256 of a file; empty if it cannot be read."""


class PointScene(t.Protocol):
    """A point, and what is asked of it."""

    @property
    def spec(self) -> PointSpec:
        """What is asked for."""

    @property
    def repository(self) -> Repository:
        """The repository."""

    @property
    def point(self) -> BackupPoint:
        """The point."""

    @property
    def host(self) -> PointHost:
        """The machine."""

    @property
    def disks(self) -> list[BackupDisk]:
        """The disks that are asked for."""

    @property
    def cannot(self) -> str:
        """How a refusal begins."""


def chosen(spec: PointSpec, host: PointHost) -> tuple[Repository, BackupPoint]:
    """The repository, and the point that is asked for; raises NotFound, or Refused."""
    checked_repository(spec.repository, host.facts(spec.repository), f"cannot restore {spec.guest}")
    repository = host.repository(spec.repository)
    return repository, _point(spec, repository, _uuid(spec, repository))


def _uuid(spec: PointSpec, repository: Repository) -> str:
    names = {point.uuid: point.guest for point in repository.points}
    found = [uuid for uuid in names if spec.guest == uuid]
    found = found or sorted({point.uuid for point in repository.points if point.guest == spec.guest})
    if not found:
        known = ", ".join(sorted(set(names.values())))
        others = f"it has backups of {known}" if known else "it has no whole backup"
        raise NotFound(f"cannot restore {spec.guest}: {spec.repository} has no backup of it; {others}")
    if len(found) > 1:
        raise Refused(
            f"cannot restore {spec.guest}: {spec.repository} has backups of {len(found)} guests of that name; set "
            f"guest to the UUID of one: {', '.join(found)}"
        )
    return found[0]


def _point(spec: PointSpec, repository: Repository, uuid: str) -> BackupPoint:
    points = repository.of(uuid)
    if spec.point is not None:
        found = [point for point in points if point.id == spec.point]
        damaged = next((one.why for one in repository.broken if (one.uuid, one.id) == (uuid, spec.point)), None)
        if damaged:
            newest = f"the newest other one is {points[-1].id}" if points else "there is no other one"
            raise Refused(f"cannot restore {spec.guest} from backup {spec.point}: {damaged}; {newest}")
        if not found:
            ids = ", ".join(point.id for point in points[-10:])
            raise NotFound(f"cannot restore {spec.guest}: it has no backup {spec.point}; the newest are {ids}")
        return found[0]
    found = [point for point in points if spec.at_s is None or point.created_s <= spec.at_s]
    if not found:
        raise NotFound(
            f"cannot restore {spec.guest} as of that time: its oldest backup is {points[0].id}; choose a later time"
        )
    return found[-1]


def link_path(repository: str, point: BackupPoint, file: str) -> str:
    """The path of a file of a point."""
    return os.path.join(repository, point.uuid, point.id, file)


def check_whole(scene: PointScene, *, read: bool = True) -> None:
    """Raise Refused if a file that the point needs is missing or damaged; without `read`, disks are not read."""
    damages = damages_of(scene, scene.point, [disk.target for disk in scene.disks], read=read)
    if not damages:
        return
    points = scene.repository.of(scene.point.uuid)
    others = (one for one in reversed(points) if one != scene.point)
    whole = next((one.id for one in others if not damages_of(scene, one, _targets(one), read=read)), None)
    mend = f"the newest backup that is whole is {whole} (point: {whole})" if whole else "no other backup is whole"
    raise Refused(f"{scene.cannot}: {'; '.join(damages)}; {mend}")


def _targets(point: BackupPoint) -> list[str]:
    return [disk.target for disk in point.disks]


def damages_of(scene: PointScene, point: BackupPoint, targets: t.Iterable[str], *, read: bool = True) -> list[str]:
    """Why disks of a point cannot be restored: what they need is missing or damaged; without `read`, disks are not
    read.
    """
    found = [(point, name, expected) for name, expected in point.files]
    damages = list[str]()
    for target in targets:
        below: BackupPoint | None = point
        while below is not None:
            disk = below.disk(target)
            if disk is None:
                damages.append(f"backup {below.id}, which it stands on, has no disk {target}")
                break
            found.append((below, disk.file, disk.sha256))
            below, missing = _parent(scene, disk)
            damages += [missing] if missing else []
    for one, file, expected in found if read else found[: len(point.files)]:
        path = link_path(scene.spec.repository, one, file)
        sha256 = scene.host.sha256(path)
        if sha256 != expected:
            damages.append(f"{path} is {'damaged: its SHA-256 is another one' if sha256 else UNREADABLE}")
    return damages


def _parent(scene: PointScene, disk: BackupDisk) -> tuple[BackupPoint | None, str]:
    """The point that a disk of a point stands on; or why there is none."""
    if disk.parent is None:
        return None, ""
    points = scene.repository.of(scene.point.uuid)
    found = next((point for point in points if point.id == disk.parent), None)
    if found:
        return found, ""
    broken = {one.id: one.why for one in scene.repository.broken if one.uuid == scene.point.uuid}
    return None, f"backup {disk.parent}, which it stands on, is damaged: {broken.get(disk.parent, 'it is missing')}"


def seconds(text: str) -> int:
    """The seconds since the epoch of a time; one without offset is UTC."""
    try:
        moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f"must be a time such as 2026-11-25T03:00:00Z, not {text!r}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    return int(moment.timestamp())
