# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide how a snapshot of a guest is taken, and what must not be so. Pure."""

from __future__ import annotations

import dataclasses
import os.path
import re
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.problems import refuse_all
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text
from ansible_collections.corral.virt.plugins.module_utils._domain import xml_backup_record
from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import SnapshotRecord
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_snapshot import GuestDisk, has_agent, taking
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import GuestStep
from ansible_collections.corral.virt.plugins.module_utils._snapshot.plan_snapshot import (
    Scene,
    SnapshotPlan,
    leftovers,
    unpooled,
)
from ansible_collections.corral.virt.plugins.module_utils._snapshot.plan_snapshot_steps import (
    NEEDS_AGENT,
    CopyState,
    RecordSnapshot,
    TakeSnapshot,
    not_frozen,
)

_ROOM_BYTES = 16 * 1024**2  # of a disk, for what the guest writes at once
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def plan(scene: Scene) -> SnapshotPlan:
    """The plan; raises all refusals at once. A snapshot that is there is not taken again."""
    name, entry = scene.spec.name, scene.entry(scene.spec.name)
    before = leftovers(scene)
    if name in scene.tree.by_name:
        check_whole("take", scene.found.name, entry)
        if entry and entry.phase == SnapshotRecord.TAKING:
            return SnapshotPlan((*before, _made(scene, entry)), name=name)
        return SnapshotPlan(before, name=name)
    disks = [disk for disk in scene.disks().values() if disk.written]
    refuse_all([*_of_the_guest(scene, disks), *_of_the_disks(scene, disks)])
    if scene.spec.kind == "internal":
        return SnapshotPlan((*before, *_internal(scene)), name=name)
    refuse_all([*_of_the_room(scene, disks)])
    steps, notes = _external(scene, disks)
    return SnapshotPlan((*before, *steps), notes=notes, name=name)


def check_whole(verb: str, guest: str, entry: SnapshotRecord | None) -> None:
    """Raise Refused for a snapshot whose content may be overwritten already."""
    if entry and entry.phase == SnapshotRecord.DELETING:
        raise Refused(
            f"cannot {verb} snapshot {entry.name} of {guest}: its deletion was begun and interrupted, so its content "
            "is no longer whole; finish it with state: absent"
        )


def file_name(scene: Scene, what: str, token: str, name: str) -> str:
    """The name of a file of a snapshot, which no other file has."""
    guest, snapshot = scene.found.name, name if _FILE_NAME.fullmatch(name) else "snapshot"
    return f"{guest if _FILE_NAME.fullmatch(guest) else scene.found.uuid}-{what}.{snapshot}.{token}"


def _made(scene: Scene, entry: SnapshotRecord) -> RecordSnapshot:
    made = dataclasses.replace(entry, phase=SnapshotRecord.MADE)
    return RecordSnapshot(scene.found.name, scene.found.uuid, entry.name, made, entry.files)


def _external(scene: Scene, disks: t.Sequence[GuestDisk]) -> tuple[list[GuestStep], tuple[str, ...]]:
    spec, found, token = scene.spec, scene.found, scene.host.token()
    places = {disk.target: spec.directory or os.path.dirname(str(disk.path)) for disk in disks}
    named = {
        target: os.path.join(place, file_name(scene, target, token, spec.name) + ".qcow2")
        for target, place in places.items()
    }
    first = next(iter(places.values()))
    memory = os.path.join(first, file_name(scene, "memory", token, spec.name)) if spec.memory else None
    copies = () if spec.memory else _copies(scene, first, token)
    files = (*named.values(), *([memory] if memory else []))
    entry = SnapshotRecord(spec.name, found.uuid, SnapshotRecord.TAKING, spec.scheduled, files, copies)
    whose = (found.name, found.uuid, spec.name)
    agent = found.active and spec.quiesce != "never" and has_agent(scene.xml)
    overlays = {target: named.get(target) for target in scene.disks()}
    xml = taking(spec.name, spec.description, overlays, internal=False, memory=memory)
    take = TakeSnapshot(
        *whose,
        xml,
        "external",
        memory=spec.memory,
        live=found.active,
        quiesce=agent and not spec.memory,
        required=spec.quiesce == "required",
    )
    steps: list[GuestStep] = [
        RecordSnapshot(*whose, entry),
        *(CopyState(*whose, path, copy) for path, copy in copies),
        take,
        _made(scene, entry),
    ]
    return steps, tuple(_notes(scene, take))


def _copies(scene: Scene, directory: str, token: str) -> tuple[tuple[str, str], ...]:
    """UEFI variables and TPM state, each with the path of its copy."""
    found = scene.host.state_files(scene.found.xml, scene.found.uuid)
    names = {path: "tpm" if os.path.basename(path) == scene.found.uuid else "nvram" for path in found}
    return tuple(
        (path, os.path.join(directory, file_name(scene, what, token, scene.spec.name))) for path, what in names.items()
    )


def _notes(scene: Scene, take: TakeSnapshot) -> t.Iterator[str]:
    if take.live and not take.quiesce and not take.memory and scene.spec.quiesce == "auto":
        yield not_frozen(take.what)


def _internal(scene: Scene) -> list[GuestStep]:
    spec, found = scene.spec, scene.found
    overlays = {disk.target: disk.path if disk.written else None for disk in scene.disks().values()}
    memory = "" if spec.memory else None
    xml = taking(spec.name, spec.description, overlays, internal=True, memory=memory)
    whose = (found.name, found.uuid, spec.name)
    entry = SnapshotRecord(spec.name, found.uuid, SnapshotRecord.MADE, spec.scheduled)
    return [
        TakeSnapshot(*whose, xml, "internal", memory=spec.memory, live=found.active),
        *([RecordSnapshot(*whose, entry)] if spec.scheduled else []),
    ]


def _cannot(scene: Scene) -> str:
    return f"cannot take snapshot {scene.spec.name} of {scene.found.name}"


def _of_the_guest(scene: Scene, disks: t.Sequence[GuestDisk]) -> t.Iterator[VirtError]:
    spec, found, cannot = scene.spec, scene.found, _cannot(scene)
    if held := xml_backup_record.held(found.xml):
        yield Refused(f"{cannot}: {xml_backup_record.HELD}; {held}")
    if not found.persistent:
        yield Refused(f"{cannot}: it is transient; define it first (virsh define)")
    if not disks:
        yield Refused(f"{cannot}: it has no disk that it writes to; there is nothing to store")
    if spec.memory and not found.active:
        yield Refused(f"{cannot} with its memory: it is off; start it, or omit memory: true")
    if spec.quiesce == "required" and not (found.active and has_agent(scene.xml)):
        yield Refused(f"{cannot}: {NEEDS_AGENT}; install qemu-guest-agent in it, or use quiesce: auto")
    if spec.memory and "<hostdev" in scene.xml:
        yield Refused(
            f"{cannot} with its memory: it has devices of the host, whose state cannot be stored; omit memory"
        )
    if "managed_save" in scene.host.kept(found.uuid):
        yield Refused(
            f"{cannot}: its managed save image fits only the present disks; start it, or discard the image "
            f"({shlex.join(['virsh', 'managedsave-remove', found.name])})"
        )
    for disk in disks if found.active else ():
        job = scene.host.job(found.uuid, disk.target)
        if job:
            show = shlex.join(["virsh", "blockjob", found.name, disk.target])
            yield Refused(f"{cannot}: a block job ({job}) works on disk {disk.target} ({show}); wait until it ends")
    if spec.kind == "internal":
        yield from _of_an_internal_one(scene)


def _of_an_internal_one(scene: Scene) -> t.Iterator[VirtError]:
    cannot, instead = f"{_cannot(scene)} inside its disks", "use kind: external"
    spec, found, host = scene.spec, scene.found, scene.host
    if found.active and not spec.memory:
        yield Refused(f"{cannot}: of a running guest, it must have the memory, too; set memory: true, or {instead}")
    if host.state_files(found.xml, found.uuid) or "firmware='efi'" in found.xml or "<nvram" in found.xml:
        yield Refused(f"{cannot}: its UEFI variables or TPM state would be missing there; {instead}")
    elif "<tpm" in found.xml:
        yield Refused(f"{cannot}: the state of its TPM would be missing there; {instead}")
    if "checkpoints" in host.kept(found.uuid):
        yield Refused(f"{cannot}: it has checkpoints, and going back would leave it shut off; {instead}")
    for disk in scene.disks().values():
        if disk.written and disk.format != "qcow2":
            yield Refused(f"{cannot}: disk {disk.target} is {disk.format}, and only qcow2 stores snapshots; {instead}")
        elif disk.written and disk.path and host.has_bitmaps(disk.path):
            yield Refused(
                f"{cannot}: disk {disk.target} has bitmaps of backups, and going back would leave the guest shut off; "
                f"{instead}"
            )
    if any(one.kind == "external" for one in scene.tree.by_name.values()):
        yield Refused(
            f"{cannot}: it has external snapshots, and libvirt does not mix them with internal ones; {instead}"
        )


def _of_the_disks(scene: Scene, disks: t.Sequence[GuestDisk]) -> t.Iterator[VirtError]:
    cannot = _cannot(scene)
    for disk in disks:
        what = f"{cannot}: disk {disk.target}"
        if disk.shareable:
            yield Refused(
                f"{what} is shared with other guests, which would go on writing to its present file; detach it first"
            )
        elif not disk.path:
            yield Refused(f"{what} is no file or device of this host ({disk.type}); take it where the disk is stored")
        elif disk.encrypted:
            yield Refused(f"{what} is encrypted, and its new file would not be; use a backup")
        elif disk.path.startswith("/dev/") and not scene.spec.directory and scene.spec.kind == "external":
            yield Refused(
                f"{what} is the block device {disk.path}, and its new file needs a directory; set directory to one "
                "with room"
            )


def _of_the_room(scene: Scene, disks: t.Sequence[GuestDisk]) -> t.Iterator[VirtError]:
    spec, needed = scene.spec, dict[str, int]()
    places = [spec.directory or os.path.dirname(str(disk.path)) for disk in disks]
    for place in places:
        needed[place] = needed.get(place, 0) + _ROOM_BYTES
    if spec.memory and places:
        needed[places[0]] += scene.host.memory_bytes(scene.xml)
    for place, least in needed.items():
        if not scene.host.exists(place):
            yield Refused(f"{_cannot(scene)}: there is no directory {place}; create it")
            continue
        yield from unpooled(scene, [os.path.join(place, "")], _cannot(scene))
        free = scene.host.free_in(place)
        if free < least:
            yield Refused(
                f"{_cannot(scene)}: {place} has {bytes_text(free)} free, and it needs {bytes_text(least)} at once; "
                "make room, or set directory to a place with more"
            )
