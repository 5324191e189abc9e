# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide how a guest moves: the steps in order, and what libvirt is told. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._model.move import CARRY, COPIED, DiskMove, Move
from ansible_collections.corral.virt.plugins.module_utils._units import gib_text

__all__ = ["MigrateStep", "aborting", "call", "clearing", "finish", "may_switch", "remedy", "settling", "steps"]


@dataclasses.dataclass(frozen=True)
class MigrateStep:
    """One change on the way."""

    move: Move
    # record, no_autostart, make, carry, file, migrate, reserve, undefine, define, resume, autostart, remove, forget, settle, abort
    verb: str
    path: str = ""
    text: str = ""

    def __str__(self) -> str:
        return self.text


def steps(move: Move) -> list[MigrateStep]:
    """In order: the move is recorded before anything is made, and the source's disks go last."""
    made = [disk for disk in move.disks if disk.volume is not None]
    result = [MigrateStep(move, "record", text=f"record on {move.guest} that it moves to {move.dest}")]
    if move.autostart:  # a source that loses power after the guest has left must not start what it still has of it
        result.append(MigrateStep(move, "no_autostart", text=f"set autostart of {move.guest} off on the source"))
    result += [_made(move, disk) for disk in made]
    result += [MigrateStep(move, "file", path, f"copy {path} to {move.dest}") for path in move.files]
    result += [_sent(move)] if move.active else _moved_off(move)
    return result + finish(move, [disk.path for disk in made if disk.goes])


def _made(move: Move, disk: DiskMove) -> MigrateStep:
    if disk.how == CARRY:
        return MigrateStep(move, "carry", disk.path, f"copy {disk.path} to {move.dest}")
    on = f", on {disk.volume.backing_path}" if disk.volume and disk.volume.backing_path else ""
    return MigrateStep(move, "make", disk.path, f"make an empty {disk.path} on {move.dest}{on}")


def _sent(move: Move) -> MigrateStep:
    size = sum(disk.bytes_to_move for disk in move.disks if disk.how in COPIED)
    how = ", ".join(f"{disk.target} {disk.how}" for disk in move.disks if disk.how != CARRY)
    return MigrateStep(move, "migrate", text=f"migrate {move.guest} to {move.dest} ({how or 'no disks'}; {gib_text(size)} of disk)")


def _moved_off(move: Move) -> list[MigrateStep]:
    """A guest that is off is in two places for a moment; the new one cannot be started before the old one is gone."""
    return [
        MigrateStep(move, "reserve", text=f"reserve {move.guest} on {move.dest}, where it cannot be started yet"),
        MigrateStep(move, "undefine", text=f"undefine {move.guest} on the source"),
        MigrateStep(move, "define", text=f"define {move.guest} on {move.dest}"),
    ]


def finish(move: Move, left: t.Sequence[str], *, resume: bool = False, define: bool = False) -> list[MigrateStep]:
    """What remains when the guest has arrived; also for a run that was interrupted there. `left` are disks on the source."""
    result = [MigrateStep(move, "define", text=f"define {move.guest} on {move.dest}")] if define else []
    if resume:
        result.append(MigrateStep(move, "resume", text=f"resume {move.guest} on {move.dest}"))
    if move.autostart:
        result.append(MigrateStep(move, "autostart", text=f"set autostart of {move.guest} on at {move.dest}"))
    if not move.keep_source_storage:
        result += [MigrateStep(move, "remove", path, f"remove {path} from the source") for path in left]
    return [*result, MigrateStep(move, "forget", text=f"remove the record from {move.guest}")]


def settling(move: Move) -> MigrateStep:
    """Bring a migration that an earlier run began to its end, whatever that is."""
    return MigrateStep(move, "settle", text=f"settle the migration of {move.guest} to {move.dest} that was interrupted")


def aborting(move: Move, *, job_active: bool) -> list[MigrateStep]:
    """What ends a migration that is under way."""
    return [MigrateStep(move, "abort", text=f"end the migration of {move.guest}")] if job_active else []


def clearing(move: Move, moving: str | None, *, alone: bool) -> list[MigrateStep]:
    """What is left to who is `alone` with a guest whose record says that it moves there: a run that moves it clears away what it made."""
    text = f"clear away what the migration of {move.guest} to {move.dest} had made"
    return [MigrateStep(move, "settle", text=text)] if moving == move.dest and alone else []


def call(move: Move) -> tuple[list[str], dict[str, t.Any]]:
    """libvirt's flags and parameters by name: peer-to-peer, so that it goes on when we die; arriving paused, so that one copy runs.

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
    # What libvirt and QEMU say, and what to do about it.
    "ostcopy is not supported": "allow it on both hosts (sysctl vm.unprivileged_userfaultfd=1), or leave out postcopy",
    "Unable to access credentials": "give both hosts QEMU's certificates (role corral.virt.pki), or set transport: plain",
    "certificate": "look at both hosts' certificates and clocks (role corral.virt.pki makes new ones)",
    "No space left on device": "make room on the destination",
    "Cannot read from TLS channel": "the handshake did not end; large packets that are lost do that: compare the MTU on the way",
}


def remedy(reason: str) -> str:
    """The reason that libvirt gives, with what to do about it where that is known."""
    return next((f"{reason} ({what})" for said, what in _REMEDIES.items() if said in reason), reason)
