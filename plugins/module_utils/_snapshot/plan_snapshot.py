# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked for of a guest's snapshots, what is asked of its host, and how long scheduled ones are kept."""

from __future__ import annotations

import dataclasses
import datetime
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.problems import WHERE_IT_IS, Problems
from ansible_collections.corral.virt.plugins.module_utils._core.retention import expired, keep_problems
from ansible_collections.corral.virt.plugins.module_utils._core.step import Plan
from ansible_collections.corral.virt.plugins.module_utils._core.units import check_existing_name, check_name
from ansible_collections.corral.virt.plugins.module_utils._disk_move.plan_disk_move import check_limits
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import (
    Snapshot,
    SnapshotDisk,
    SnapshotRecord,
    Tree,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_snapshot import GuestDisk
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import GuestStep
from ansible_collections.corral.virt.plugins.module_utils._snapshot.plan_snapshot_steps import (
    DropName,
    ForgetSnapshot,
    GiveBack,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.model_removed_disk import DiskAside
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disposal import DeleteVolume
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity

_MOST_KEPT_H = 8760  # a year
_SECOND = ".reverted."


@dataclasses.dataclass(frozen=True)
class SnapshotSpec:
    """What is asked for, of each of the guests."""

    guest: str
    name: str  # of the snapshot
    state: str = "present"
    scheduled: bool = False  # the name was made from the time
    description: str = ""
    kind: str = "external"
    memory: bool = False
    quiesce: str = "auto"
    directory: str | None = None
    keep: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    run: bool | None = None
    confirm: str | None = None
    keep_reverted_h: int = 168


class ChainLink(t.NamedTuple):
    """A file in the chain of a disk."""

    path: str
    format: str


class GuestFilesHost(t.Protocol):
    """The host of a guest; its files are those of this machine."""

    def guest(self, name: str) -> FoundGuest | None:
        """The guest."""

    def kept(self, uuid: str) -> tuple[str, ...]:
        """What libvirt stores beside the definition: managed_save, snapshots, checkpoints."""

    def disks(self, xml: str) -> tuple[GuestDisk, ...]:
        """The disks of a definition."""

    def chain(self, path: str, form: str) -> tuple[ChainLink, ...]:
        """A file with this format, and the files that it stands on."""

    def other_user(self, path: str, but: str, without: tuple[str, ...]) -> str | None:
        """Who uses a file, but the guest with this UUID and these files."""

    def exists(self, path: str) -> bool:
        """True if there is something of that name."""

    def identity(self, path: str) -> FileIdentity | None:
        """Which file it is."""

    def is_pooled(self, directory: str) -> bool:
        """True if an active pool has this directory."""

    def free_in(self, directory: str) -> int:
        """Bytes that are free there."""

    def unfinished_removals(self) -> t.Sequence[DiskAside]:
        """Disks that were moved aside, and whose removal this host finishes now."""


class SnapshotHost(GuestFilesHost, t.Protocol):
    """The host of the guest whose snapshots are meant."""

    def tree(self, uuid: str) -> Tree:
        """The snapshots of a guest."""

    def job(self, uuid: str, target: str) -> str | None:
        """What works on the disk of a running guest: copy, commit or another word; None: nothing."""

    def taken_bytes(self, path: str) -> int:
        """Bytes that a file takes."""

    def memory_bytes(self, xml: str) -> int:
        """The memory of a guest with this definition."""

    def state_files(self, xml: str, uuid: str) -> tuple[str, ...]:
        """A guest's UEFI variables and the directory with the state of its TPM, where they exist."""

    def has_bitmaps(self, path: str) -> bool:
        """True if a qcow2 holds bitmaps of changed blocks."""

    def version(self) -> int:
        """The version of libvirt; 9000000 is 9.0.0."""

    def token(self) -> str:
        """A random word, for names of files; the same for all files of a plan."""

    def now_s(self) -> int:
        """The time of the host, in seconds since the epoch."""


@dataclasses.dataclass(frozen=True)
class Scene:
    """One guest with what is asked for, and its snapshots."""

    spec: SnapshotSpec
    found: FoundGuest
    tree: Tree
    entries: tuple[SnapshotRecord, ...]
    host: SnapshotHost

    @property
    def xml(self) -> str:
        """The definition of the running guest, or the stored one."""
        return self.found.live_xml or self.found.xml

    def entry(self, name: str) -> SnapshotRecord | None:
        """What is recorded of a snapshot."""
        return next((one for one in self.entries if one.name == name), None)

    def disks(self) -> dict[str, GuestDisk]:
        """The disks of the guest, by target."""
        return {disk.target: disk for disk in self.host.disks(self.xml)}

    def used_files(self) -> set[str]:
        """The files that the guest's disks are, and stand on."""
        return {link.path for target in self.disks() for link in self.chain(target)}

    def spared(self) -> dict[str, str]:
        """The files of detached disks that a revert has left in place, and their names meanwhile."""
        pairs = [pair for entry in self.entries for pair in entry.spared]
        return {path: name for path, name in pairs if self.host.exists(path) or self.host.exists(name)}

    def chain(self, target: str) -> tuple[ChainLink, ...]:
        """The chain of a disk; empty if the guest has no such disk, or it is no file."""
        disk = self.disks().get(target)
        return self.host.chain(disk.path, disk.format) if disk and disk.path else ()


@dataclasses.dataclass(frozen=True)
class SnapshotPlan(Plan[GuestStep]):
    """What is done about one snapshot."""

    name: str = ""
    thrown_away: tuple[tuple[str, int], ...] = ()  # files with what was written since the snapshot, and their bytes
    kept: tuple[str, ...] = ()  # those of them that stay for a while, by their old names


def scene(spec: SnapshotSpec, host: SnapshotHost) -> Scene:
    """The guest with its snapshots; raises NotFound."""
    found = host.guest(spec.guest)
    if found is None:
        raise NotFound(f"cannot look for snapshots of {spec.guest}: there is no such guest here; {WHERE_IT_IS}")
    texts = fields_record.of(found).get("snapshots") or ()
    entries = tuple(filter(None, (SnapshotRecord.of(text, found.uuid) for text in texts)))
    return Scene(spec, found, host.tree(found.uuid), entries, host)


def leftovers(scene: Scene) -> tuple[GuestStep, ...]:
    """The steps that remove what interrupted runs left, and the entries of snapshots that libvirt knows no longer."""
    used = needed(scene)
    waste: dict[str, int] = {}  # for how many hours it is kept
    forgotten: list[GuestStep] = []
    for entry in scene.entries:
        copies = tuple(copy for _path, copy in entry.copies)
        if entry.name in scene.tree.by_name:
            waste |= dict.fromkeys((path for path in entry.files if path not in used), scene.spec.keep_reverted_h)
            continue
        # of one that somebody else has deleted, the guest may still write to files
        gone = copies if entry.phase == SnapshotRecord.MADE else (*entry.files, *copies)
        waste |= dict.fromkeys((path for path in gone if path not in used), 0)
        if not used.intersection(gone):
            forgotten.append(ForgetSnapshot(scene.found.name, scene.found.uuid, entry.name, gone))
    second = {path: first for path in waste if (first := first_name(path)) and _is_one_file(scene, first, path)}
    files = [path for path in above_first(scene, waste) if path not in second]
    dropped = [DropName(scene.found.name, path, first) for path, first in second.items()]
    deleted = [step for path in files for step in disposals(scene, [path], keep_h=waste[path])]
    return (*_given_back(scene), *dropped, *deleted, *forgotten)


def _given_back(scene: Scene) -> t.Iterator[GuestStep]:
    """The steps after which each file that a revert was to spare has its first name, and only that."""
    for path, name in scene.spared().items():
        if not scene.host.exists(path):
            yield GiveBack(scene.found.name, name, path)
        elif _is_one_file(scene, path, name):
            yield DropName(scene.found.name, name, path)


def second_name(path: str, token: str) -> str:
    """The name under which a file stays while libvirt removes it."""
    return f"{path}{_SECOND}{token}"


def first_name(path: str) -> str:
    """The name that a file with such a second name had; empty for other names."""
    return path.rpartition(_SECOND)[0]


def _is_one_file(scene: Scene, first: str, second: str) -> bool:
    """True if both are names of one file: a run was killed before libvirt removed the first."""
    known = scene.host.identity(first) if scene.host.exists(first) and scene.host.exists(second) else None
    return known is not None and known == scene.host.identity(second)


def needed(scene: Scene, without: str = "", merged: t.Collection[str] = ()) -> set[str]:
    """The files that hold what the guest and its snapshots are, or what libvirt's documents name.

    Or those that they will be without one snapshot whose overlays are merged, when the snapshots below the guest's
    present state have been redefined with the overlays of now.
    """
    snapshots = [one for one in scene.tree.by_name.values() if one.name != without]
    named = {path for one in snapshots for path in one.files} - set(merged)
    for one in scene.tree.lineage() if without else ():
        for disk in one.disks if one.name != without else ():
            now = overlay_now(scene, one, disk)
            named -= {disk.overlay, disk.reverted} - {now} if now else set()
    named |= scene.spared().keys() - set(merged)
    below = {link.path for path in named if scene.host.exists(path) for link in scene.host.chain(path, "qcow2")}
    aside = standing_aside(scene)
    aside.pop(without, None)
    return (scene.used_files() - set(merged)).union(below, *aside.values())


def above_first(scene: Scene, paths: t.Iterable[str]) -> list[str]:
    """Those of these files that exist, each before the files that it stands on."""
    there = [path for path in dict.fromkeys(paths) if scene.host.exists(path)]
    return sorted(there, key=lambda path: -len(scene.host.chain(path, "qcow2")))


def overlay_now(scene: Scene, snapshot: Snapshot, disk: SnapshotDisk) -> str | None:
    """The file of the guest's chain with what was written since a snapshot below it; None if there is none.

    It is not the overlay of then if the guest went back to the snapshot since, and libvirt forgets that when the
    snapshot is redefined.
    """
    paths, entry = [link.path for link in scene.chain(disk.target)], scene.entry(snapshot.name)
    known = [disk.reverted, disk.overlay, *(entry.files if entry else ())]
    if disk.base in paths[1:]:
        above = paths[paths.index(str(disk.base)) - 1]
        others = {path for one in scene.tree.by_name.values() if one.name != snapshot.name for path in one.files}
        known += [above] if above not in others else []
    return next((path for path in known if path in paths), None)


def standing_aside(scene: Scene) -> dict[str, set[str]]:
    """The files that hold the content of each snapshot that is not below the guest's present state, by its name."""
    lineage, host = scene.tree.lineage(), scene.host
    return {
        one.name: {
            link.path
            for disk in one.disks
            if disk.kind == "external" and disk.base and host.exists(disk.base)
            for link in host.chain(disk.base, disk.base_format or "raw")
        }
        for one in scene.tree.by_name.values()
        if one not in lineage
    }


def stands(scene: Scene, disk: SnapshotDisk) -> bool:
    """True if the disk that the guest has there is still the one of the snapshot, which is in its lineage."""
    return not {disk.base, disk.overlay, disk.reverted}.isdisjoint(link.path for link in scene.chain(disk.target))


def lost(scene: Scene, snapshot: Snapshot) -> dict[str, str]:
    """The files that the guest wrote to since, as disks that it has no longer, or another one in their place: by path,
    their targets. After a revert, the guest may have a disk of that target again.
    """
    is_below, now, found = snapshot in scene.tree.lineage(), scene.disks(), dict[str, str]()
    for disk in snapshot.disks:
        is_there = stands(scene, disk) if is_below else disk.target in now
        chain = [link.path for link in scene.chain(disk.target)]
        spared = [path for path in scene.spared() if path not in chain]
        paths = [path for path in (disk.overlay, disk.reverted) if path]
        gone = [path for path in paths if scene.host.exists(path)] if not is_there else []
        found |= dict.fromkeys((path for path in paths if path in (*gone, *spared)), disk.target)
    return found


def lost_note(scene: Scene, snapshot: Snapshot, target: str, path: str) -> str:
    """That a file stays which the guest wrote to as a disk that it has no longer."""
    return (
        f"{scene.found.name} has no longer the disk {target} of snapshot {snapshot.name}; {path}, which it wrote to "
        "since, is kept"
    )


def unpooled(scene: Scene, paths: t.Iterable[str], cannot: str) -> t.Iterator[Refused]:
    """A refusal for each directory of these files that is in no active pool: who else uses a file is unknown there."""
    for place in sorted({os.path.dirname(path) for path in paths}):
        if not scene.host.is_pooled(place):
            yield Refused(
                f"{cannot}: no active storage pool has its directory {place}; start that pool, or create one there "
                f"with virt_pool (path: {place})"
            )


def disposals(scene: Scene, paths: t.Iterable[str], *, keep_h: int = 0) -> list[GuestStep]:
    """The steps that delete those of these files that exist."""
    found = [path for path in dict.fromkeys(paths) if scene.host.exists(path)]
    return [DeleteVolume(scene.found.name, path, scene.host.identity(path), keep_h=keep_h) for path in found]


def time_is_over(spec: SnapshotSpec, found: t.Iterable[Snapshot]) -> list[str]:
    """Names of scheduled snapshots that are kept no longer, the oldest first; never the one that this run takes.

    After a clock went back, older ones may have later times.
    """
    return [name for name in expired(found, spec.keep) if name != spec.name]


def time_name(now_s: int) -> str:
    """The name of a snapshot that is taken by a schedule."""
    moment = datetime.datetime.fromtimestamp(now_s, datetime.timezone.utc)
    return f"corral-{moment:%Y%m%dT%H%M%SZ}"


def checked(params: t.Mapping[str, t.Any], now_s: int) -> list[SnapshotSpec]:
    """What is asked for of each guest; raises BadInput with every problem."""
    problems = Problems(check_limits(params))
    keep = {period: count for period, count in (params["keep"] or {}).items() if count is not None}
    problems.found += [*_names(params, problems), *_keeping(params, keep), *_of_the_state(params)]
    problems.refuse()
    return [
        SnapshotSpec(
            guest,
            params["name"] or time_name(now_s),
            params["state"],
            params["name"] is None,
            params["description"] or "",
            params["kind"],
            params["memory"],
            params["quiesce"],
            params["directory"],
            keep,
            params["run"],
            params["confirm"],
            params["keep_reverted_h"],
        )
        for guest in params["guests"]
    ]


def _names(params: t.Mapping[str, t.Any], problems: Problems) -> t.Iterator[str]:
    guests, name = params["guests"], params["name"]
    if not guests:
        yield "guests: name at least one"
    for guest in sorted({guest for guest in guests if guests.count(guest) > 1}):
        yield f"guests: {guest} is given twice"
    for guest in guests:
        problems.tried(lambda guest=guest: check_existing_name(guest, what="guests"))  # type: ignore[misc]
    if name is not None and params["state"] == "present":
        problems.tried(lambda: check_name(name, what="name"))
    elif name == "" or (name and ("/" in name or "\0" in name)):
        yield f"name: {name!r} is no name of a snapshot; `ansible-playbook corral.virt.snapshots` shows them"


def _keeping(params: t.Mapping[str, t.Any], keep: t.Mapping[str, int]) -> t.Iterator[str]:
    if params["keep"] is not None and params["name"] is not None:
        yield "keep: counts only snapshots that are named by their time; omit name"
    if params["keep"] is not None:
        yield from keep_problems(keep)
    if not 0 <= params["keep_reverted_h"] <= _MOST_KEPT_H:
        yield f"keep_reverted_h: must be from 0 to {_MOST_KEPT_H}, not {params['keep_reverted_h']}"
    if params["at_once"] < 1:
        yield f"at_once: must be at least 1, not {params['at_once']}"


# option -> the states in which it means something
_ONLY_WITH = {
    "keep": ("present",),
    "description": ("present",),
    "directory": ("present",),
    "run": ("reverted",),
    "confirm": ("reverted",),
}


def _of_the_state(params: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    state = params["state"]
    for option, states in _ONLY_WITH.items():
        if params[option] is not None and state not in states:
            yield f"{option}: requires state: {states[0]}"
    if state != "present" and params["name"] is None:
        yield f"name: state: {state} requires the name of the snapshot"
    if state == "reverted" and params["run"] is None:
        yield "run: state: reverted requires it; true starts the guest afterwards, false leaves it off"
    if params["directory"] is not None and not params["directory"].startswith("/"):
        yield f"directory: must be an absolute path, not {params['directory']!r}"
    if params["kind"] == "internal" and params["directory"] is not None:
        yield "directory: an internal snapshot is kept inside the disks; omit one of directory and kind: internal"
