# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide how a guest moves, whether it may, and what two observed ends mean. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._model.domain import Volume
from ansible_collections.corral.virt.plugins.module_utils._units import gib_text

__all__ = [
    "CARRY",
    "DELTA",
    "FULL",
    "SHARED",
    "DiskMove",
    "Host",
    "MigrateStep",
    "Move",
    "Verdict",
    "call",
    "findings",
    "judge",
    "steps",
]

SHARED, DELTA, FULL, CARRY = "shared", "delta", "full", "carry"


@dataclasses.dataclass(frozen=True)
class Host:
    """What a preflight must know of one end."""

    name: str
    uuid: str
    memory_free_mib: int
    machines: tuple[str, ...]
    virt_types: tuple[str, ...]
    guests: dict[str, tuple[str, str]]  # name -> (uuid, state)


@dataclasses.dataclass(frozen=True)
class DiskMove:
    """How one disk gets there.

    `shared`: it is there already. `delta`: its base is there, only its own clusters travel. `full`: everything travels.
    `carry`: read-only (seed, CD-ROM), copied as a file beforehand.
    """

    target: str
    path: str
    how: str
    why: str
    volume: Volume | None = None  # what is made on the destination
    bytes_to_move: int = 0
    flatten: bool = False  # its base is not there, so all of it must travel
    replace: bool = False  # an earlier run of ours left something there
    goes: bool = True  # from the source, after the guest has arrived


@dataclasses.dataclass(frozen=True)
class Move:
    """The user's wish and what follows from it."""

    guest: str
    dest: str
    dest_uri: str
    transport: str
    timeout_s: int
    source_uuid: str = ""
    paused: bool = False  # the guest was paused before, and stays so
    autostart: bool = False
    bandwidth_mib_s: int | None = None
    max_downtime_ms: int | None = None
    auto_converge: bool = True
    keep_source_storage: bool = False
    disks: tuple[DiskMove, ...] = ()


@dataclasses.dataclass(frozen=True)
class MigrateStep:
    """One change on the way."""

    move: Move
    verb: str  # record, make, carry, migrate, resume, autostart, remove, forget, discard
    path: str = ""
    text: str = ""

    def __str__(self) -> str:
        return self.text


def findings(move: Move, source: Host, dest: Host, *, machine: str, virt_type: str, memory_mib: int, uuid: str) -> list[str]:
    """Everything that speaks against the move, before anything is touched."""
    found = []
    if source.uuid == dest.uuid:
        found.append(
            f"{source.name} and {move.dest} report the same host UUID {dest.uuid}: they are one host, or cloned ones; set host_uuid "
            "in libvirtd.conf (virtqemud.conf) of one"
        )
    other = dest.guests.get(move.guest)
    if other is not None:
        same = "the same guest" if other[0] == uuid else "another guest of that name"
        found.append(f"{move.dest} has {same} already ({other[1]}); look at it there, then remove the one that is wrong")
    twin = next((name for name, (its, _state) in dest.guests.items() if its == uuid and name != move.guest), None)
    if twin:
        found.append(f"{move.dest} has guest {twin} with the same UUID {uuid}; remove or redefine one of them")
    if virt_type not in dest.virt_types:
        found.append(f"{move.dest} cannot run {virt_type} guests (it offers {', '.join(dest.virt_types)})")
    if machine and dest.machines and machine not in dest.machines:
        found.append(f"{move.dest} does not know machine type {machine}: its QEMU is older or other; upgrade it")
    if memory_mib > dest.memory_free_mib:
        found.append(f"{move.dest} has {dest.memory_free_mib} MiB of memory free, the guest may use {memory_mib} MiB; free some there")
    return found


def steps(move: Move) -> list[MigrateStep]:
    """In order: what is made is recorded before it is made, and the source's disks go last."""
    made = [disk for disk in move.disks if disk.volume is not None]
    result = [MigrateStep(move, "record", text=f"record on {move.guest} that it moves to {move.dest}")]
    for disk in made:
        if disk.how == CARRY:
            result.append(MigrateStep(move, "carry", disk.path, f"copy {disk.path} to {move.dest}"))
        else:
            on = f", on {disk.volume.backing_path}" if disk.volume and disk.volume.backing_path else ""
            result.append(MigrateStep(move, "make", disk.path, f"make an empty {disk.path} on {move.dest}{on}"))
    size = sum(disk.bytes_to_move for disk in move.disks)
    how = ", ".join(f"{disk.target} {disk.how}" for disk in move.disks if disk.how != CARRY)
    result.append(MigrateStep(move, "migrate", text=f"migrate {move.guest} to {move.dest} ({how or 'no disks'}; {gib_text(size)} of disk)"))
    return result + finish(move, [disk.path for disk in made if disk.goes])


def finish(move: Move, copied: t.Sequence[str], *, resume: bool = False) -> list[MigrateStep]:
    """What remains when the guest has arrived; also for a run that was interrupted there."""
    result = [MigrateStep(move, "resume", text=f"resume {move.guest} on {move.dest}")] if resume else []
    if move.autostart:
        result.append(MigrateStep(move, "autostart", text=f"set autostart of {move.guest} on at {move.dest}"))
    if not move.keep_source_storage:
        result += [MigrateStep(move, "remove", path, f"remove {path} from the source") for path in copied]
    return [*result, MigrateStep(move, "forget", text=f"remove the record from {move.guest}")]


def call(move: Move) -> tuple[list[str], dict[str, t.Any]]:
    """libvirt's flags and parameters by name: peer-to-peer, so that it goes on when we die; arriving paused, so that one copy runs."""
    flags = ["LIVE", "PEER2PEER", "PERSIST_DEST", "UNDEFINE_SOURCE", "PAUSED", "ABORT_ON_ERROR"]
    parameters: dict[str, t.Any] = {}
    if move.transport == "tunnelled":
        flags.append("TUNNELLED")
    else:
        parameters["migrate_uri"] = f"tcp://{move.dest}"
    if move.transport == "tls":
        flags.append("TLS")
        parameters["tls.destination"] = move.dest
    if move.auto_converge:
        flags.append("AUTO_CONVERGE")
    copied = [disk for disk in move.disks if disk.how in (DELTA, FULL)]
    if copied:
        # INC sends what is not in the file that stands there; a flattened disk needs all.
        flags.append("NON_SHARED_DISK" if any(disk.flatten for disk in copied) else "NON_SHARED_INC")
        parameters["migrate_disks"] = [disk.target for disk in copied]
    if move.bandwidth_mib_s:
        parameters["bandwidth"] = move.bandwidth_mib_s
    return flags, parameters


class Verdict(t.NamedTuple):
    """What two observed ends mean, and the one thing to do."""

    meaning: str
    action: str  # done, resume_dest, resume_source, clean_dest, rolled_back, nothing


def judge(source: str, dest: str, *, was_paused: bool, job_active: bool = False) -> Verdict:
    """Decide from what both hosts say, never from a return code.

    States: running, paused, shutdown, crashed, absent, unreachable. libvirt can report a failure for a guest that arrived, and a
    success is only what both ends agree on: the guest was sent paused, so at most one copy runs until this is decided.
    """
    if job_active:
        return Verdict("libvirt is still at work on it; wait, or end it with virsh domjobabort, and run again", "nothing")
    if "unreachable" in (source, dest):
        return Verdict("one end cannot be seen; the guest may be on either", "nothing")
    if source == "absent" and dest in ("paused", "running"):
        return Verdict("arrived", "done" if was_paused or dest == "running" else "resume_dest")
    if source == "running" and dest == "running":
        return Verdict("split: it runs on both ends; nothing was touched, compare them and destroy the wrong one", "nothing")
    if (dest in ("shutdown", "crashed") and source in ("running", "paused")) or (source, dest) == ("running", "paused"):
        return Verdict("still on the source; a dead copy was left on the destination", "clean_dest")
    if source == "running" and dest == "absent":
        return Verdict("still on the source", "rolled_back")
    if source == "paused" and dest == "absent":
        return Verdict("still on the source, paused", "rolled_back" if was_paused else "resume_source")
    if source == "paused" and dest == "paused":
        return Verdict("paused on both ends: libvirt has not decided; nothing was touched", "nothing")
    if source in ("shutdown", "crashed", "absent") and dest in ("shutdown", "crashed", "absent"):
        return Verdict(f"stopped on the way (source: {source}, destination: {dest})", "nothing")
    return Verdict(f"unclear (source: {source}, destination: {dest})", "nothing")
