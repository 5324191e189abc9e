# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which files are taken out of a backup, and what must not be so. Pure."""

from __future__ import annotations

import dataclasses
import os.path
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._backup.model_backup import (
    BackupDisk,
    BackupPoint,
    Repository,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup_steps import ExtractFiles
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_repository import (
    PointHost,
    PointSpec,
    check_whole,
    chosen,
    link_path,
    path_problems,
    seconds,
)
from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, Refused, Unsupported, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.output import printable
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems, refuse_all
from ansible_collections.corral.virt.plugins.module_utils._core.step import Plan
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text, check_existing_name

_SPARE_BYTES = 64 * 1024**2
_NO_FILES = ("swap", "unknown", "LVM2_member", "crypto_LUKS", "linux_raid_member", "BitLocker")

Mounts = tuple[tuple[str, str], ...]  # directory and device, in the order in which they are mounted


@dataclasses.dataclass(frozen=True)
class FilesSpec(PointSpec):
    """What is asked for."""

    paths: tuple[str, ...] = ()
    dest: str = ""
    listed: str | None = None  # the directory to list instead
    disk: str | None = None  # the only disk to look at
    filesystem: str | None = None  # a device in the appliance
    keep_owners: bool = False


class Content(t.NamedTuple):
    """What the disks of a point have."""

    systems: tuple[tuple[str, Mounts], ...] = ()  # each operating system: the device of its root, and what it mounts
    filesystems: tuple[tuple[str, str], ...] = ()  # device and type


class Inside(t.NamedTuple):
    """What a path is, inside of a point."""

    kind: str  # file, directory, other
    size_bytes: int = 0


class NameInside(t.NamedTuple):
    """A name in a directory inside of a point."""

    name: str
    kind: str  # file, directory, link, other; unknown for a name that is not UTF-8
    size_bytes: int = 0
    mode: str = ""
    modified: str = ""


class Destination(t.NamedTuple):
    """The directory that the files go to."""

    kind: str  # absent, empty, other
    parent: str  # directory, open (others may rename what is in it), absent
    free_bytes: int = 0
    left: tuple[str, ...] = ()  # unfinished ones, beside it


class FilesHost(PointHost, t.Protocol):
    """The machine with the repository, on which the disks of one point are read."""

    def has_reader(self) -> bool:
        """True if libguestfs is installed."""

    def destination(self, path: str) -> Destination:
        """What is at a path of this machine."""

    def content(self, disks: tuple[str, ...]) -> Content:
        """What these disks have."""

    def unmounted(self, mounts: Mounts) -> tuple[str, ...]:
        """Why some of them cannot be mounted; raises Failed for the first."""

    def inside(self, path: str) -> Inside | None:
        """What a path is in what is mounted."""

    def entries(self, path: str) -> tuple[tuple[NameInside, ...], int]:
        """The first names of a directory, and how many it has."""


@dataclasses.dataclass(frozen=True)
class FilesPlan(Plan[ExtractFiles]):
    """What is taken out, or listed."""

    name: str = ""
    uuid: str = ""
    point: str = ""
    entries: tuple[NameInside, ...] = ()


@dataclasses.dataclass(frozen=True)
class FilesScene:
    """A point, and what is to be read there."""

    spec: FilesSpec
    repository: Repository
    point: BackupPoint
    host: FilesHost

    @property
    def disks(self) -> list[BackupDisk]:
        """The disks that are read."""
        return [disk for disk in self.point.disks if self.spec.disk in (None, disk.target)]

    @property
    def cannot(self) -> str:
        """How a refusal begins."""
        return f"cannot read files of {self.point.guest} in backup {self.point.id}"


def scene(spec: FilesSpec, host: FilesHost) -> FilesScene:
    """The point that is asked for; raises NotFound, or Refused."""
    repository, point = chosen(spec, host)
    return FilesScene(spec, repository, point, host)


def plan(scene: FilesScene) -> FilesPlan:
    """The plan; raises first what can be known without the disks, and then all that is wrong inside of them."""
    spec, host, point = scene.spec, scene.host, scene.point
    to = host.destination(spec.dest) if spec.dest else None
    refuse_all([*_of_the_host(scene), *(_of_the_destination(scene, to) if to else ())])
    check_whole(scene)
    content = host.content(tuple(link_path(spec.repository, point, disk.file) for disk in scene.disks))
    notes = list(host.unmounted(_mounts(scene, content)))
    made = FilesPlan(name=point.guest, uuid=point.uuid, point=point.id)
    if spec.listed is not None:
        _sizes(scene, (spec.listed,), "directory")
        entries, count = host.entries(spec.listed)
        if count > len(entries):
            notes.append(f"{printable(spec.listed)} has {count} names, of which the first {len(entries)} are shown")
        return dataclasses.replace(made, entries=entries, notes=tuple(notes))
    size = sum(_sizes(scene, spec.paths, "file", "directory"))
    if to and size + _SPARE_BYTES > to.free_bytes:
        raise Refused(
            f"{scene.cannot}: they take {bytes_text(size)}, and {os.path.dirname(spec.dest)} has "
            f"{bytes_text(to.free_bytes)} free; choose another dest, or fewer paths"
        )
    for left in to.left if to else ():
        remove = shlex.join(["rm", "-r", left])
        notes.append(f"{left} was left by an interrupted run, unless another one is at work; to delete it: {remove}")
    step = ExtractFiles(point.guest, point.uuid, point, spec.paths, spec.dest, size, spec.keep_owners)
    return dataclasses.replace(made, steps=(step,), notes=tuple(notes))


def _of_the_host(scene: FilesScene) -> t.Iterator[VirtError]:
    if not scene.disks:
        known = ", ".join(disk.target for disk in scene.point.disks)
        yield NotFound(f"{scene.cannot}: it has no disk {scene.spec.disk}; it has {known or 'none'}")
    if not scene.host.has_reader():
        yield Unsupported(
            f"{scene.cannot}: libguestfs and its binding for Python are missing on this host; install them (Debian and "
            "Ubuntu: apt-get install python3-guestfs; EL and Fedora: dnf install python3-libguestfs)"
        )


def _of_the_destination(scene: FilesScene, to: Destination) -> t.Iterator[VirtError]:
    dest = scene.spec.dest
    if to.parent == "absent":
        yield NotFound(f"{scene.cannot}: there is no directory {os.path.dirname(dest)} for {dest}; create it")
    if to.parent == "open":
        yield Refused(
            f"{scene.cannot}: other users may write to {os.path.dirname(dest)}, and could put something else in the "
            f"place of {dest}; choose a directory that only its owner writes to"
        )
    if to.kind == "other":
        yield Refused(f"{scene.cannot}: {dest} is there already; choose a dest that does not exist, or is empty")


def _mounts(scene: FilesScene, content: Content) -> Mounts:
    """What is mounted: the operating system, or the only filesystem, or that which is asked for; raises Refused."""
    wanted, systems = scene.spec.filesystem, dict(content.systems)
    readable = [device for device, kind in content.filesystems if kind not in _NO_FILES]
    known = ", ".join(f"{device} ({kind})" for device, kind in content.filesystems)
    if wanted in systems:
        return systems[wanted]
    if wanted in readable:
        return (("/", wanted),)
    if wanted or not readable:
        raise Refused(
            f"{scene.cannot}: there is no filesystem {wanted or 'that can be read'}; its disks have {known or 'none'}. "
            "Encrypted ones cannot be read"
        )
    if len(systems) == 1:
        return next(iter(systems.values()))
    several = list(systems) or readable
    if len(several) == 1:
        return (("/", several[0]),)
    what = "operating systems" if systems else "filesystems and no operating system"
    raise Refused(f"{scene.cannot}: it has several {what}; set filesystem to one of {', '.join(several)}")


def _sizes(scene: FilesScene, paths: t.Iterable[str], *kinds: str) -> list[int]:
    """What each path takes; raises all refusals at once."""
    found = {path: scene.host.inside(path) for path in paths}
    wrong: list[VirtError] = [
        NotFound(f"{scene.cannot}: it has no {printable(path)}; the option list shows what a directory has")
        if inside is None
        else Refused(f"{scene.cannot}: {printable(path)} is no {' or '.join(kinds)} there; use another path")
        for path, inside in found.items()
        if inside is None or inside.kind not in kinds
    ]
    refuse_all(wrong)
    return [inside.size_bytes for inside in found.values() if inside]


def checked(params: t.Mapping[str, t.Any]) -> FilesSpec:
    """What is asked for; raises BadInput with every problem."""
    problems = Problems(_problems(params))
    problems.tried(lambda: check_existing_name(params["guest"], what="guest"))
    at_s = problems.read("at", lambda: seconds(params["at"])) if params["at"] is not None else None
    problems.refuse()
    paths = sorted({_normal(path) for path in params["paths"] or ()})
    return FilesSpec(
        os.path.normpath(params["repository"]),
        params["guest"],
        params["point"],
        at_s,
        tuple(path for path in paths if not any(_is_below(path, other) for other in paths)),
        os.path.normpath(params["dest"]) if params["dest"] is not None else "",
        None if params["list"] is None else _normal(params["list"]),
        params["disk"],
        params["filesystem"],
        params["keep_owners"],
    )


def _problems(params: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    yield from path_problems(params["repository"])
    if params["point"] is not None and params["at"] is not None:
        yield "at: use point or at, not both"
    if bool(params["paths"]) == (params["list"] is not None):
        yield "paths: use either paths, to have files, or list, to see what a directory has"
    if bool(params["paths"]) != (params["dest"] is not None):
        yield "dest: paths and dest require each other"
    if params["dest"] is not None and not os.path.normpath(params["dest"]).strip("/"):
        yield "dest: must be a directory that does not exist, or is empty"
    for name, path in [("list", params["list"]), *(("paths", path) for path in params["paths"] or ())]:
        if path is not None and (not path.startswith("/") or ".." in path.split("/") or "\0" in path):
            yield f"{name}: must be an absolute path inside the guest, without .., not {path!r}"
    for name in ("disk", "filesystem"):
        if params[name] == "":
            yield f"{name}: must not be empty"


def _normal(path: str) -> str:
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def _is_below(path: str, other: str) -> bool:
    return path != other and path.startswith(other.rstrip("/") + "/")
