# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide how a guest is backed up: all of a disk or its changes, what is deleted, and what must not be so. Pure."""

from __future__ import annotations

import dataclasses
import datetime
import os.path
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._backup import plan_instant_restore
from ansible_collections.corral.virt.plugins.module_utils._backup.model_backup import (
    PART,
    BackupDisk,
    BackupPoint,
    BrokenPoint,
    Repository,
    RepositoryFacts,
    chains,
    children,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup_steps import (
    CopyDisk,
    CreateRepository,
    DeletePoint,
    DiscardPart,
    DropCheckpoint,
    FinishPoint,
    PushDisks,
    RedefineCheckpoint,
    StartPoint,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_repository import (
    PointHost,
    checked_repository,
    path_problems,
)
from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.problems import WHERE_IT_IS, Problems, refuse_all
from ansible_collections.corral.virt.plugins.module_utils._core.retention import expired, keep_problems
from ansible_collections.corral.virt.plugins.module_utils._core.step import Plan
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text, check_existing_name
from ansible_collections.corral.virt.plugins.module_utils._domain import xml_backup_record
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_snapshot import GuestDisk, has_agent
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import GuestStep
from ansible_collections.corral.virt.plugins.module_utils._snapshot import plan_snapshot_steps
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

_MOST = 2**31 - 1
_PREFIX = "corral-"  # of the names of checkpoints
_SPARE_BYTES = 64 * 1024**2
_AHEAD_S = 86400  # for so long, a clock may have been ahead


@dataclasses.dataclass(frozen=True)
class BackupSpec:
    """What is asked for, of each of the guests."""

    guest: str
    repository: str
    point: str | None = None  # to delete
    quiesce: str = "auto"
    increments: int = 30
    keep: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    full: bool = False
    encrypted: bool = False  # the repository must be


class Checkpoint(t.NamedTuple):
    """A checkpoint of libvirt's."""

    name: str
    repository: str | None  # the ID of ours that it belongs to; None: somebody else's
    sizes: t.Mapping[str, int] = {}  # bytes that were written since, of disks with a usable bitmap
    whole: bool = True  # none of its bitmaps is missing or broken


class BackupHost(PointHost, t.Protocol):
    """The host of the guest, with the repository; files are those of this machine."""

    def guest(self, name: str) -> FoundGuest | None:
        """The guest."""

    def unencrypted(self, path: str) -> str:
        """What a directory lies on, in words; empty if dm-crypt encrypts all of that."""

    def disks(self, xml: str) -> tuple[GuestDisk, ...]:
        """The disks of a definition."""

    def kept(self, uuid: str) -> tuple[str, ...]:
        """What libvirt stores beside the definition: managed_save, snapshots, checkpoints."""

    def checkpoints(self, uuid: str) -> list[Checkpoint]:
        """The checkpoints that libvirt knows."""

    def backup_job(self, uuid: str) -> tuple[str, ...] | None:
        """The files that a running backup writes; None if there is none."""

    def job(self, uuid: str, target: str) -> str | None:
        """What works on the disk of a running guest: copy, commit or another word; None: nothing."""

    def size_bytes(self, uuid: str, disk: GuestDisk) -> int:
        """The size of a disk, as the guest sees it."""

    def file_facts(self, path: str) -> tuple[int, int, int]:
        """Inode, time of the last write in ns, and filesystem of a file; zeros if there is none."""

    def flat_bytes(self, disk: GuestDisk) -> int:
        """About the bytes that all of a disk takes."""

    def backed_states(self, xml: str, uuid: str) -> tuple[tuple[str, str], ...]:
        """The guest's UEFI variables, directory with the state of its TPM, and seed, where they exist, each with the
        name of its copy.
        """

    def free_in(self, directory: str) -> int:
        """Bytes that are free in a directory."""

    def host_uuid(self) -> str:
        """The UUID of the host."""

    def stands_on(self, uuid: str) -> str | None:
        """The ID of the point that the guest with this UUID runs on; None: it does not, or is not here."""

    def token(self) -> str:
        """A random word."""

    def now_s(self) -> int:
        """The time of the host, in seconds since the epoch."""


@dataclasses.dataclass(frozen=True)
class BackupPlan(Plan[GuestStep]):
    """What is done about the backups of one guest."""

    point: BackupPoint | None = None  # the new one
    bytes_expected: int = 0
    newest: str = ""  # the ID of the point that has what the guest has now


@dataclasses.dataclass(frozen=True)
class BackupScene:
    """One guest with what is asked for, and its repository."""

    spec: BackupSpec
    found: FoundGuest
    repository: Repository
    is_new: bool
    host: BackupHost
    assumed: frozenset[str] = frozenset()  # checkpoints that a real run lets libvirt know again first

    @property
    def xml(self) -> str:
        """The definition of the running guest, or the stored one."""
        return self.found.live_xml or self.found.xml

    @property
    def whose(self) -> tuple[str, str]:
        """Name and UUID, with which each step begins."""
        return self.found.name, self.found.uuid

    @property
    def points(self) -> list[BackupPoint]:
        """The points of the guest, oldest first."""
        return self.repository.of(self.found.uuid)

    @property
    def damaged(self) -> list[BrokenPoint]:
        """The points of the guest that cannot be used."""
        return [one for one in self.repository.broken if one.uuid == self.found.uuid and not one.id.endswith(PART)]

    @property
    def base(self) -> BackupPoint | None:
        """The newest point from which on changes were noted."""
        return next((point for point in reversed(self.points) if point.checkpoint), None)

    @property
    def pinned(self) -> dict[str, str]:
        """Who runs on points, by their IDs."""
        host = self.host
        return plan_instant_restore.pinned(
            self.repository, host=host.host_uuid(), stands_on=host.stands_on, now_s=host.now_s()
        )

    @property
    def own_checkpoints(self) -> list[Checkpoint]:
        """Checkpoints of libvirt's that belong to this repository."""
        found = self.host.checkpoints(self.found.uuid)
        return [one for one in found if one.repository == self.repository.id and self.repository.id]


def scene(spec: BackupSpec, host: BackupHost, again: t.Collection[str] = (), *, assumed: bool = False) -> BackupScene:
    """The guest with its repository; raises NotFound, or Refused if the path is no repository.

    `again` are the checkpoints that libvirt was let know again; in check mode that is `assumed`.
    """
    found = host.guest(spec.guest)
    cannot, facts = f"cannot back up {spec.guest}", host.facts(spec.repository)
    if found is None:
        raise NotFound(f"{cannot}: there is no such guest here; {WHERE_IT_IS}{_left(spec, host, facts)}")
    if spec.encrypted and facts.is_directory and (below := host.unencrypted(spec.repository)):
        raise Refused(
            f"{cannot}: {spec.repository} is not encrypted: it lies on {below}; open and mount its LUKS device (with "
            "storage_mounts: ansible-playbook corral.virt.site --tags storage), or set encrypted: false"
        )
    is_new = checked_repository(spec.repository, facts, cannot, new=True)
    repository = Repository("") if is_new else host.repository(spec.repository)
    return BackupScene(spec, found, repository, is_new, host, frozenset(again if assumed else ()))


def _left(spec: BackupSpec, host: BackupHost, facts: RepositoryFacts) -> str:
    """What to do about the backups of a guest that is gone, one of which is to be deleted; empty if there are none."""
    if spec.point is None or facts.marker is None:
        return ""
    checked_repository(spec.repository, facts, f"cannot delete backup {spec.point}")
    repository = host.repository(spec.repository)
    points: list[BackupPoint | BrokenPoint] = [*repository.points, *repository.broken]
    uuid = next((one.uuid for one in points if one.id == spec.point), None)
    if uuid is None:
        return ""
    place = os.path.join(spec.repository, uuid)
    held = plan_instant_restore.pinned(repository, host=host.host_uuid(), stands_on=host.stands_on, now_s=host.now_s())
    mine = [one.id for one in points if one.uuid == uuid and one.id in held]
    if users := sorted({held[ident] for ident in mine}):
        return (
            f"; its UUID is {uuid}, and {', '.join(users)} runs on its backups in {place} until all is copied; wait "
            f"for the end of that restore{_if_gone(place, repository, mine, host.host_uuid())}"
        )
    return (
        f"; its UUID is {uuid}: a guest that has been renamed has that, too (`virsh domname {uuid}` on each host); if "
        f"no host has such a guest, delete all its backups, which are in {place} ({shlex.join(['rm', '-r', place])})"
    )


def repair(scene: BackupScene) -> BackupPlan:
    """The steps that finish or remove what interrupted runs left; a point whose job still runs is finished."""
    host, uuid = scene.host, scene.found.uuid
    unfinished = [point for point in scene.repository.unfinished if point.uuid == uuid]
    broken = [one for one in scene.repository.broken if one.uuid == uuid and one.id.endswith(PART)]
    job = host.backup_job(uuid)
    steps: list[GuestStep] = []
    going = _going(scene, unfinished, job) if job is not None else None
    if going:
        targets = tuple(disk.target for disk in host.disks(scene.xml))
        steps += [PushDisks(*scene.whose, going, targets, goes_on=True), FinishPoint(*scene.whose, going)]
    known = {one.name for one in scene.own_checkpoints}
    for one in scene.own_checkpoints if scene.found.active else ():
        if one.name not in _needed(scene, going):
            steps.append(_dropped(scene, one))
    idents = [point.id for point in unfinished if point != going] + [one.id[: -len(PART)] for one in broken]
    steps += [DiscardPart(*scene.whose, ident) for ident in idents]
    base = scene.base
    if base and base.checkpoint and base.checkpoint not in known and scene.found.active and not going:
        steps.append(RedefineCheckpoint(*scene.whose, base.checkpoint, base.id))
    return BackupPlan(tuple(steps))


def _dropped(scene: BackupScene, one: Checkpoint) -> DropCheckpoint:
    """The step that deletes a checkpoint; without the sizes of all disks that noted changes, it is lost."""
    return DropCheckpoint(*scene.whose, one.name, scene.repository.id, lost=not one.whole)


def _needed(scene: BackupScene, going: BackupPoint | None) -> set[str]:
    """Names of the checkpoints of this repository from which the next backup can go on."""
    points = [point for point in (scene.base, going) if point]
    return {str(point.checkpoint) for point in points}


def _going(scene: BackupScene, unfinished: t.Sequence[BackupPoint], job: tuple[str, ...]) -> BackupPoint | None:
    """The unfinished point whose files the running job writes; raises Refused if the job is somebody else's."""
    for point in unfinished:
        place = os.path.join(scene.spec.repository, point.uuid, point.id + PART)
        if job and all(os.path.dirname(path) == place for path in job):
            return point
    stop = shlex.join(["virsh", "domjobabort", scene.found.name])
    raise Refused(
        f"cannot back up {scene.found.name}: another backup of it is running ({', '.join(job) or 'in pull mode'}); "
        f"wait for its end, or abort it ({stop})"
    )


def plan(scene: BackupScene) -> BackupPlan:
    """The plan of a new point, or of deleting one; raises all refusals at once."""
    if scene.spec.point is not None:
        return _deletion(scene, scene.spec.point)
    disks = [disk for disk in scene.host.disks(scene.xml) if disk.written]
    refuse_all([*_of_the_repository(scene), *_of_the_guest(scene, disks), *_of_the_disks(scene, disks)])
    first = [CreateRepository(*scene.whose, scene.spec.repository)] if scene.is_new else []
    made = _live(scene, disks) if scene.found.active else _off(scene, disks)
    made = dataclasses.replace(made, notes=(*made.notes, *_of_the_points(scene)))
    if made.point is None:
        return dataclasses.replace(made, steps=(*made.steps, *_pruning(scene, None)))
    before = _making_room(scene, made.bytes_expected + _SPARE_BYTES)
    after = [step for step in _pruning(scene, made.point) if step not in before]
    notes = (*_notes(scene, made.point, disks), *made.notes)
    return dataclasses.replace(made, steps=(*first, *before, *made.steps, *after), notes=notes, newest=made.point.id)


def _making_room(scene: BackupScene, needed_bytes: int) -> list[DeletePoint]:
    """The points that are deleted before a new one is made, as it has no room beside them; raises Refused if it has
    none without them either.
    """
    free = scene.host.free_in(scene.spec.repository)
    pruned = _pruning(scene, None) if free < needed_bytes else []
    free += sum(step.point.stored_bytes for step in pruned if isinstance(step.point, BackupPoint))
    if free < needed_bytes:
        without = f" without the {len(pruned)} that are not kept" if pruned else ""
        raise Refused(
            f"{_cannot(scene)}: {scene.spec.repository} has {bytes_text(free)} free{without}, and it needs about "
            f"{bytes_text(needed_bytes)}; make room, or keep less (keep)"
        )
    return pruned


def point_id(now_s: int, token: str) -> str:
    """The ID of a new point."""
    moment = datetime.datetime.fromtimestamp(now_s, datetime.timezone.utc)
    return f"{moment:%Y%m%dT%H%M%SZ}-{token}"


def _cannot(scene: BackupScene) -> str:
    return f"cannot back up {scene.found.name}"


def _new_point(scene: BackupScene, disks: t.Iterable[BackupDisk]) -> BackupPoint:
    host, found = scene.host, scene.found
    newest = max((point.created_s for point in scene.points), default=0)
    now_s = max(host.now_s(), newest + 1)  # a clock that went back must not change their order
    states = tuple(host.backed_states(found.xml, found.uuid))
    ident = point_id(now_s, host.token())
    return BackupPoint(
        ident, found.name, found.uuid, now_s, host.host_uuid(), tuple(disks), running=found.active, states=states
    )


def _live(scene: BackupScene, disks: t.Sequence[GuestDisk]) -> BackupPlan:
    """The plan for a running guest, whose disks QEMU copies."""
    host, base = scene.host, scene.base
    sizes = next((one.sizes for one in scene.own_checkpoints if base and one.name == base.checkpoint), {})
    depths = chains(scene.points)
    made, expected, flatten = list[BackupDisk](), 0, list[str]()
    for disk in disks:
        one, reason = _backup_disk(scene, disk), _why_all(scene, disk, sizes)
        long = base is not None and depths.get((base.id, disk.target), 0) + 1 > scene.spec.increments
        reason = reason or (_why_not_whole(scene, base, disk.target) if base and long else "")
        if not reason and base:
            one = dataclasses.replace(one, parent=base.id)
            expected += sizes.get(disk.target, 0)
            if long:
                flatten.append(disk.target)
                expected += host.flat_bytes(disk)
        else:
            one = dataclasses.replace(one, reason=reason)
            expected += host.flat_bytes(disk)
        made.append(one)
    bitmaps = tuple(disk.target for disk in disks if disk.format == "qcow2")
    point = _new_point(scene, made)
    point = dataclasses.replace(point, checkpoint=_PREFIX + point.id if bitmaps else None)
    agent = scene.spec.quiesce != "never" and has_agent(scene.xml)
    push = PushDisks(
        *scene.whose,
        point,
        tuple(disk.target for disk in host.disks(scene.xml)),
        bitmaps,
        base.checkpoint if base and any(disk.parent for disk in made) else None,
        expected,
        quiesce=agent,
        required=scene.spec.quiesce == "required",
    )
    gone = [_dropped(scene, one) for one in scene.own_checkpoints if base and one.name == base.checkpoint]
    steps = (StartPoint(*scene.whose, point), push, FinishPoint(*scene.whose, point, tuple(flatten)), *gone)
    return BackupPlan(steps, point=point, bytes_expected=expected)


def _backup_disk(scene: BackupScene, disk: GuestDisk) -> BackupDisk:
    inode, written_ns, _device = scene.host.file_facts(disk.path or "")
    size = scene.host.size_bytes(scene.found.uuid, disk)
    return BackupDisk(disk.target, size, disk.path or "", disk.format, inode=inode, written_ns=written_ns)


def _why_all(scene: BackupScene, disk: GuestDisk, sizes: t.Mapping[str, int]) -> str:
    """Why all of a disk is copied; empty if its changes are enough."""
    base, now = scene.base, _backup_disk(scene, disk)
    if scene.spec.full:
        return "all, as was asked for"
    before = base.disk(disk.target) if base else None
    here = base is not None and base.host == scene.host.host_uuid()
    if disk.format != "qcow2":
        return f"all, as a {disk.format} disk does not note what is changed"
    if base is None:
        return "all, as it is the first backup" if not scene.points else "all, as no backup was taken while it ran"
    if before is None:
        return "all, as the disk is new"
    if before.size_bytes != now.size_bytes:
        return f"all, as its size was {bytes_text(before.size_bytes)}"
    if here and before.source == now.source and before.inode != now.inode:
        return "all, as its file is another one than at the last backup"
    if chains(scene.points).get((base.id, disk.target), -1) < 0:
        return f"all, as a backup that {base.id} stands on is missing or damaged"
    if disk.target not in sizes and base.checkpoint not in scene.assumed:
        return "all, as what was changed is unknown: its bitmap is missing, or QEMU was killed"
    return ""


def _why_not_whole(scene: BackupScene, base: BackupPoint, target: str) -> str:
    """Why a chain of files must not be made one whole file, which would hide that one of them is damaged; or empty."""
    points = {point.id: point for point in scene.points}
    point: BackupPoint | None = base
    while point and (disk := point.disk(target)):
        path = os.path.join(scene.spec.repository, point.uuid, point.id, disk.file)
        if scene.host.sha256(path) != disk.sha256:
            return f"all, as {path} is damaged, or cannot be read"
        point = points.get(disk.parent or "")
    return ""


def _off(scene: BackupScene, disks: t.Sequence[GuestDisk]) -> BackupPlan:
    """The plan for a guest that is off: nothing if all is in files and nobody has written since, else all."""
    newest = scene.points[-1] if scene.points else None
    now = [_backup_disk(scene, disk) for disk in disks]
    same = newest and not newest.running and not scene.spec.full and not any(map(_is_device, disks))
    if newest and same and [_content(disk) for disk in newest.disks] == [_content(one) for one in now]:
        note = f"{scene.found.name} was not written since backup {newest.id}"
        return BackupPlan(notes=(note,), newest=newest.id)
    why = "all, as the guest is off"
    point = _new_point(scene, [dataclasses.replace(one, reason=why) for one in now])
    copies = [CopyDisk(*scene.whose, point, disk.target, str(disk.path), disk.format, why) for disk in disks]
    expected = sum(scene.host.flat_bytes(disk) for disk in disks)
    steps = (StartPoint(*scene.whose, point), *copies, FinishPoint(*scene.whose, point))
    return BackupPlan(steps, point=point, bytes_expected=expected)


def _is_device(disk: GuestDisk) -> bool:
    """True if no time tells when it was written: a mount or another host leaves the node in /dev as it is."""
    return disk.type == "block" or (disk.path or "").startswith("/dev/")


def _content(disk: BackupDisk) -> tuple[object, ...]:
    return disk.target, disk.source, disk.size_bytes, disk.inode, disk.written_ns


def _ahead(scene: BackupScene) -> BackupPoint | None:
    """The first point that was made with a clock ahead: later ones get times right after it, and take its period."""
    limit_s = scene.host.now_s() + _AHEAD_S
    return next((point for point in scene.points if point.created_s > limit_s), None)


def _of_the_points(scene: BackupScene) -> t.Iterator[str]:
    """Notes on points that are not pruned or do not count, and on those that are elsewhere."""
    if scene.spec.keep and (point := _ahead(scene)):
        yield (
            f"backup {point.id} is dated in the future; set the clock, or delete it and the later ones "
            "(state: absent); nothing is pruned"
        )
    whole = _whole(scene.points)
    if scene.spec.keep and (dead := [point.id for point in scene.points if point not in whole]):
        yield (
            f"{', '.join(dead)} cannot be restored, as a backup below is missing or damaged, and does not count for "
            "keep; to delete it: state: absent"
        )
    noted = xml_backup_record.within(parse(scene.found.xml))
    if scene.is_new and noted.repository == scene.spec.repository and noted.host != scene.host.host_uuid():
        yield (
            f"{scene.spec.repository} is empty here, and held backup {noted.point} of it on another host; if it is to "
            "be the same, mount it here"
        )


def _whole(points: t.Sequence[BackupPoint]) -> list[BackupPoint]:
    """Those of which all disks can be restored."""
    depths = chains(points)
    return [point for point in points if all(depths[point.id, disk.target] >= 0 for disk in point.disks)]


def _pruning(scene: BackupScene, new: BackupPoint | None) -> list[DeletePoint]:
    """The steps that delete the points whose time is over and that none stands on that is kept, newest first.

    What cannot be restored takes no period from a point that can, and goes when both have left it none.
    """
    if not scene.spec.keep or _ahead(scene):
        return []
    points = [*scene.points, *([new] if new else [])]
    whole = _whole(points)
    dead = {point.id for point in points if point not in whole}
    gone = {*expired(whole, scene.spec.keep), *dead.intersection(expired(points, scene.spec.keep))}
    kept = {point.id for point in points if point.id not in gone}
    base = new if new and new.checkpoint else scene.base
    below = [parent for one in scene.damaged for parent in one.parents]  # a disk of a damaged point may be whole
    kept |= {*scene.pinned, *([base.id] if base else []), *below}
    for point in sorted(points, key=lambda one: -one.created_s):
        kept |= point.parents if point.id in kept else set()
    return [DeletePoint(*scene.whose, point) for point in reversed(scene.points) if point.id not in kept]


def _deletion(scene: BackupScene, ident: str) -> BackupPlan:
    points: list[BackupPoint | BrokenPoint] = [*scene.points, *scene.damaged]
    point = next((one for one in points if one.id == ident), None)
    if point is None:
        return BackupPlan()
    above = [one.id for one in children(points, ident)]
    if above:
        raise Refused(
            f"cannot delete backup {ident} of {scene.found.name}: {', '.join(above)} holds only what was changed "
            "since; delete that first, or let keep delete both when their time is over"
        )
    if ident in scene.pinned:
        place = os.path.join(scene.spec.repository, point.uuid)
        raise Refused(
            f"cannot delete backup {ident} of {scene.found.name}: {scene.pinned[ident]} runs on it until all of it is "
            "copied; wait for the end of its restore"
            f"{_if_gone(place, scene.repository, [ident], scene.host.host_uuid())}"
        )
    return BackupPlan((DeletePoint(*scene.whose, point),))


def _if_gone(place: str, repository: Repository, idents: t.Iterable[str], host: str) -> str:
    """What ends restores of other hosts than this one, whose notes are with these points; empty if there are none."""
    pins = [(ident, pin) for ident in idents for pin in repository.pins.get(ident, ()) if pin.host != host]
    files = [os.path.join(place, ident, pin.file) for ident, pin in pins]
    return f"; if that host is gone for good: {shlex.join(['rm', *files])}" if files else ""


def _notes(scene: BackupScene, point: BackupPoint, disks: t.Sequence[GuestDisk]) -> t.Iterator[str]:
    if point.running and scene.spec.quiesce == "auto" and not has_agent(scene.xml):
        yield plan_snapshot_steps.not_frozen(f"backup {point.id} of {point.guest}")
    device = scene.host.facts(scene.spec.repository).device
    same = [disk.path for disk in disks if disk.path and scene.host.file_facts(disk.path)[2] == device]
    if same:
        yield (
            f"{scene.spec.repository} is on the filesystem of {same[0]}: a backup there is lost with the disk; mount "
            "another one there"
        )


def _of_the_repository(scene: BackupScene) -> t.Iterator[VirtError]:
    """A refusal if another repository is at the path, or none, though this host has put a backup of the guest there."""
    path, noted = scene.spec.repository, xml_backup_record.within(parse(scene.found.xml))
    if scene.spec.full or scene.points or noted.repository_id in (None, scene.repository.id):
        return
    if (noted.repository, noted.host) == (path, scene.host.host_uuid()):
        words = (f"guest={scene.found.name}", f"repository={path}", "full=true")
        anew = ["ansible-playbook", "corral.virt.backup", *(part for word in words for part in ("-e", word))]
        yield Refused(
            f"{_cannot(scene)}: {path} {'is empty' if scene.is_new else 'has none of its backups'}, and held backup "
            f"{noted.point} of it; mount its filesystem, or begin anew there with full: true ({shlex.join(anew)})"
        )


def _of_the_guest(scene: BackupScene, disks: t.Sequence[GuestDisk]) -> t.Iterator[VirtError]:
    spec, found, cannot = scene.spec, scene.found, _cannot(scene)
    if held := xml_backup_record.held(found.xml):
        yield Refused(f"{cannot}: {xml_backup_record.HELD}; {held}")
    if not found.persistent:
        yield Refused(f"{cannot}: it is transient; define it first (virsh define)")
    if not disks:
        yield Refused(f"{cannot}: it has no disk that it writes to; there is nothing to store")
    if spec.quiesce == "required" and not (found.active and has_agent(scene.xml)):
        yield Refused(
            f"{cannot}: {plan_snapshot_steps.NEEDS_AGENT}; install qemu-guest-agent in it, or use quiesce: auto"
        )
    if "managed_save" in scene.host.kept(found.uuid):
        yield Refused(
            f"{cannot}: what it has in memory is in its managed save image, which no backup holds; start it, or "
            f"discard the image ({shlex.join(['virsh', 'managedsave-remove', found.name])})"
        )
    for disk in disks if found.active else ():
        job = scene.host.job(found.uuid, disk.target)
        if job:
            show = shlex.join(["virsh", "blockjob", found.name, disk.target])
            yield Refused(f"{cannot}: a block job ({job}) works on disk {disk.target} ({show}); wait until it ends")


def _of_the_disks(scene: BackupScene, disks: t.Sequence[GuestDisk]) -> t.Iterator[VirtError]:
    for disk in disks:
        what = f"{_cannot(scene)}: disk {disk.target}"
        if disk.encrypted:
            yield Refused(
                f"{what} is encrypted, and its backup would not be; encrypt inside the guest, and the filesystem of "
                "the repository"
            )
        elif not disk.path and not scene.found.active:
            yield Refused(f"{what} is no file or device of this host ({disk.type}); back the guest up while it runs")


def check_same_point(
    step: DeletePoint, points: t.Sequence[BackupPoint | BrokenPoint], pinned: t.Collection[str] = ()
) -> None:
    """Raise Refused if the point is another one by now, or a point or guest stands on it."""
    found = next((one for one in points if one.id == step.point.id), None)
    if found != step.point or children(points, step.point.id) or step.point.id in pinned:
        raise Refused(f"cannot delete backup {step.point.id} of {step.guest}: it has changed meanwhile; run again")


def check_same_checkpoint(step: DropCheckpoint, found: t.Sequence[Checkpoint]) -> None:
    """Raise Refused if the checkpoint is somebody else's by now."""
    if (step.name, step.repository) not in [(one.name, one.repository) for one in found]:
        raise Refused(f"cannot delete checkpoint {step.name} of {step.guest}: it is another one by now; run again")


def check_part(step: DiscardPart, place: str, job: tuple[str, ...] | None) -> None:
    """Raise Refused if a job writes to the folder."""
    if any(os.path.dirname(path) == place for path in job or ()):
        raise Refused(f"cannot delete {place}: a backup of {step.guest} writes to it by now; run again")


def check_unwritten(step: FinishPoint, sources: t.Mapping[str, tuple[object, object]]) -> None:
    """Raise Refused if a disk of a guest that was off was written while it was copied."""
    for path, (before, after) in sources.items():
        if before != after:
            raise Refused(
                f"cannot finish backup {step.point.id} of {step.guest}: {path} was written while it was copied; run "
                "again"
            )


def checked(params: t.Mapping[str, t.Any]) -> list[BackupSpec]:
    """What is asked for of each guest; raises BadInput with every problem."""
    keep = {period: count for period, count in (params["keep"] or {}).items() if count is not None}
    problems = Problems(_problems(params, keep))
    for guest in params["guests"]:
        problems.tried(lambda guest=guest: check_existing_name(guest, what="guests"))  # type: ignore[misc]
    problems.refuse()
    path = os.path.normpath(params["repository"])
    return [
        BackupSpec(
            guest,
            path,
            params["point"],
            params["quiesce"],
            params["increments"],
            keep,
            full=params["full"],
            encrypted=params["encrypted"],
        )
        for guest in params["guests"]
    ]


def _problems(params: t.Mapping[str, t.Any], keep: t.Mapping[str, int]) -> t.Iterator[str]:
    guests = params["guests"]
    if not guests:
        yield "guests: name at least one"
    for guest in sorted({guest for guest in guests if guests.count(guest) > 1}):
        yield f"guests: {guest} is given twice"
    yield from path_problems(params["repository"])
    for option, least in (("bandwidth", 0), ("job_timeout", 1), ("increments", 0), ("at_once", 1)):
        if not least <= params[option] <= _MOST:
            yield f"{option}: must be from {least} to {_MOST}, not {params[option]}"
    if params["keep"] is not None:
        yield from keep_problems(keep)
    if params["state"] == "absent" and params["point"] is None:
        yield "point: state: absent requires it; `ansible-playbook corral.virt.backups` shows them"
    if params["state"] == "present" and params["point"] is not None:
        yield "point: requires state: absent"
    for option in ("keep", "full"):
        if params["state"] == "absent" and params[option]:
            yield f"{option}: requires state: present"
    if params["point"] is not None and len(guests) > 1:
        yield "point: belongs to one guest; name one"
