# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide how a guest moves: the steps in order, and what libvirt is told. Pure."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._model.move import COPIED, COPY, DiskMove, Move
from ansible_collections.corral.virt.plugins.module_utils._plan.step import Step

__all__ = [
    "Abort",
    "Clear",
    "CopyDisk",
    "CopyFile",
    "DefineOnDest",
    "DisableAutostart",
    "Forget",
    "MakeDisk",
    "Migrate",
    "MigrateStep",
    "Reconcile",
    "Record",
    "RemoveDisk",
    "Reserve",
    "ResumeOnDest",
    "SetAutostartOnDest",
    "UndefineOnSource",
    "aborting",
    "clearing",
    "finish",
    "finishing",
    "may_switch",
    "migrate_flags",
    "remedy",
    "steps",
]


@dataclasses.dataclass(frozen=True)
class MigrateStep(Step):
    """One change on the way."""

    template: t.ClassVar[str]
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
        """Of the disk, on both hosts."""
        return self.disk.path


class CopyDisk(_OfDisk):
    """Copy a disk while nobody writes it."""

    template = "copy {0.path} to {1.dest}"


class MakeDisk(_OfDisk):
    """Make the disk that QEMU fills while the guest moves."""

    template = "create an empty {0.path} on {1.dest}{0.on}"

    @property
    def on(self) -> str:
        """What it stands on."""
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

    @property
    def disks(self) -> str:
        """How each is brought."""
        return ", ".join(f"{disk.target} {disk.how}" for disk in self.move.disks if disk.how != COPY) or "no disks"


class Reserve(MigrateStep):
    """Take the guest's place on the destination, for the moment that one that is off is in two places."""

    template = "reserve {1.guest} on {1.dest}, where it cannot be started yet"


class UndefineOnSource(MigrateStep):
    """Forget it on the source."""

    template = "undefine {1.guest} on the source"


class DefineOnDest(MigrateStep):
    """Let it be started on the destination."""

    template = "define {1.guest} on {1.dest}"


class ResumeOnDest(MigrateStep):
    """Let it run there: it arrives paused, so that one copy runs."""

    template = "resume {1.guest} on {1.dest}"


class SetAutostartOnDest(MigrateStep):
    """Start it with the destination, as it did with the source."""

    template = "set autostart of {1.guest} on at {1.dest}"


@dataclasses.dataclass(frozen=True)
class RemoveDisk(MigrateStep):
    """Delete the disk that stayed behind."""

    template = "remove {0.path} from the source"
    path: str


class Forget(MigrateStep):
    """Take the note away."""

    template = "remove the record from {1.guest}"


class Reconcile(MigrateStep):
    """Bring a migration that an earlier run began to its end, whatever that is."""

    template = "resolve the interrupted migration of {1.guest} to {1.dest}"


class Clear(Reconcile):
    """The same for one that was just aborted."""

    template = "remove what the migration of {1.guest} to {1.dest} created"


class Abort(MigrateStep):
    """End a migration that is under way."""

    template = "abort the migration of {1.guest}"


def steps(move: Move) -> list[MigrateStep]:
    """In order: the move is recorded before anything is made, and the source's disks go last."""
    made = [disk for disk in move.disks if disk.volume is not None]
    return [
        Record(move),
        *([DisableAutostart(move)] if move.autostart else []),
        *((CopyDisk if disk.how == COPY else MakeDisk)(move, disk) for disk in made),
        *(CopyFile(move, path) for path in move.files),
        # A guest that is off is in two places for a moment; the new one cannot be started before the old one is gone.
        *([Migrate(move)] if move.active else [Reserve(move), UndefineOnSource(move), DefineOnDest(move)]),
        *finish(move, [disk.path for disk in made if disk.delete_source]),
    ]


def finish(move: Move, left: t.Sequence[str], *, resume: bool = False, define: bool = False) -> list[MigrateStep]:
    """What remains when the guest has arrived; also for a run that was interrupted there.

    `left` are disks on the source.
    """
    return [
        *([DefineOnDest(move)] if define else []),
        *([ResumeOnDest(move)] if resume else []),
        *([SetAutostartOnDest(move)] if move.autostart else []),
        *(RemoveDisk(move, path) for path in left if not move.keep_source_storage),
        Forget(move),
    ]


def finishing(move: Move, left: t.Sequence[str], action: str) -> list[MigrateStep]:
    """The same for a run that was interrupted there; `action` is what remains to be done to the guest itself."""
    return finish(move, left, resume=action == "resume_dest", define=action == "finish_dest")


def aborting(move: Move, *, job_active: bool) -> list[MigrateStep]:
    """What ends a migration that is under way."""
    return [Abort(move)] if job_active else []


def clearing(move: Move, moving: str | None, *, held: bool) -> list[MigrateStep]:
    """What is left of a guest's move there, by its record: a run that moves it, and has it `held`, clears away what it
    made.
    """
    return [Clear(move)] if moving == move.dest and not held else []


def migrate_flags(move: Move) -> tuple[list[str], dict[str, t.Any]]:
    """libvirt's flags and parameters by name: peer-to-peer, so that it goes on when we die; arriving paused, so that
    one copy runs.

    With post-copy the guest runs over there before all of it is: libvirt has no paused arrival then.
    """
    tuning = move.tuning
    flags = ["LIVE", "PEER2PEER", "PERSIST_DEST", "UNDEFINE_SOURCE", "ABORT_ON_ERROR"]
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
    """Whether it may become a post-copy migration."""
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
    """The reason that libvirt gives, with what to do about it where that is known."""
    return next((f"{reason} ({what})" for pattern, what in _REMEDIES.items() if re.search(pattern, reason)), reason)
