# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps that back guests up into a repository, and restore them from it."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._backup.model_backup import BackupPoint, BrokenPoint
from ansible_collections.corral.virt.plugins.module_utils._core.output import some_of
from ansible_collections.corral.virt.plugins.module_utils._core.step import Look
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import GuestStep
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity


@dataclasses.dataclass(frozen=True)
class BackupStep(GuestStep):
    """One change that is about backups of the guest with this UUID."""

    uuid: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class CreateRepository(BackupStep):
    """Mark an empty directory as a repository."""

    template = "create backup repository {0.path}"
    path: str


@dataclasses.dataclass(frozen=True)
class DiscardPart(BackupStep):
    """Delete what an interrupted run had copied."""

    template = "delete the interrupted backup {0.ident} of {0.guest}"
    look: t.ClassVar[Look | None] = Look(
        at="that the folder is a part, which nothing stands on, and no job writes to it",
        holds="the guest's lock on this host",
        leaves="the folder",
        by=("uuid", "ident"),
    )

    ident: str


@dataclasses.dataclass(frozen=True)
class DropCheckpoint(BackupStep):
    """Delete a checkpoint whose point was not finished, or is not the newest; an older one gets its changes."""

    template = "delete checkpoint {0.name} of {0.guest}"
    look: t.ClassVar[Look | None] = Look(
        at="UUID, name, and that it belongs to the repository",
        holds="",
        leaves="the checkpoint",
        by=("uuid", "name", "repository"),
    )

    name: str
    repository: str = dataclasses.field(repr=False)
    lost: bool = False  # a bitmap of it is missing or broken, so that libvirt may only forget it


@dataclasses.dataclass(frozen=True)
class RedefineCheckpoint(BackupStep):
    """Let libvirt know a checkpoint again whose bitmaps came with the disks, as after a migration."""

    template = "let libvirt know checkpoint {0.name} of {0.guest} again"
    name: str
    ident: str  # of the point that keeps its document


@dataclasses.dataclass(frozen=True)
class StartPoint(BackupStep):
    """Create the folder of a point, with what is planned, and copies of definition, UEFI variables, TPM and seed."""

    template = "begin a backup of {0.guest}"
    point: BackupPoint


@dataclasses.dataclass(frozen=True)
class PushDisks(BackupStep):
    """Let QEMU copy disks, as they are in one moment, while the guest goes on writing."""

    point: BackupPoint
    targets: tuple[str, ...]  # of all disks of the guest
    bitmaps: tuple[str, ...] = ()  # targets of the disks whose changes are noted from now on
    since: str | None = None  # the checkpoint of the point below
    bytes_expected: int = 0
    quiesce: bool = False
    required: bool = False
    goes_on: bool = False  # an interrupted run has begun it

    def __str__(self) -> str:
        how = [f"{disk.target}: {disk.reason or 'what was changed'}" for disk in self.point.disks]
        verb = "go on copying" if self.goes_on else "copy"
        more = ["quiesced"] if self.quiesce else []
        size = [bytes_text(self.bytes_expected)] if self.bytes_expected else []
        return f"{verb} the disks of {self.guest} ({'; '.join([*how, *size, *more])})"


@dataclasses.dataclass(frozen=True)
class CopyDisk(BackupStep):
    """Copy a disk of a guest that is off, which cannot start meanwhile."""

    template = "copy disk {0.target} of {0.guest} ({0.reason})"
    point: BackupPoint
    target: str
    path: str
    format: str
    reason: str


@dataclasses.dataclass(frozen=True)
class FinishPoint(BackupStep):
    """Chain the copies, check them, and write the manifest, with which the point counts."""

    point: BackupPoint
    flatten: tuple[str, ...] = ()  # targets of the disks that are made whole within the repository

    def __str__(self) -> str:
        whole = f", with {', '.join(self.flatten)} made whole" if self.flatten else ""
        return f"finish the backup of {self.guest}{whole}"


@dataclasses.dataclass(frozen=True)
class DeletePoint(BackupStep):
    """Delete a point of the repository."""

    look: t.ClassVar[Look | None] = Look(
        at="the manifest in its folder, or what is damaged there, and that no other point stands on it",
        holds="the guest's lock on this host",
        leaves="the point",
        by=("uuid", "point"),
    )

    point: BackupPoint | BrokenPoint

    def __str__(self) -> str:
        point = self.point
        what = f"damaged: {point.why}" if isinstance(point, BrokenPoint) else bytes_text(point.stored_bytes)
        return f"delete backup {point.id} of {self.guest} ({what})"


@dataclasses.dataclass(frozen=True)
class RestoreDisk(BackupStep):
    """Write a disk of a point to a new file, and compare both; an instant one is an empty file on the point."""

    look: t.ClassVar[Look | None] = Look(
        at="inode, time of birth and mark of the file of that name that an interrupted restore has left; who uses it",
        holds="the file, moved to .corral/.removed of its directory",
        leaves="the file, under its name; its user",
        by=("leftover",),
    )

    point: BackupPoint
    target: str
    path: str
    format: str
    size_bytes: int = 0
    leftover: FileIdentity | None = dataclasses.field(default=None, repr=False)  # of an interrupted restore
    instant: bool = False

    def __str__(self) -> str:
        if self.instant:
            return f"create disk {self.path} of {self.guest} on backup {self.point.id}"
        size = bytes_text(self.size_bytes)
        return f"restore disk {self.target} of {self.guest} from backup {self.point.id} to {self.path} ({size})"


class SwappedDisk(t.NamedTuple):
    """A restored disk, and the present one that it replaces."""

    restored: str
    path: str
    aside: str  # the name that the present one gets
    expected: FileIdentity | None  # of the present one; None: it is missing


@dataclasses.dataclass(frozen=True)
class PutInPlace(BackupStep):
    """Give restored disks the names of the present ones, which get others."""

    look: t.ClassVar[Look | None] = Look(
        at="that the guest is off, and inode, time of birth and mark of each present disk",
        holds="QEMU's locks on the present disks, without which the guest does not start",
        leaves="the present disks, under their names",
        by=("uuid", "disks"),
    )

    disks: tuple[SwappedDisk, ...]

    def __str__(self) -> str:
        return f"put the restored disks of {self.guest} in place: {', '.join(disk.path for disk in self.disks)}"


@dataclasses.dataclass(frozen=True)
class ForgetCheckpoints(BackupStep):
    """Let libvirt forget checkpoints whose bitmaps are inside disks that were replaced."""

    look: t.ClassVar[Look | None] = Look(
        at="UUID, names, and that they belong to the repository",
        holds="",
        leaves="the checkpoints",
        by=("uuid", "names", "repository"),
    )

    names: tuple[str, ...]
    repository: str = dataclasses.field(repr=False)

    def __str__(self) -> str:
        return f"forget checkpoints of {self.guest}: {', '.join(self.names)}"


@dataclasses.dataclass(frozen=True)
class RestoreState(BackupStep):
    """Restore UEFI variables, TPM state or the seed to a new file or directory."""

    template = "restore {0.path} of {0.guest} from backup {0.point.id}"
    point: BackupPoint
    file: str
    path: str


@dataclasses.dataclass(frozen=True)
class DefineRestored(BackupStep):
    """Define a guest that is not there yet."""

    template = "define {0.guest}"
    xml: str = dataclasses.field(repr=False)
    paths: tuple[str, ...] = dataclasses.field(default=(), repr=False)  # of its disks and seed
    settled: tuple[str, ...] = dataclasses.field(default=(), repr=False)  # all that was restored for it
    stops: tuple[str, ...] = dataclasses.field(default=(), repr=False)  # disks that pause it if they cannot be read


@dataclasses.dataclass(frozen=True)
class StartRestored(BackupStep):
    """Start the restored guest."""

    template = "start {0.guest}"


@dataclasses.dataclass(frozen=True)
class ResumeRestored(BackupStep):
    """Resume the restored guest, which an I/O error has paused."""

    template = "resume {0.guest}"


@dataclasses.dataclass(frozen=True)
class KeepPoint(BackupStep):
    """Note in the repository that the guest runs on a point, and let QEMU read that."""

    template = "keep backup {0.point.id} until {0.guest} has all of it"
    point: BackupPoint


@dataclasses.dataclass(frozen=True)
class PauseOnErrors(BackupStep):
    """Note with a guest that it stands on a point, and let it pause if a disk cannot be read."""

    folder: str = dataclasses.field(repr=False)  # of the point
    targets: tuple[str, ...]
    stops: tuple[str, ...] = dataclasses.field(repr=False)  # those that did not pause it before

    def __str__(self) -> str:
        return f"let {self.guest} pause if {', '.join(self.targets)} cannot be read"


@dataclasses.dataclass(frozen=True)
class RelinkDisk(BackupStep):
    """Let a disk stand on its point again: it was copied, and QEMU died before all of the copy was on the disk."""

    template = "let disk {0.target} of {0.guest} stand on backup {0.point.id} again"
    point: BackupPoint
    target: str
    path: str


@dataclasses.dataclass(frozen=True)
class VerifyPoint(BackupStep):
    """Check the files of the point that the guest runs on."""

    template = "check backup {0.point.id}, on which {0.guest} runs"
    point: BackupPoint


@dataclasses.dataclass(frozen=True)
class PullDisk(BackupStep):
    """Copy what a disk reads from the repository into it while the guest runs."""

    template = "copy disk {0.target} of {0.guest} from backup {0.ident} while it runs"
    target: str
    ident: str  # of the point


@dataclasses.dataclass(frozen=True)
class ReleasePoint(BackupStep):
    """Note that the guest needs its point no more, and let only root read that."""

    look: t.ClassVar[Look | None] = Look(
        at="that no disk of the guest stands on a file of the repository",
        holds="the guest's lock on this host",
        leaves="the note in the repository, which keeps the point",
        by=("uuid", "folder"),
    )

    folder: str  # of the point
    stops: tuple[str, ...] = dataclasses.field(default=(), repr=False)  # disks that pause it only until now

    def __str__(self) -> str:
        return f"release backup {self.folder.rpartition('/')[2]} from {self.guest}"


@dataclasses.dataclass(frozen=True)
class ExtractFiles(BackupStep):
    """Write files that are inside a point to a directory that is not there yet, or empty."""

    point: BackupPoint
    paths: tuple[str, ...]  # inside the guest
    dest: str
    size_bytes: int = 0
    keep_owners: bool = dataclasses.field(default=False, repr=False)

    def __str__(self) -> str:
        what = f"{some_of(self.paths, 5)} of {self.guest}"
        return f"restore {what} from backup {self.point.id} to {self.dest} ({bytes_text(self.size_bytes)})"
