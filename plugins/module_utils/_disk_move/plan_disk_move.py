# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide how a disk of a guest moves to another pool of its host, and what must not be so. Pure.

A mark beside the new file tells which disk of which guest it is for, where that was, and which file it is: so a later
run goes on, or begins again, and never takes somebody else's file for its own.
"""

from __future__ import annotations

import base64
import dataclasses
import difflib
import os.path
import re
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems, refuse_all
from ansible_collections.corral.virt.plugins.module_utils._core.step import Plan
from ansible_collections.corral.virt.plugins.module_utils._disk_move import plan_disk_place
from ansible_collections.corral.virt.plugins.module_utils._disk_move.plan_disk_move_steps import (
    Begin,
    BeginLogical,
    ConvertOff,
    CopyOff,
    CopyRunning,
    Finish,
    FinishLogical,
    Pivot,
    Remember,
)
from ansible_collections.corral.virt.plugins.module_utils._disk_move.plan_disk_place import DiskFile, DiskPlace
from ansible_collections.corral.virt.plugins.module_utils._disk_move.xml_disk_move import is_encrypted, mirror, moved
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_disk, fields_record, xml_backup_record
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest, Volume, owner_tag
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_guest_steps import Define, DeleteVolume, GuestStep
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_thin_pool
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import ThinPool, VolumeGroup
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_steps import (
    GrowLogicalVolume,
    GrowRunningDisk,
    GrowThinVolume,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity, OwnedVolume

_MOST = 2**31 - 1
_NOTHING_BYTES = 1024**2  # what the tables of an empty qcow2 stay below


@dataclasses.dataclass(frozen=True)
class MoveSpec:
    """What is asked for."""

    guest: str
    disk: str
    pool: str
    format: str | None = None  # None: that it has, where the pool can have it
    thin_pool: str | None = None  # in the volume group of the pool; None: none, or that it is in


class Mark(t.NamedTuple):
    """What is recorded beside the new file."""

    disk: str
    guest: str  # UUID
    source: str  # where the disk was
    owned: bool  # whether that file was made for the guest, and goes
    old: FileIdentity | None = None

    @property
    def tag(self) -> str:
        """The mark as an LVM tag, which has few characters."""
        text = base64.urlsafe_b64encode(self.text().encode(errors="surrogateescape"))
        return _TAG + text.decode().rstrip("=")

    def text(self) -> str:
        """The first line of the mark."""
        known = f"{self.old.inode} {self.old.born_ns} {self.old.mark}" if self.old else "unknown"
        own = "own" if self.owned else "kept"
        return f"disk {self.disk} of guest {self.guest}, moved from {self.source} ({own}, {known})"

    @classmethod
    def of(cls, text: str) -> Mark | None:
        """The mark with this first line; None for one of others."""
        found = _MARK.fullmatch(text)
        if found is None:
            return None
        disk, guest, source, own, inode, born, mark = (None if one == "None" else one for one in found.groups())
        born_ns = int(born) if born else None
        old = FileIdentity(int(inode), born_ns, mark) if inode else None
        return cls(str(disk), str(guest), str(source), own == "own", old)


_MARK = re.compile(r"disk (\S+) of guest (\S+), moved from (/.*) \((own|kept), (?:(\d+) (\d+|None) ([\w-]+)|unknown)\)")
_TAG = "corral.moves."


def of_tags(tags: t.Iterable[str]) -> str | None:
    """The text of the mark that is a tag of a logical volume; None without one."""
    for tag in tags:
        if tag.startswith(_TAG):
            text = tag[len(_TAG) :]
            return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode(errors="surrogateescape")
    return None


class MoveHost(t.Protocol):
    """The host of the guest; its files and devices are those of this machine."""

    def guest(self, name: str) -> FoundGuest | None:
        """The guest."""

    def pools(self) -> tuple[str, ...]:
        """Names of the pools."""

    def pool(self, name: str) -> PoolDirectory:
        """The pool with its directory; raises NotFound, or Refused if no disks can be made in it here."""

    def group(self, pool: str) -> VolumeGroup | None:
        """The volume group of a pool; None if it has none, or nobody can ask LVM."""

    def thin_pool(self, pool: str, name: str, but: str) -> ThinPool | None:
        """A thin pool in the volume group of a pool, without what the volume `but` takes; None if there is none."""

    def thin_pool_of(self, path: str) -> str | None:
        """The name of the thin pool that a disk is a volume of; None if it is no thin volume."""

    def pool_of(self, path: str) -> str | None:
        """The name of the pool that has a volume with this path; None if none has."""

    def free_bytes(self, pool: PoolDirectory) -> int:
        """Bytes that are free there."""

    def taken_bytes(self, path: str) -> int:
        """Bytes that a file or device takes."""

    def content_bytes(self, path: str, form: str) -> int:
        """Bytes that the content of a disk with this format takes in a file, with that of its backing files."""

    def located(self, pool: str, volume: str) -> str | None:
        """The path of a volume."""

    def kept(self, uuid: str) -> tuple[str, ...]:
        """What libvirt stores beside the definition: managed_save, snapshots, checkpoints."""

    def only_backups(self, uuid: str) -> bool:
        """True if all of its checkpoints are of backups of this collection."""

    def job(self, uuid: str, target: str) -> str | None:
        """What works on the disk of a running guest: copy, backup or another word; None: nothing."""

    def user(self, path: str, but: str) -> str | None:
        """Who uses a file, but the guest with this UUID."""

    def file(self, path: str, form: str) -> DiskFile | None:
        """The file or device of a disk with this format; None if it is missing or neither."""

    def exists(self, path: str) -> bool:
        """True if there is something of that name."""

    def mark(self, pool: str, name: str) -> tuple[str, FileIdentity | None] | None:
        """The mark of a volume, and the file or device there if it is about that one; None without a mark."""

    def host_uuid(self) -> str:
        """The UUID of the host."""


@dataclasses.dataclass(frozen=True)
class MovePlan(Plan[GuestStep]):
    """What is done to the disk; `path` and `format` are those afterwards, `before` is where it was."""

    path: str = ""
    format: str = ""
    disk: str = ""
    before: str = ""
    size_bytes: int = 0  # to copy
    needed_bytes: int = 0  # in the new place

    @property
    def old_file(self) -> str:
        """What becomes of the file that the guest no longer uses; empty if nothing is done."""
        if not self.steps:
            return ""
        return "deleted" if any(isinstance(step, DeleteVolume) for step in self.steps) else "kept"


@dataclasses.dataclass(frozen=True)
class _Move:
    """One move with all that its parts need."""

    spec: MoveSpec
    found: FoundGuest
    name: str
    target: str
    source: str
    format: str
    place: DiskPlace
    promised_bytes: int = 0  # of the room there, for disks that move before

    @property
    def what(self) -> str:
        return f"disk {self.name} of {self.found.name}"

    @property
    def to(self) -> str:
        return self.place.path


def nearest(name: str, names: t.Sequence[str], otherwise: str) -> str:
    """What to write instead of a name that is none of these: the most similar one, or one of all."""
    near = difflib.get_close_matches(name, names, 1)
    if near:
        return f"did you mean {near[0]}?"
    return f"choose one of {', '.join(names)}" if names else otherwise


def unknown_pools(names: t.Iterable[str], what: str, host: MoveHost) -> list[VirtError]:
    """A problem for each of these pools that is not there; `what` cannot be done without it."""
    known = host.pools()
    lacking = [name for name in dict.fromkeys(names) if name not in known]
    remedy = "create it with virt_pool"
    return [NotFound(f"{what}: there is no pool {name} here; {nearest(name, known, remedy)}") for name in lacking]


def plan(spec: MoveSpec, host: MoveHost, *, promised_bytes: int = 0) -> MovePlan:
    """The plan; raises all refusals at once. `promised_bytes` of the room are for disks that move before."""
    found, cannot = host.guest(spec.guest), f"cannot move disk {spec.disk} of {spec.guest}"
    if found is None:
        raise NotFound(f"{cannot}: there is no such guest here; run this on its host")
    disks, live = fields_disk.by_name(found.xml), fields_disk.by_name(found.live_xml or found.xml)
    problems = unknown_pools([spec.pool], cannot, host)
    if spec.disk not in disks:
        names = list(dict.fromkeys(one["name"] for one in disks.values()))
        why = f"it has no such disk; {nearest(spec.disk, names, 'it has none')}"
        if spec.disk in live:
            why = "only the running guest has it; store it in its definition, too (virsh attach-disk --config)"
        problems.insert(0, NotFound(f"{cannot}: {why}"))
    refuse_all(problems)
    disk, pool = disks[spec.disk], host.pool(spec.pool)
    source, running = (path_of(one, host) for one in (disk, live.get(disk["name"], {})))
    name = disk["name"]
    if not source:
        raise Refused(f"cannot move disk {name} of {spec.guest}: it is no file or device; move its content by hand")
    form = disk.get("format", "raw")
    stays = os.path.dirname(source) == str(pool.path)
    is_thin = bool(spec.thin_pool) and stays and host.thin_pool_of(source) == spec.thin_pool
    place = plan_disk_place.place_in(
        pool, source, form, spec.format, host.group(pool.name), spec.thin_pool, is_thin=is_thin
    )
    move = _Move(spec, found, name, disk["target"], source, form, place, promised_bytes)
    left, part = _left(move, host)
    if stays and place.format == form and (is_thin or not spec.thin_pool):
        return _finished(move, left, host)
    return _moved(move, disk, running, left, part, host)


def is_alone(disk: t.Mapping[str, t.Any], path: str | None, found: FoundGuest) -> bool:
    """True for a disk that only this guest uses: one that it writes, or its own seed."""
    own = path in [one.path for one in _entries(found)]
    return disk.get("device", "disk") == "disk" and not disk.get("shareable") and (own or not disk.get("readonly"))


def path_of(disk: t.Mapping[str, t.Any], host: MoveHost) -> str | None:
    """The file or device of a disk; None if it is neither."""
    if disk.get("pool"):
        return host.located(disk["pool"], disk["volume"])
    path = disk.get("source")
    return str(path) if path and str(path).startswith("/") else None


def is_marked(which: str, now: str, mark: FileIdentity | None, file: FileIdentity | None, taken_bytes: int) -> bool:
    """True if a mark is about the file that has the name `now`. A run killed before it recorded `which` file it
    has made leaves one that is not older than the mark, and holds next to nothing.
    """
    if which:
        return which == now
    if mark is None or mark.born_ns is None or file is None or file.born_ns is None:
        return False
    return file.born_ns >= mark.born_ns and taken_bytes < _NOTHING_BYTES


def _left(move: _Move, host: MoveHost) -> tuple[Mark | None, FileIdentity | None]:
    """The mark of this very move, and the file that it is about; None where there is none."""
    text, part = host.mark(move.spec.pool, move.place.name) or ("", None)
    mark = Mark.of(text) if part or not host.exists(move.to) else None
    ours = mark is not None and (mark.disk, mark.guest) == (move.name, move.found.uuid)
    return (mark, part) if ours else (None, None)


def _finished(move: _Move, left: Mark | None, host: MoveHost) -> MovePlan:
    """What an interrupted run has not done after the switch."""
    if left is None:
        return MovePlan(path=move.source, format=move.format, disk=move.name, before=move.source)
    steps = tuple(_after(move, left, host))
    return MovePlan(steps, path=move.source, format=move.format, disk=move.name, before=left.source)


def _after(move: _Move, left: Mark, host: MoveHost) -> t.Iterator[GuestStep]:
    """The steps after the switch of a running guest's disk, and all that remains after an interruption."""
    guest, place = move.found.name, move.place
    if left.owned and move.to not in [one.path for one in _entries(move.found)]:
        yield Remember(guest, move.found.uuid, left.source, move.to)
    if left.owned and host.exists(left.source):
        yield DeleteVolume(guest, left.source, left.old)
    if place.is_logical:
        yield FinishLogical(guest, move.spec.pool, move.to, left.tag)
    else:
        yield Finish(guest, move.spec.pool, place.name)


def _entries(found: FoundGuest) -> tuple[OwnedVolume, ...]:
    return tuple(fields_record.of(found).get("volumes") or ())


def _moved(
    move: _Move,
    disk: t.Mapping[str, t.Any],
    running: str | None,
    left: Mark | None,
    part: FileIdentity | None,
    host: MoveHost,
) -> MovePlan:
    found, file = move.found, host.file(move.source, move.format)
    job = host.job(found.uuid, move.target) if found.active else None
    ours = job == "copy" and left is not None and mirror(str(found.live_xml), move.target) == move.to
    problems = [*_of_the_guest(move, disk, running, job if not ours else None, host), *_of_the_file(move, file, host)]
    copied = needed = 0
    if not problems and file is not None:
        copied = copied_bytes(file, move.place, move.source, host)
        needed = move.place.needed_bytes(file, copied)
        problems += _of_the_place(move, file, part, needed, host) if not ours else []
    refuse_all(problems)
    file = t.cast(DiskFile, file)
    entry = next((one for one in _entries(found) if one.path == move.source), None)
    owned = entry is not None and entry.is_of(found.uuid, host.host_uuid()) and _is_known(entry, file)
    mark = left if ours and left else Mark(move.name, found.uuid, move.source, owned, file.identity)
    steps: list[GuestStep] = [] if ours else [*_grown(move, file, host), _begin(move, file, mark, part)]
    steps += _switched(move, file, mark, copied, ours=ours, host=host)
    changes = [Change(f"disks[{move.name}].source", move.source, move.to)]
    if move.place.format != move.format:
        changes.append(Change(f"disks[{move.name}].format", move.format, move.place.format))
    return MovePlan(
        tuple(steps),
        tuple(changes),
        notes=() if owned else (_kept_note(move, file),),
        path=move.to,
        format=move.place.format,
        disk=move.name,
        before=move.source,
        size_bytes=copied,
        needed_bytes=needed,
    )


def copied_bytes(file: DiskFile, place: DiskPlace, source: str, host: MoveHost) -> int:
    """What is copied of a disk: its file, or all that the guest sees of it."""
    return file.allocated_bytes if place.keeps(file) else host.content_bytes(source, file.format)


def _kept_note(move: _Move, file: DiskFile) -> str:
    """A note on the old file or device of a disk that was not made for the guest."""
    kept = f"{move.source} was not made for {move.found.name} by the collection; it is kept"
    return kept if file.is_device else f"{kept}: if nobody needs it, `{shlex.join(['rm', move.source])}`"


def _is_known(entry: OwnedVolume, file: DiskFile) -> bool:
    """True if the file is the one that was made for the guest, and can be told from others when it is to go."""
    known = file.identity is not None and file.identity.is_known
    return known and not (entry.identity and not entry.identity.is_same(t.cast(FileIdentity, file.identity)))


def _grown(move: _Move, file: DiskFile, host: MoveHost) -> t.Iterator[GuestStep]:
    """Steps that make a running guest's disk as large as its new place, as QEMU copies only between equal sizes."""
    guest, size = move.found.name, move.place.capacity_bytes(file)
    if not move.found.active or file.capacity_bytes == size:
        return
    if file.is_device:
        kind = GrowThinVolume if host.thin_pool_of(move.source) else GrowLogicalVolume
        yield kind(guest, move.source, str(host.pool_of(move.source)), file.capacity_bytes, size)
    yield GrowRunningDisk(guest, move.source, size, move.target)


def _begin(move: _Move, file: DiskFile, mark: Mark, part: FileIdentity | None) -> GuestStep:
    place, keeps = move.place, move.place.keeps(file)
    volume = Volume(
        pool=move.spec.pool,
        name=place.name,
        path=move.to,
        capacity_bytes=place.capacity_bytes(file),
        format=place.format,
        backing_path=file.backing if keeps else None,
        backing_format=file.backing_format if keeps else None,
    )
    if not place.group:
        return Begin(move.found.name, volume, mark.text(), part)
    tags = (owner_tag(move.found.uuid), mark.tag)
    return BeginLogical(
        move.found.name, volume, place.group.name, tags, file.capacity_bytes, part, move.spec.thin_pool or ""
    )


def _switched(move: _Move, file: DiskFile, mark: Mark, copied: int, *, ours: bool, host: MoveHost) -> list[GuestStep]:
    found, place = move.found, move.place
    flattens = "" if place.keeps(file) else file.backing or ""
    if not found.active:
        entries = [one for one in _entries(found) if one.path != move.source]
        made = (*entries, OwnedVolume(move.to, found.uuid, host.host_uuid())) if mark.owned else None
        xml = moved(found.xml, move.name, move.to, place.format, made)
        seen = fields_record.fingerprint(found.xml)
        after = [one for one in _after(move, mark, host) if not isinstance(one, Remember)]
        copy: GuestStep = CopyOff(found.name, move.source, move.to, copied)
        if not place.keeps(file):
            formats, empty = (move.format, place.format), bool(place.thin_pool) or not place.group
            copy = ConvertOff(found.name, move.source, move.to, copied, *formats, flattens, empty=empty)
        define = Define(found.name, xml, f"disk {move.name} in pool {move.spec.pool}", found.uuid, seen)
        return [copy, define, *after]
    shallow = place.keeps(file) and file.backing is not None
    copying = CopyRunning(
        found.name,
        found.uuid,
        move.target,
        move.to,
        place.format,
        shallow,
        copied,
        goes_on=ours,
        becomes=place.format if place.format != move.format else "",
        flattens=flattens,
    )
    pivot = Pivot(found.name, found.uuid, move.target, move.source, move.to, move.spec.pool)
    return [copying, pivot, *_after(move, mark, host)]


_KEPT = {
    "snapshots": "it has snapshots, which name the file; delete them first (playbook delete_snapshot, virt_snapshot "
    "with state: absent, or virsh snapshot-delete)",
    "checkpoints": "it has checkpoints, whose bitmaps would stay behind; delete them first (virsh checkpoint-delete)",
    "managed_save": "its saved state names the file; start it, or discard the state (virsh managedsave-remove)",
}


def _of_the_guest(
    move: _Move, disk: t.Mapping[str, t.Any], running: str | None, job: str | None, host: MoveHost
) -> t.Iterator[VirtError]:
    cannot, found = f"cannot move {move.what}", move.found
    if held := xml_backup_record.held(found.xml):
        yield Refused(f"{cannot}: {xml_backup_record.HELD}; {held}")
    if not found.persistent:
        yield Refused(f"{cannot}: the guest is transient, and its old disk would come back; define it first")
    if not is_alone(disk, move.source, found):
        yield Refused(f"{cannot}: only disks that one guest alone writes move; choose the medium anew")
    if running != move.source:
        yield Refused(
            f"{cannot}: the running guest has {running or 'no such disk'}, the stored definition {move.source}; shut "
            "it down, or let its definition be as it runs, and run again"
        )
    where = f"{cannot} to pool {move.spec.pool}"
    yield from plan_disk_place.format_problems(
        where, move.place, move.format, move.spec.format, is_seed=bool(disk.get("readonly"))
    )
    for kind in host.kept(found.uuid):
        if kind in _KEPT and not (kind == "checkpoints" and host.only_backups(found.uuid)):
            yield Refused(f"{cannot}: {_KEPT[kind]}")
    if job:
        show = shlex.join(["virsh", "blockjob", found.name, move.target])
        yield Refused(f"{cannot}: a block job ({job}) works on it ({show}); wait until it ends")


def _of_the_file(move: _Move, file: DiskFile | None, host: MoveHost) -> t.Iterator[VirtError]:
    cannot = f"cannot move {move.what}"
    if file is None:
        yield NotFound(f"{cannot}: {move.source} is missing, or neither a file nor a device; use virsh blockcopy")
        return
    if file.is_device and file.format == "raw" and file.capacity_bytes != file.allocated_bytes:
        yield Refused(f"{cannot}: an interrupted run was growing it; run virt_domain with its size again")
    if file.opened and not move.found.active:
        show = shlex.join(["fuser", "-v", move.source])
        yield Refused(f"{cannot}: a process that libvirt does not know has it open (see `{show}`); stop that first")
    yield from _of_the_encryption(move, file)
    if file.format != move.format:
        yield Refused(
            f"{cannot}: the guest uses it as {move.format}, and its first bytes say {file.format}; inspect it, and "
            "move it by hand"
        )
    if file.backing and not file.backing.startswith("/"):
        yield Refused(
            f"{cannot}: it names its backing file without a directory ({file.backing}); name it by its path "
            "(qemu-img rebase -u -b) while the guest is off"
        )
    if file.data_file:
        yield Refused(f"{cannot}: its data is in {file.data_file}; flatten it with qemu-img convert first")
    if file.backing and not file.backing_format:
        yield Refused(
            f"{cannot}: it does not say which format its backing file {file.backing} has; record it (qemu-img rebase "
            "-u -F) while the guest is off"
        )
    user = host.user(move.source, move.found.uuid)
    if user:
        yield Refused(f"{cannot}: {user} uses {move.source}, too; remove that first")


def _of_the_encryption(move: _Move, file: DiskFile) -> t.Iterator[VirtError]:
    """Why an encrypted disk does not move: only a copy of its file, byte by byte, is encrypted as well."""
    cannot = f"cannot move {move.what}: it is encrypted, and its copy would not be"
    if file.encrypted:
        yield Refused(f"{cannot}; shut the guest down, and copy the file")
    elif is_encrypted(move.found.xml, move.name) and (move.found.active or not move.place.keeps(file)):
        yield Refused(f"{cannot}; shut the guest down, and move it to a pool of files, as {file.format}")


def _of_the_place(
    move: _Move, file: DiskFile, part: FileIdentity | None, needed: int, host: MoveHost
) -> t.Iterator[VirtError]:
    cannot = f"cannot move {move.what} to pool {move.spec.pool}"
    foreign = part is None and host.exists(move.to)
    user = host.user(move.to, "") if foreign or part is not None else None
    if foreign and user:
        yield Refused(f"{cannot}: {move.to} exists, and {user} uses it; choose another pool")
    elif foreign:
        yield Refused(
            f"{cannot}: {move.to} exists, and is no part of this move; rename or remove it if no other host uses it"
        )
    elif user:
        yield Refused(f"{cannot}: a part is left in {move.to}, and {user} uses it; remove that first")
    if move.found.active and file.is_device:
        pool = host.pool_of(move.source)
        group, is_thin = host.group(pool) if pool else None, bool(host.thin_pool_of(move.source))
        yield from plan_disk_place.cannot_grow(cannot, move.place, file, group, is_thin=is_thin)
    if move.place.thin_pool:
        yield from _of_the_thin_pool(move, file, needed, move.place.name if part else "", host)
        return
    free = host.free_bytes(move.place.pool) + (host.taken_bytes(move.to) if part else 0)
    yield from plan_disk_place.lack_of_room(
        cannot,
        move.place,
        needed,
        max(0, free - move.promised_bytes),
        beside=bool(move.promised_bytes),
        flattens="" if move.place.keeps(file) else file.backing or "",
    )


def _of_the_thin_pool(move: _Move, file: DiskFile, copied: int, part: str, host: MoveHost) -> t.Iterator[VirtError]:
    """Why the thin pool cannot take the disk, beside the `part` of it that is replaced."""
    cannot, name = f"cannot move {move.what} to pool {move.spec.pool}", str(move.place.thin_pool)
    size = move.place.capacity_bytes(file)
    thin = host.thin_pool(move.spec.pool, name, part)
    if thin is None:
        yield plan_thin_pool.missing(cannot, str(move.place.pool.group), name)
        return
    yield from plan_thin_pool.problems(cannot, thin, size, size if move.found.active else copied)  # QEMU writes zeros


def check_pivot(step: Pivot, source: str | None, copied: str | None, *, marked: bool) -> None:
    """Raise Refused if the disk is not the one that is copied any more, or another file has the name of the copy."""
    if source != step.path or copied != step.to or not marked:
        other = "" if marked else f"; another file has the name {step.to}"
        raise Refused(
            f"cannot switch disk {step.target} of {step.guest}: it is {source or 'gone'} by now, copied to "
            f"{copied or 'nothing'}{other}; inspect it (virsh blockjob), and run again"
        )


def check_still_off(step: CopyOff | ConvertOff, *, active: bool, written: bool, same: bool = True) -> None:
    """Raise Refused if the copy of a guest's disk is not what the disk is now."""
    if active or written or not same:
        why = "the guest runs by now" if active else "something has written to it"
        raise Refused(
            f"cannot move disk {step.path} of {step.guest}: {why}; it is where it was, and {step.to} is removed by the "
            "next run; run again"
        )


def another_run(guest: str) -> str:
    """The error for a run that finds another one at work on the guest."""
    return f"cannot move a disk of {guest}: another run moves one, or migrates it; wait for that run, and run again"


def checked(params: t.Mapping[str, t.Any]) -> MoveSpec:
    """The options; raises BadInput with every problem."""
    problems = Problems(f"{option}: must not be empty" for option in ("guest", "disk", "pool") if not params[option])
    problems.found += check_limits(params)
    problems.refuse()
    return MoveSpec(
        params["guest"], params["disk"], params["pool"], params.get("format"), params.get("thin_pool") or None
    )


def check_limits(params: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """The problems of the options that limit a copy."""
    for option, least in (("bandwidth", 0), ("job_timeout", 1)):
        if not least <= params[option] <= _MOST:
            yield f"{option}: must be from {least} to {_MOST}, not {params[option]}"
