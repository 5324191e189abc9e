# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide how a disk of a guest moves to another pool of its host, and what must not be so. Pure.

A mark beside the new file tells which disk of which guest it is for, where that was, and which file it is: so a later
run goes on, or begins again, and never takes somebody else's file for its own.
"""

from __future__ import annotations

import dataclasses
import difflib
import os.path
import re
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems, refuse_all
from ansible_collections.corral.virt.plugins.module_utils._core.step import Look, Plan
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text
from ansible_collections.corral.virt.plugins.module_utils._disk_move.xml_disk_move import mirror, moved
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_disk, fields_record
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest, Volume
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_guest_steps import Define, DeleteVolume, GuestStep
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity, OwnedVolume

__all__ = [
    "Begin",
    "CopyOff",
    "CopyRunning",
    "DiskFile",
    "Finish",
    "Mark",
    "MoveHost",
    "MovePlan",
    "MoveSpec",
    "Pivot",
    "Remember",
    "another_run",
    "check_limits",
    "check_pivot",
    "check_still_off",
    "checked",
    "is_alone",
    "is_marked",
    "nearest",
    "path_of",
    "plan",
    "unknown_pools",
]


_MOST = 2**31 - 1
_NOTHING_BYTES = 1024**2  # what the tables of an empty qcow2 stay below


@dataclasses.dataclass(frozen=True)
class MoveSpec:
    """What is asked for."""

    guest: str
    disk: str
    pool: str


class DiskFile(t.NamedTuple):
    """The file of a disk: what it takes, how large the guest sees it, what it stands on, and which file it is."""

    allocated_bytes: int
    capacity_bytes: int
    format: str  # as its first bytes say
    backing: str | None
    backing_format: str | None
    data_file: str | None
    encrypted: bool
    identity: FileIdentity | None


class Mark(t.NamedTuple):
    """What is recorded beside the new file."""

    disk: str
    guest: str  # UUID
    source: str  # where the disk was
    owned: bool  # whether that file was made for the guest, and goes
    old: FileIdentity | None = None

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
        old = FileIdentity(int(inode), int(born) if born else None, mark) if inode else None
        return cls(str(disk), str(guest), str(source), own == "own", old)


_MARK = re.compile(r"disk (\S+) of guest (\S+), moved from (/.*) \((own|kept), (?:(\d+) (\d+|None) (\w+)|unknown)\)")


class MoveHost(t.Protocol):
    """The host of the guest; its files are those of this machine."""

    def guest(self, name: str) -> FoundGuest | None:
        """The guest."""

    def pools(self) -> tuple[str, ...]:
        """Names of the pools."""

    def pool(self, name: str) -> PoolDirectory:
        """The pool with its directory; raises NotFound, or Refused if its volumes are no files here."""

    def free_bytes(self, directory: str) -> int:
        """Bytes that are free there."""

    def taken_bytes(self, path: str) -> int:
        """Bytes that a file takes."""

    def located(self, pool: str, volume: str) -> str | None:
        """The path of a volume."""

    def kept(self, uuid: str) -> tuple[str, ...]:
        """What libvirt stores beside the definition: managed_save, snapshots, checkpoints."""

    def job(self, uuid: str, target: str) -> str | None:
        """What works on the disk of a running guest: copy, backup or another word; None: nothing."""

    def user(self, path: str, but: str) -> str | None:
        """Who uses a file, but the guest with this UUID."""

    def file(self, path: str, form: str) -> DiskFile | None:
        """The file of a disk with this format; None if it is missing or no regular file."""

    def exists(self, path: str) -> bool:
        """True if there is something of that name."""

    def mark(self, pool: str, name: str) -> tuple[str, FileIdentity | None] | None:
        """The mark beside a volume, and the file there if that is the one it is about; None without a mark."""

    def host_uuid(self) -> str:
        """The UUID of the host."""


@dataclasses.dataclass(frozen=True)
class Begin(GuestStep):
    """Make the empty file that the disk moves into, and the mark beside it."""

    look: t.ClassVar[Look | None] = Look(
        at="of the part that is replaced: inode and birth of the file, as its mark tells, and who uses it",
        holds="the part, moved aside",
        leaves="the file; its user",
        by=("part",),
    )

    volume: Volume
    mark: str = dataclasses.field(repr=False)
    part: FileIdentity | None = None  # the file that an interrupted run has left in its place

    def __str__(self) -> str:
        again = " (again: an interrupted run has left a part)" if self.part else ""
        return f"create disk {self.volume.path}{again}"


@dataclasses.dataclass(frozen=True)
class CopyRunning(GuestStep):
    """Let the running guest's QEMU copy the disk, and write what the guest writes to both."""

    uuid: str = dataclasses.field(repr=False)
    target: str
    to: str
    format: str
    shallow: bool
    size_bytes: int
    goes_on: bool = False  # an interrupted run has begun it

    def __str__(self) -> str:
        how = "go on copying" if self.goes_on else "copy"
        return f"{how} disk {self.target} of running {self.guest} ({bytes_text(self.size_bytes)}) to {self.to}"


@dataclasses.dataclass(frozen=True)
class CopyOff(GuestStep):
    """Copy the file of a guest that is off, and compare both."""

    path: str
    to: str
    size_bytes: int

    def __str__(self) -> str:
        return f"copy disk {self.path} ({bytes_text(self.size_bytes)}) to {self.to}, and compare"


@dataclasses.dataclass(frozen=True)
class Pivot(GuestStep):
    """Let the running guest use the copy alone."""

    look: t.ClassVar[Look | None] = Look(
        at="UUID; that the disk is still the one that is copied, into the file that the mark tells of",
        holds="the copy follows each write until then",
        leaves="the guest on its old disk; the job",
        by=("uuid", "path", "to"),
    )

    uuid: str = dataclasses.field(repr=False)
    target: str
    path: str
    to: str
    pool: str = dataclasses.field(default="", repr=False)  # of the copy, and its mark

    def __str__(self) -> str:
        return f"switch disk {self.target} of running {self.guest} to {self.to}"


@dataclasses.dataclass(frozen=True)
class Remember(GuestStep):
    """Record that the new file was made for the guest, and the old one is no longer its."""

    uuid: str = dataclasses.field(repr=False)
    path: str
    to: str

    def __str__(self) -> str:
        return f"record that disk {self.to} is of {self.guest}"


@dataclasses.dataclass(frozen=True)
class Finish(GuestStep):
    """Remove the mark."""

    pool: str
    name: str

    def __str__(self) -> str:
        return f"record that {self.name} of pool {self.pool} is complete"


@dataclasses.dataclass(frozen=True)
class MovePlan(Plan[GuestStep]):
    """What is done to the disk; `path` is where it is afterwards, `before` where it was."""

    path: str = ""
    disk: str = ""
    before: str = ""
    size_bytes: int = 0  # to copy

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
    pool: PoolDirectory
    to: str
    promised_bytes: int = 0  # of the room there, for disks that move before

    @property
    def what(self) -> str:
        return f"disk {self.name} of {self.found.name}"


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
        raise Refused(f"cannot move disk {name} of {spec.guest}: it is no file; move its content by hand")
    move = _Move(
        spec, found, name, disk["target"], source, disk.get("format", "raw"), pool,
        os.path.join(str(pool.path), os.path.basename(source)), promised_bytes,
    )  # fmt: skip
    left, part = _left(move, host)
    if source == running == move.to or (os.path.dirname(source) == str(pool.path)):
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
    text, part = host.mark(move.spec.pool, os.path.basename(move.to)) or ("", None)
    mark = Mark.of(text) if part or not host.exists(move.to) else None
    ours = mark is not None and (mark.disk, mark.guest) == (move.name, move.found.uuid)
    return (mark, part) if ours else (None, None)


def _finished(move: _Move, left: Mark | None, host: MoveHost) -> MovePlan:
    """What an interrupted run has not done after the switch."""
    if left is None:
        return MovePlan(path=move.source, disk=move.name, before=move.source)
    return MovePlan(tuple(_after(move, left, host)), path=move.source, disk=move.name, before=left.source)


def _after(move: _Move, left: Mark, host: MoveHost) -> t.Iterator[GuestStep]:
    """The steps after the switch of a running guest's disk, and all that remains after an interruption."""
    guest, name = move.found.name, os.path.basename(move.to)
    if left.owned and move.to not in [one.path for one in _entries(move.found)]:
        yield Remember(guest, move.found.uuid, left.source, move.to)
    if left.owned and host.exists(left.source):
        yield DeleteVolume(guest, left.source, left.old)
    yield Finish(guest, move.spec.pool, name)


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
    if not problems and file is not None and not ours:
        problems += _of_the_place(move, file, part, host)
    refuse_all(problems)
    file = t.cast(DiskFile, file)
    entry = next((one for one in _entries(found) if one.path == move.source), None)
    owned = entry is not None and entry.is_of(found.uuid, host.host_uuid()) and _is_known(entry, file)
    mark = left if ours and left else Mark(move.name, found.uuid, move.source, owned, file.identity)
    steps: list[GuestStep] = [] if ours else [_begin(move, file, mark, part)]
    steps += _switched(move, file, mark, ours=ours, host=host)
    remove = shlex.join(["rm", move.source])
    why = f"{move.source} was not made for {found.name} by the collection; it is kept: if nobody needs it, `{remove}`"
    change = Change(f"disks[{move.name}].source", move.source, move.to)
    return MovePlan(
        tuple(steps),
        (change,),
        notes=() if owned else (why,),
        path=move.to,
        disk=move.name,
        before=move.source,
        size_bytes=file.allocated_bytes,
    )


def _is_known(entry: OwnedVolume, file: DiskFile) -> bool:
    """True if the file is the one that was made for the guest, and can be told from others when it is to go."""
    known = file.identity is not None and file.identity.is_known
    return known and not (entry.identity and not entry.identity.is_same(t.cast(FileIdentity, file.identity)))


def _begin(move: _Move, file: DiskFile, mark: Mark, part: FileIdentity | None) -> Begin:
    volume = Volume(
        pool=move.spec.pool,
        name=os.path.basename(move.to),
        path=move.to,
        capacity_bytes=file.capacity_bytes,
        format=move.format,
        backing_path=file.backing,
        backing_format=file.backing_format,
    )
    return Begin(move.found.name, volume, mark.text(), part)


def _switched(move: _Move, file: DiskFile, mark: Mark, *, ours: bool, host: MoveHost) -> list[GuestStep]:
    found = move.found
    if not found.active:
        entries = [one for one in _entries(found) if one.path != move.source]
        made = (*entries, OwnedVolume(move.to, found.uuid, host.host_uuid())) if mark.owned else None
        xml = moved(found.xml, move.name, move.to, made)
        seen = fields_record.fingerprint(found.xml)
        after = [one for one in _after(move, mark, host) if not isinstance(one, Remember)]
        return [
            CopyOff(found.name, move.source, move.to, file.allocated_bytes),
            Define(found.name, xml, f"disk {move.name} in pool {move.spec.pool}", found.uuid, seen),
            *after,
        ]
    copy = CopyRunning(
        found.name,
        found.uuid,
        move.target,
        move.to,
        move.format,
        file.backing is not None,
        file.allocated_bytes,
        goes_on=ours,
    )
    pivot = Pivot(found.name, found.uuid, move.target, move.source, move.to, move.spec.pool)
    return [copy, pivot, *_after(move, mark, host)]


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
    if not found.persistent:
        yield Refused(f"{cannot}: the guest is transient, and its old disk would come back; define it first")
    if not is_alone(disk, move.source, found):
        yield Refused(f"{cannot}: only disks that one guest alone writes move; choose the medium anew")
    if running != move.source:
        yield Refused(
            f"{cannot}: the running guest has {running or 'no such disk'}, the stored definition {move.source}; shut "
            "it down, or let its definition be as it runs, and run again"
        )
    for kind in host.kept(found.uuid):
        if kind in _KEPT:
            yield Refused(f"{cannot}: {_KEPT[kind]}")
    if job:
        show = shlex.join(["virsh", "blockjob", found.name, move.target])
        yield Refused(f"{cannot}: a block job ({job}) works on it ({show}); wait until it ends")


def _of_the_file(move: _Move, file: DiskFile | None, host: MoveHost) -> t.Iterator[VirtError]:
    cannot = f"cannot move {move.what}"
    if file is None:
        yield NotFound(f"{cannot}: {move.source} is missing, or no regular file; use virsh blockcopy")
        return
    if file.encrypted:
        yield Refused(f"{cannot}: it is encrypted, and its copy would not be; shut the guest down, and copy the file")
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


def _of_the_place(move: _Move, file: DiskFile, part: FileIdentity | None, host: MoveHost) -> t.Iterator[VirtError]:
    cannot = f"cannot move {move.what} to pool {move.spec.pool}"
    if part is None and host.exists(move.to):
        yield Refused(f"{cannot}: {move.to} exists, and is no part of this move; rename or remove it")
    if part is not None:
        user = host.user(move.to, "")
        if user:
            yield Refused(f"{cannot}: a part is left in {move.to}, and {user} uses it; remove that first")
    free = host.free_bytes(str(move.pool.path)) + (host.taken_bytes(move.to) if part else 0)
    free = max(0, free - move.promised_bytes)
    if file.allocated_bytes > free:
        yield Refused(
            f"{cannot}: it takes {bytes_text(file.allocated_bytes)}, and {bytes_text(free)} are free there"
            f"{' beside the other disks that move' if move.promised_bytes else ''}; make room, or choose another pool"
        )


def check_pivot(step: Pivot, source: str | None, copied: str | None, *, marked: bool) -> None:
    """Raise Refused if the disk is not the one that is copied any more, or another file has the name of the copy."""
    if source != step.path or copied != step.to or not marked:
        other = "" if marked else f"; another file has the name {step.to}"
        raise Refused(
            f"cannot switch disk {step.target} of {step.guest}: it is {source or 'gone'} by now, copied to "
            f"{copied or 'nothing'}{other}; inspect it (virsh blockjob), and run again"
        )


def check_still_off(step: CopyOff, *, active: bool, written: bool, same: bool = True) -> None:
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
    return MoveSpec(params["guest"], params["disk"], params["pool"])


def check_limits(params: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """The problems of the options that limit a copy."""
    for option, least in (("bandwidth", 0), ("job_timeout", 1)):
        if not least <= params[option] <= _MOST:
            yield f"{option}: must be from {least} to {_MOST}, not {params[option]}"
