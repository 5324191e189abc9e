# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide how the snapshots of a guest migrate with it, and what speaks against that. Pure.

libvirt migrates no guest whose snapshots it keeps. So the destination gets them before the guest, with their files, in
the definition that reserves the guest's place; then the source forgets them. A note on the source puts them back.
"""

from __future__ import annotations

import dataclasses
import hashlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._core.output import agree, some_of
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_disk
from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import Snapshot, SnapshotRecord
from ansible_collections.corral.virt.plugins.module_utils._domain.plan_snapshot_names import named, remedy
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_snapshot import snapshot
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_sources import Located, of_snapshot
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import (
    COPIED,
    MigratingGuest,
    Move,
    SavedSnapshot,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migrating_disk import (
    Described,
    MigratingDisk,
    as_requested,
)
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import drop, parse, text

_MEMORY, _COPY = "memory", "state of the machine"


def parsed(saved: t.Iterable[SavedSnapshot]) -> tuple[Snapshot, ...]:
    """The snapshots in libvirt's documents."""
    return tuple(snapshot(one.xml, "{}/{}".format, current=one.current) for one in saved)


def fingerprint(saved: t.Iterable[SavedSnapshot]) -> str:
    """The SHA-256 of snapshots, for a look whether they are still the same; empty without any."""
    found = [*saved]
    return hashlib.sha256(repr([tuple(one) for one in found]).encode()).hexdigest() if found else ""


def missing(saved: t.Iterable[SavedSnapshot], there: t.Iterable[SavedSnapshot]) -> tuple[SavedSnapshot, ...]:
    """The saved snapshots that libvirt does not have."""
    known = {one.name for one in there}
    return tuple(one for one in saved if one.name not in known)


def all_of(noted: t.Sequence[SavedSnapshot], there: t.Sequence[SavedSnapshot]) -> tuple[SavedSnapshot, ...]:
    """The snapshots that the guest has when those of the note are back."""
    gone = missing(noted, there)
    current = any(one.current for one in gone)
    return (*gone, *(one._replace(current=one.current and not current) for one in there)) if gone else (*there,)


def problems(move: Move, guest: MigratingGuest) -> t.Iterator[str]:
    """Why the snapshots of a guest cannot migrate with it, each with its remedy."""
    yield from unfinished(guest)
    if not guest.snapshots:
        return
    copied = {disk.target for disk in move.disks if disk.how in COPIED}
    inside = [one.name for one in guest.snapshots if _inside(one) & copied]
    if inside:
        yield (
            f"{named(inside)} would be lost: the guest writes to the disk that they are in while it is copied; "
            f"migrate the guest while it is off, put the disk on shared storage, or {remedy(guest.name, inside)}"
        )
    names = [one.name for one in guest.snapshots]
    flat = [disk.target for disk in move.disks if disk.flatten]
    if flat:
        yield (
            f"{named(names)} would be lost: {', '.join(flat)} would be copied without backing files; use storage: "
            f"auto, migrate the guest while it is off, or {remedy(guest.name, names)}"
        )
    if move.renamed:
        yield (
            f"{named(names)} would name other files than {', '.join(move.renamed.values())}; omit pool and disk_pool, "
            f"or {remedy(guest.name, names)}"
        )
    if begun := [one.name for one in guest.snapshots if one.deleting]:
        yield f"libvirt was interrupted when it deleted {named(begun)}; {remedy(guest.name, begun)}"


def unfinished(guest: MigratingGuest) -> t.Iterator[str]:
    """Snapshots that an interrupted run was taking or deleting."""
    for verb, phase in (("taking", SnapshotRecord.TAKING), ("deleting", SnapshotRecord.DELETING)):
        if begun := [one.name for one in guest.snapshot_records if one.phase == phase]:
            yield f"an interrupted run was {verb} {named(begun)}; run that again (virt_snapshot)"


def _inside(one: Snapshot) -> set[str]:
    """Targets of the disks whose files hold a part of the snapshot."""
    return {disk.target for disk in one.disks if disk.kind == "internal"}


class SnapshotFile(t.NamedTuple):
    """A file that a snapshot names, as a disk that nobody writes."""

    disk: MigratingDisk
    raw: bool
    own: bool  # it is the guest's alone


def disks(
    saved: t.Iterable[SavedSnapshot],
    requested: t.Iterable[MigratingDisk],
    storage: str,
    located: Located,
    records: t.Iterable[SnapshotRecord] = (),
) -> list[SnapshotFile]:
    """The files that snapshots name and the guest does not write, each once, and copies of UEFI variables and TPM state
    in their `records`. `requested` are the guest's disks, `storage` is the mode for others.
    """
    copies = {one.name: one.copies for one in records}
    known = [*requested]
    modes, found = {one.target: one.mode for one in known}, dict[t.Any, SnapshotFile]()
    for one in saved:
        kept = [_file(_COPY, copy, "raw") for _path, copy in copies.get(one.name, ())]
        for item in (*_named(one, located), *kept):
            mode = "shared" if modes.get(item["target"], storage) == "shared" else "auto"
            for disk in as_requested([item], _AS_IT_IS, assumed=False):
                its = dataclasses.replace(
                    disk, mode=mode, fixed=True, shareable=False, target=f"{disk.target} of snapshot {one.name}"
                )
                own = not (item.get("readonly") or item.get("shareable"))
                found.setdefault(its.volume or its.path, SnapshotFile(its, item.get("format") == "raw", own))
    written = {one.volume or one.path for one in known}
    return [entry for key, entry in found.items() if key not in written]


def each_once(found: t.Sequence[MigratingDisk]) -> list[MigratingDisk]:
    """The disks without those that are copied below another one."""
    below = {member.path for one in found for member in one.chain}
    return [one for one in found if not (one.fixed and one.path in below)]


def notes(guest: str, gone: t.Sequence[str]) -> list[str]:
    """A note on files of snapshots that are gone: there is no way back to these."""
    found = agree(len(gone), "is", "are")
    return [f"snapshots of {guest} name {some_of(gone, 5)}, which {found} gone"] if gone else []


_AS_IT_IS: dict[str, t.Any] = {"storage": "auto", "disk_storage": {}, "pool": None, "disk_pool": {}}


def _named(one: SavedSnapshot, located: Located) -> t.Iterator[Described]:
    """Overlays, the file with memory, and the disks of then."""
    seen = snapshot(one.xml, located)
    for disk in seen.disks:
        for path in filter(None, (disk.overlay, disk.reverted)):
            yield _file(disk.target, path, disk.format)
    if seen.memory_file:
        yield _file(_MEMORY, seen.memory_file, "raw")
    *definitions, _files = of_snapshot(one.xml)
    for xml in definitions:
        yield from fields_disk.media(parse(xml))


def _file(target: str, path: str, form: str | None) -> Described:
    return {
        "target": target,
        "source": path,
        "type": "block" if path.startswith("/dev/") else "file",
        "format": form,
    }


def check_backups(move: Move, found: t.Sequence[str]) -> None:
    """Raise Failed if the checkpoints are no longer those that were planned with."""
    if tuple(found) != move.backups:
        raise Failed(
            f"cannot migrate {move.guest}: its checkpoints were changed since this run has read them, as by a backup; "
            "nothing of them was touched; run again"
        )


def check_as_planned(move: Move, saved: t.Iterable[SavedSnapshot]) -> None:
    """Raise Failed if the snapshots are no longer those that were planned with."""
    if fingerprint(saved) != move.snapshots_seen:
        raise Failed(
            f"cannot migrate {move.guest}: its snapshots were changed since this run has read them; nothing of them "
            "was touched; run again"
        )


def check_defined(guest: str, host: str, wanted: t.Iterable[SavedSnapshot], found: t.Iterable[SavedSnapshot]) -> None:
    """Raise Failed if libvirt on a host did not take snapshots as they are."""
    there = {one.name: _facts(one) for one in parsed(found)}
    differing = [one.name for one in parsed(wanted) if there.get(one.name) != _facts(one)]
    if differing:
        raise Failed(
            f"cannot define {named(differing)} of {guest} on {host}: libvirt there reads them differently; "
            f"compare `virsh snapshot-dumpxml` on both hosts, or {remedy(guest, differing)}"
        )


def readable(saved: t.Iterable[SavedSnapshot], version: int, *, written_by: int) -> list[SavedSnapshot]:
    """The snapshots as libvirt of this version reads them, which may be older than that which has written them."""
    return [one if version >= written_by else one._replace(xml=_for_older(one.xml)) for one in saved]


def _for_older(xml: str) -> str:
    """Without what libvirt itself omits from the definition of a guest that migrates, but not from those in snapshots:
    the watchdog that each q35 machine has (added from 9.1 on), and by which features it has chosen the firmware.
    """
    root = parse(xml)
    drop(root.xpath(".//devices/watchdog[@model='itco' and @action='reset'] | .//os[loader/text()]/firmware"))
    for chosen in root.xpath(".//os[@firmware and loader/text()]"):
        del chosen.attrib["firmware"]
    return text(root)


def _facts(one: Snapshot) -> Snapshot:
    """What makes a snapshot; the definition of then may gain defaults of another libvirt."""
    bare = [dataclasses.replace(disk, base=None, base_format=None) for disk in one.disks]
    return dataclasses.replace(one, xml="", description=one.description.strip(), disks=tuple(bare))
