# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide the steps of a migration, in order, and the flags for libvirt. Pure."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.step import Look, Step
from ansible_collections.corral.virt.plugins.module_utils._domain.plan_snapshot_names import named
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import (
    COPIED,
    COPY,
    DiskMove,
    LeftDisk,
    Move,
)
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity

RemovedFile = tuple[str, FileIdentity]  # its place, and which file it is


@dataclasses.dataclass(frozen=True)
class MigrateStep(Step):
    """One change on the way."""

    move: Move

    def __str__(self) -> str:
        return self.template.format(self, self.move)


class Record(MigrateStep):
    """Note with the guest that it moves, before anything is made."""

    template = "record on {1.guest} that it moves to {1.dest}"


class DisableAutostart(MigrateStep):
    """A source that loses power after the guest has left must not start what it still has of it."""

    template = "set autostart of {1.guest} off on the source"


@dataclasses.dataclass(frozen=True)
class _OfDisk(MigrateStep):
    disk: DiskMove

    @property
    def path(self) -> str:
        """The path of the disk on the destination."""
        return self.disk.dest_path


class CopyDisk(_OfDisk):
    """Copy a disk while nobody writes it."""

    template = "copy {0.disk.path} to {1.dest}{0.into}"

    @property
    def into(self) -> str:
        """The path on the destination in brackets, if it is another one."""
        return "" if self.disk.path == self.path else f" ({self.path})"


class MakeDisk(_OfDisk):
    """Make the disk that QEMU fills while the guest moves."""

    template = "create an empty {0.path} on {1.dest}{0.on}"

    @property
    def on(self) -> str:
        """ ", on BASE" for a disk with a backing file, else empty."""
        volume = self.disk.volume
        return f", on {volume.backing_path}" if volume and volume.backing_path else ""


@dataclasses.dataclass(frozen=True)
class CopyFile(MigrateStep):
    """Copy what libvirt keeps beside the definition: UEFI variables, TPM state."""

    template = "copy {0.path} to {1.dest}"
    path: str


class Migrate(MigrateStep):
    """Let libvirt move the running guest. How much is copied is no part of the step: the guest goes on writing."""

    template = "migrate {1.guest} to {1.dest} ({0.disks})"
    look = Look(
        at="UUID and definition of the guest; on arrival, while it is paused, each disk's file on the destination by "
        "its mark; every half second whether its place there is still reserved",
        holds="libvirt's migration job; name and UUID on the destination",
        leaves="the guest on the source, or paused on the destination if it has arrived; both hosts' disks",
        by=("move.uuid", "move.seen"),
    )

    @property
    def disks(self) -> str:
        """The targets of the disks and how each is transferred, without those copied beforehand."""
        return ", ".join(f"{disk.target} {disk.how}" for disk in self.move.disks if disk.how != COPY) or "no disks"


class Reserve(MigrateStep):
    """Take the guest's name and UUID on the destination, where it cannot be started until it has left the source."""

    template = "reserve {1.guest} on {1.dest}, where it cannot be started yet"


class _OfSnapshots(MigrateStep):
    @property
    def snapshots(self) -> str:
        """The snapshots by name."""
        return named(self.move.snapshots)


class CarrySnapshots(_OfSnapshots):
    """Let libvirt of the destination have the snapshots; a note on the source keeps them as well."""

    template = "define {0.snapshots} of {1.guest} on {1.dest}"


class ForgetSnapshots(_OfSnapshots):
    """Let libvirt of the source forget the snapshots, whose files stay: it migrates no guest that has any."""

    template = "remove {0.snapshots} of {1.guest} from libvirt of the source, without files"
    look = Look(
        at="names and documents of all snapshots of the guest",
        holds="nothing; a snapshot that is taken later stops the migration",
        leaves="the guest with its snapshots on the source",
        by=("move.snapshots_seen",),
    )


class ForgetBackupCheckpoints(MigrateStep):
    """Let libvirt of the source forget the checkpoints of backups: it migrates no guest that has any. The bitmaps move
    with the disks, and the next backup lets libvirt know the checkpoint again, wherever the guest is then.
    """

    template = "remove checkpoints of backups of {1.guest} from libvirt of the source"
    look = Look(
        at="UUID of the guest, names of its checkpoints, and that all of them are of backups",
        holds="nothing; a checkpoint that is made later stops the migration",
        leaves="the guest with its checkpoints on the source",
        by=("move.uuid", "move.backups"),
    )


class UndefineOnSource(MigrateStep):
    """Undefine the guest on the source."""

    template = "undefine {1.guest} on the source"
    look = Look(
        at="UUID and definition of the guest, that it is off, times and sizes of all its disks here, times of their "
        "copies on the destination",
        holds="QEMU's locks on its disks, and its start (the hook of role hypervisor), from before the first byte",
        leaves="the guest on the source; the copies on the destination are removed",
        by=("move.uuid", "move.seen"),
    )


class DefineOnDest(MigrateStep):
    """Replace the definition that reserves its place: let it be started on the destination."""

    template = "define {1.guest} on {1.dest}"
    look = Look(
        at="that the definition there is still the reserved one; where nothing could be held, the content of all disks "
        "on both hosts",
        holds="the guest's name and UUID there, by the reserved definition",
        leaves="both hosts' disks; the guest is defined on the source again",
        by=("move.uuid",),
    )


class ResumeOnDest(MigrateStep):
    """Let it run there: it arrives paused, so that one copy runs."""

    template = "resume {1.guest} on {1.dest}"


class SetAutostartOnDest(MigrateStep):
    """Start it with the destination, as it did with the source."""

    template = "set autostart of {1.guest} on at {1.dest}"


@dataclasses.dataclass(frozen=True)
class RemoveDisk(MigrateStep):
    """Delete the disk, or the file with UEFI variables, that stayed behind."""

    template = "remove {0.path} from the source"
    look = Look(
        at="all users of the file on that host, as for `delete disk`; of a guest that runs on the destination, the "
        "marks of its disks there",
        holds="the file in a private directory beside it",
        leaves="the file under its name; the result tells who uses it",
        by=("move.uuid", "identity"),
    )
    path: str
    identity: FileIdentity | None = dataclasses.field(default=None, repr=False)  # what was planned with


@dataclasses.dataclass(frozen=True)
class FinishRemoval(MigrateStep):
    """Delete a disk that a run which was killed had moved aside, or give it back."""

    template = "finish the removal of {0.path}, which is at {0.place}"
    look = Look(
        at="the file, as its note tells, and all its users on that host, as for `delete disk`",
        holds="a lock on the note, and the file, which has no name that guests know",
        leaves="the disk, under its own name again; where another file has that, both",
        by=("move.uuid", "identity"),
    )
    path: str
    place: str  # where it is now
    identity: FileIdentity | None = dataclasses.field(default=None, repr=False)  # as its note told


class Forget(MigrateStep):
    """Remove the record of the migration from the guest."""

    template = "remove the record from {1.guest}"


class Reconcile(MigrateStep):
    """Bring a migration that an earlier run began to its end, whatever that is."""

    template = "resolve the interrupted migration of {1.guest} to {1.dest}"


class Clear(Reconcile):
    """Bring a migration that was just aborted to its end."""

    template = "remove what the migration of {1.guest} to {1.dest} created"


class GiveUp(Clear):
    """End a migration whose destination is gone for good."""

    template = "forget the migration of {1.guest} to {1.dest}, which is gone"


class Abort(MigrateStep):
    """End a migration that is under way."""

    template = "abort the migration of {1.guest}"


def steps(move: Move, files: t.Mapping[str, FileIdentity | None] | None = None) -> list[MigrateStep]:
    """The steps in order: the move is recorded before anything is made, and the source's disks are removed last.

    `files` tells what the files of the disks are now, by path, as far as this machine has them.
    """
    known = files or {}
    made = [disk for disk in move.disks if disk.volume is not None]
    # what stands on another goes first
    left = [LeftDisk(disk.path, known.get(disk.path)) for disk in reversed(made) if disk.delete_source]
    return [
        Record(move),
        *([DisableAutostart(move)] if move.autostart else []),
        *((CopyDisk if disk.how == COPY else MakeDisk)(move, disk) for disk in made),
        *(CopyFile(move, path) for path in move.files),
        # It is in two places for a moment; the new one cannot be started before the old one is gone.
        Reserve(move),
        *([CarrySnapshots(move), ForgetSnapshots(move)] if move.snapshots else []),
        *([ForgetBackupCheckpoints(move)] if move.backups else []),
        Migrate(move) if move.active else UndefineOnSource(move),
        *finish(move, [*left, *move.variables], define=True),
    ]


def finish(move: Move, left: t.Sequence[LeftDisk], *, resume: bool = False, define: bool = False) -> list[MigrateStep]:
    """The steps that remain when the guest has arrived; also for a run that was interrupted there.

    `left` are disks and UEFI variables on the source.
    """
    return [
        *([ResumeOnDest(move)] if resume else []),
        *([DefineOnDest(move)] if define else []),
        *([SetAutostartOnDest(move)] if move.autostart else []),
        *(RemoveDisk(move, disk.path, disk.identity) for disk in left if not move.keep_source_storage),
        Forget(move),
    ]


def finishing(
    move: Move, left: t.Sequence[LeftDisk], action: str, *, reserved: bool, aside: t.Mapping[str, RemovedFile]
) -> list[MigrateStep]:
    """The steps that remain after a run that was interrupted when the guest had arrived. `action` is what remains to be
    done to the guest itself; its definition there may still be `reserved`. `aside` maps disks that were being deleted
    to where they are now, and what their notes tell.
    """
    steps = finish(move, left, resume=action == "resume_dest", define=reserved)
    return [*steps[:-1], *(FinishRemoval(move, path, *removed) for path, removed in aside.items()), steps[-1]]


def aborting(move: Move, *, job_active: bool) -> list[MigrateStep]:
    """The steps that end an active migration."""
    return [Abort(move)] if job_active else []


def clearing(move: Move, moving: str | None, *, held: bool, gone: bool = False) -> list[MigrateStep]:
    """The steps that remove what an aborted migration left, by the guest's record; none if a run still has the guest
    `held`, as that run cleans up. Of a destination that is `gone`, nothing can be removed.
    """
    step = GiveUp if gone else Clear
    return [step(move)] if moving == move.dest and not held else []


def migrate_flags(move: Move) -> tuple[list[str], dict[str, t.Any]]:
    """libvirt's flags and parameters by name: peer-to-peer, so that it continues when we die; arriving paused, so that
    only one copy runs.

    With post-copy the guest runs on the destination before all its memory is there: libvirt has no paused arrival then.
    """
    tuning = move.tuning
    # No PERSIST_DEST: with it, libvirt replaces whatever definition is there when the guest arrives.
    flags = ["LIVE", "PEER2PEER", "UNDEFINE_SOURCE", "ABORT_ON_ERROR"]
    parameters: dict[str, t.Any] = {}
    if tuning.transport == "tunnelled":
        flags.append("TUNNELLED")
    else:
        parameters["migrate_uri"] = f"tcp://{move.dest}"
    if tuning.transport == "tls":
        parameters["tls.destination"] = move.dest
    if tuning.parallel:
        parameters["parallel.connections"] = tuning.parallel
    if tuning.compression:
        parameters["compression"] = list(tuning.compression)
    if tuning.bandwidth_mib_s:
        parameters["bandwidth"] = tuning.bandwidth_mib_s
    wished = {
        "TLS": tuning.transport == "tls",
        "PAUSED": not may_switch(move),
        "POSTCOPY": may_switch(move),
        "AUTO_CONVERGE": tuning.auto_converge,
        "PARALLEL": bool(tuning.parallel),
        "COMPRESSED": bool(tuning.compression),
        "UNSAFE": any(disk.vouched for disk in move.disks),  # all others are copied, read-only, or known to be shared
    }
    flags += [flag for flag, wish in wished.items() if wish]
    copied = [disk for disk in move.disks if disk.how in COPIED]
    if copied:
        # INC sends what is not in the file that stands there; a flattened disk needs all.
        flags.append("NON_SHARED_DISK" if any(disk.flatten for disk in copied) else "NON_SHARED_INC")
        parameters["migrate_disks"] = [disk.target for disk in copied]
    return flags, parameters


def may_switch(move: Move) -> bool:
    """True if the migration may switch to post-copy."""
    tuning = move.tuning
    return tuning.postcopy or tuning.schedule == "postcopy" or tuning.timeout_action == "postcopy"


_REMEDIES = {
    # What libvirt and QEMU say, and what to do about it. The more particular stands first.
    "ostcopy is not supported": "allow it on both hosts (sysctl vm.unprivileged_userfaultfd=1), or omit postcopy",
    "Unable to access credentials": "install QEMU's certificates on both hosts (role corral.virt.pki), or set "
    "transport: plain",
    "No space left on device": "free space on the destination",
    # libvirtd died while it copied disks, and does not remove what QEMU has of that copy
    "Duplicate nodes with node-name": "QEMU still has a part of an earlier copy: shut the guest down and start it, or "
    "move it while it is off",
    "Cannot read from TLS channel": "the handshake did not finish; lost large packets cause that: compare the MTU "
    "along the path",
    # "The server certificate /etc/… has expired", "Failed to verify peer's certificate", and a dozen more: as a word
    # of its own, which it is not in the path of a disk.
    r"(?<![\w/.-])[Cc]ertificate(?![\w/-]|\.\w)": "check both hosts' certificates and clocks (role corral.virt.pki "
    "issues new certificates)",
}


def remedy(reason: str) -> str:
    """libvirt's reason, with the remedy if one is known."""
    return next((f"{reason} ({what})" for pattern, what in _REMEDIES.items() if re.search(pattern, reason)), reason)
