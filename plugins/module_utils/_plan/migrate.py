# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide how a guest moves, and what two observed ends mean. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._model.move import CARRY, COPIED, DiskMove, Move
from ansible_collections.corral.virt.plugins.module_utils._units import gib_text

__all__ = ["MigrateStep", "Verdict", "call", "finish", "judge", "may_switch", "remedy", "steps"]


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


class Verdict(t.NamedTuple):
    """What two observed ends mean, and the one thing to do."""

    meaning: str
    action: str  # done, resume_dest, finish_dest, resume_source, clean_dest, clean_source, rolled_back, nothing
    wait: bool = False  # libvirt may still decide: look again


def superseded(let_run_s: float, written_s: t.Iterable[float | None]) -> bool:
    """Whether what the source has is old: it was let run on the destination, and no disk here was written since.

    Seconds since the epoch by the source's clock, 0: nobody knows; None for a disk that is not to be seen, which may have been written.
    """
    return bool(let_run_s) and all(each is not None and each <= let_run_s for each in written_s)


def judge(source: str, dest: str, *, was_paused: bool, job_active: bool = False, superseded: bool = False) -> Verdict:
    """Decide from what both hosts say, never from a return code.

    States: running, paused, shutdown, crashed, absent, unreachable; of the source also postcopy (a part of it is here) and migrated (off,
    sent away); of the destination also incoming (not all of it is there) and reserved (nobody can start it). libvirt can report a failure
    for a guest that arrived; a success is what both ends agree on: it was sent paused, so at most one copy runs until this is decided.
    `superseded`: it was let run on the destination after it had ended on the source, and nobody wrote to the source's disks since.
    """
    if source == "postcopy":
        return _split_memory(dest)
    if job_active:
        return Verdict("libvirt is still at work on it; wait, or end it with state: aborted, and run again", "nothing", wait=True)
    if "unreachable" in (source, dest):
        return Verdict("one end cannot be seen; the guest may be on either; run again when both can", "nothing", wait=True)
    if source == "running" and dest == "running":
        return Verdict("split: it runs on both ends; nothing was touched, compare them and destroy the wrong one", "nothing")
    if source == "absent":
        return _gone(dest, was_paused)
    if source == "migrated" and dest in ("running", "paused", "incoming", "absent"):
        return _sent_away(dest, was_paused)
    if source in ("shutdown", "crashed") and dest == "running" and superseded:
        return Verdict("runs on the destination; the source's host went down before its definition was removed", "clean_source")
    if source in ("shutdown", "crashed", "migrated"):
        return _stopped(dest)
    if source in ("running", "paused"):
        return _alive(source, dest, was_paused)
    return Verdict(f"unclear (source: {source}, destination: {dest})", "nothing")


def _split_memory(dest: str) -> Verdict:
    """It ran on the destination before all of it was there."""
    if dest in ("absent", "shutdown", "crashed"):
        told = "what of its memory was there is lost; destroy and undefine it here, and start it there from its disks, which are newer"
        return Verdict(f"post-copy, and {dest} on the destination: {told}", "nothing", wait=True)
    told = "its memory is on both hosts; run again when the network is back, or resume it (virsh migrate --postcopy-resume)"
    return Verdict(f"post-copy ({dest} on the destination): {told}", "nothing", wait=True)


def _sent_away(dest: str, was_paused: bool) -> Verdict:
    """libvirt gave it away, and left its definition on the source."""
    if dest == "running" or (dest == "paused" and was_paused):
        return Verdict("arrived; its definition was left on the source", "clean_source")
    if dest == "paused":
        return Verdict("arrived, paused; its definition was left on the source", "resume_dest")
    if dest == "incoming":
        return Verdict("given away by the source before all of it arrived", "nothing", wait=True)
    told = "if its disks are left there, they are newer: define it there with them, and undefine it here; else start it here, and run again"
    return Verdict(f"given away by the source, and the destination has it no more; nothing was touched; {told}", "nothing")


def _alive(source: str, dest: str, was_paused: bool) -> Verdict:
    """The source has it, whole."""
    if dest == "absent":
        if source == "paused" and not was_paused:
            return Verdict("still on the source, paused", "resume_source")
        return Verdict("still on the source", "rolled_back")
    if dest == "running":
        if was_paused:
            return Verdict("paused on the source as before, and running on the destination; nothing was touched, compare them", "nothing")
        return Verdict("runs on the destination; a paused copy was left on the source", "clean_source")
    if dest == "incoming" and source == "paused":
        return Verdict("not yet decided by libvirt", "clean_dest", wait=True)
    if dest in ("paused", "incoming", "reserved", "shutdown", "crashed", "migrated"):
        return Verdict("still on the source; a dead copy was left on the destination", "clean_dest")
    return Verdict(f"unclear (source: {source}, destination: {dest})", "nothing")


def _gone(dest: str, was_paused: bool) -> Verdict:
    """The source has it no more."""
    if dest in ("paused", "running"):
        return Verdict("arrived", "done" if was_paused or dest == "running" else "resume_dest")
    if dest == "reserved":
        return Verdict("arrived, not yet to be started", "finish_dest")
    if dest == "incoming":
        return Verdict("gone from the source before all of it arrived", "nothing", wait=True)
    return Verdict(f"stopped on the way (source: absent, destination: {dest})", "nothing")


def _stopped(dest: str) -> Verdict:
    """It is off on the source: its owner stopped it, or it crashed, or the host did."""
    if dest == "absent":
        return Verdict("it stopped on the source meanwhile", "rolled_back")
    if dest in ("incoming", "reserved"):
        told = "it stopped on the source meanwhile; what was begun on the destination never ran"
        return Verdict(told, "clean_dest", wait=dest == "incoming")
    told = "compare their disks; then undefine the one that is wrong" if dest != "paused" else (
        "when the source's host died on the way, resume it there (virsh resume) and undefine it here; when it was used here since, destroy "
        "and undefine it there"
    )  # fmt: skip
    return Verdict(f"off on the source, {dest} on the destination: nobody can tell which is newer; nothing was touched; {told}", "nothing")
