# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide how a snapshot is deleted: what was written since goes into the file below, and nothing is lost. Pure.

A merge that was begun has overwritten content of then. So the guest's record tells before that the snapshot is being
deleted, and from then on it can only be deleted.
"""

from __future__ import annotations

import dataclasses
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.problems import refuse_all
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record
from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import (
    Snapshot,
    SnapshotDisk,
    SnapshotRecord,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_snapshot import with_files, without_chains
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_sources import of_snapshot, sources
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_guest_steps import Define, GuestStep
from ansible_collections.corral.virt.plugins.module_utils._snapshot.plan_snapshot import (
    ChainLink,
    Scene,
    SnapshotPlan,
    above_first,
    disposals,
    first_name,
    leftovers,
    lost,
    lost_note,
    needed,
    overlay_now,
    standing_aside,
    stands,
    unpooled,
)
from ansible_collections.corral.virt.plugins.module_utils._snapshot.plan_snapshot_steps import (
    DropSnapshot,
    ForgetChains,
    ForgetSnapshot,
    Merge,
    MergeOff,
    RecordSnapshot,
    Redefine,
)


@dataclasses.dataclass(frozen=True)
class _Merging:
    """One disk of a snapshot: its overlay, and what stands on and below it."""

    target: str
    overlay: str
    base: ChainLink
    above: str | None  # None: the guest writes to the overlay
    job: bool = False  # an interrupted run has begun it


def plan(scene: Scene) -> SnapshotPlan:
    """The plan; raises all refusals at once. A snapshot that is not there is no change."""
    before, snapshot = leftovers(scene), scene.tree.by_name.get(scene.spec.name)
    if snapshot is None:
        return SnapshotPlan(before, name=scene.spec.name)
    if snapshot.kind == "internal":
        return SnapshotPlan((*before, *_internal(scene, snapshot)), name=snapshot.name)
    refuse_all([*_of_the_place(scene, snapshot)])
    merging = [one for disk in snapshot.disks if (one := _merging(scene, snapshot, disk))]
    refuse_all([*_of_the_guest(scene, merging), *_of_the_files(scene, merging), *_of_others(scene, snapshot, merging)])
    steps = _external(scene, snapshot, merging)
    kept = lost(scene, snapshot)
    notes = tuple(lost_note(scene, snapshot, target, path) for path, target in kept.items())
    return SnapshotPlan((*before, *steps), notes=notes, name=snapshot.name)


def _internal(scene: Scene, snapshot: Snapshot) -> list[GuestStep]:
    whose = (scene.found.name, scene.found.uuid, snapshot.name)
    drop = DropSnapshot(*whose, snapshot.created_s, internal=True)
    return [drop, *([ForgetSnapshot(*whose)] if scene.entry(snapshot.name) else [])]


def _merging(scene: Scene, snapshot: Snapshot, disk: SnapshotDisk) -> _Merging | None:
    """How a disk is merged; None if it is not, as another line of snapshots has it, or as it is done."""
    chain = scene.chain(disk.target)
    paths = [one.path for one in chain]
    overlay = overlay_now(scene, snapshot, disk)
    if snapshot not in scene.tree.lineage() or overlay is None:
        return None
    place = paths.index(overlay)
    base = chain[place + 1] if place + 1 < len(chain) else ChainLink("", "")
    job = scene.host.job(scene.found.uuid, disk.target) if scene.found.active else None
    return _Merging(disk.target, overlay, base, paths[place - 1] if place else None, job == "commit")


def _external(scene: Scene, snapshot: Snapshot, merging: t.Sequence[_Merging]) -> list[GuestStep]:
    found, whose = scene.found, (scene.found.name, scene.found.uuid, snapshot.name)
    entry = scene.entry(snapshot.name) or SnapshotRecord(snapshot.name, found.uuid)
    kept = lost(scene, snapshot)
    used = needed(scene, snapshot.name, merged := [one.overlay for one in merging])
    mine = [path for path in entry.files if not first_name(path)]  # of second names, `leftovers` takes care
    own = [path for path in dict.fromkeys((*merged, *snapshot.files, *mine)) if path not in kept]
    # what the guest wrote to before it went back to a snapshot
    left = (disk.overlay for one in scene.tree.lineage() for disk in one.disks if disk.overlay and disk.reverted)
    recorded = (path for one in scene.entries for path in one.files if not first_name(path))
    waste = [path for path in dict.fromkeys((*left, *recorded)) if path not in used and path not in (*own, *kept)]
    files = (*own, *waste)
    spared = tuple(pair for pair in entry.spared if pair[0] not in merged)
    entry = dataclasses.replace(entry, phase=SnapshotRecord.DELETING, files=files, spared=spared)
    copies = tuple(copy for _path, copy in entry.copies)
    gone, kept_h = above_first(scene, (*files, *copies)), scene.spec.keep_reverted_h
    moved = {one.overlay: (one.base.path, one.base.format) for one in merging}
    return [
        RecordSnapshot(*whose, entry),
        *(_merge(scene, snapshot, one) for one in merging),
        *_defined(scene, merging, moved),
        *_redefined(scene, snapshot, entry, moved),
        DropSnapshot(*whose, snapshot.created_s),
        *(step for path in gone for step in disposals(scene, [path], keep_h=kept_h if path in waste else 0)),
        ForgetSnapshot(*whose, (*files, *copies)),
    ]


def _merge(scene: Scene, snapshot: Snapshot, one: _Merging) -> GuestStep:
    found, taken = scene.found, scene.host.taken_bytes(one.overlay)
    whose = (found.name, found.uuid, snapshot.name)
    if found.active:
        return Merge(*whose, one.target, one.overlay, one.base.path, taken, active=one.above is None, goes_on=one.job)
    return MergeOff(*whose, one.target, one.overlay, one.base.path, one.base.format, taken, one.above)


def _defined(
    scene: Scene, merging: t.Sequence[_Merging], moved: t.Mapping[str, tuple[str, str]]
) -> t.Iterator[GuestStep]:
    """The stored definition, with the files that the overlays were merged into. libvirt starts a guest on the chains
    that are in it, and changes them itself only for disks of a running guest, not for what is below these.
    """
    found = scene.found
    is_named = without_chains(found.xml, moved.keys()) is not None
    if found.active and is_named:
        yield ForgetChains(found.name, found.uuid, scene.spec.name, tuple(moved))
    elif not found.active and (is_named or any(one.above is None for one in merging)):
        xml = with_files(found.xml, moved, lambda _pool, _volume: None)
        yield Define(found.name, xml, "its disks merged", found.uuid, fields_record.fingerprint(found.xml))


def _redefined(
    scene: Scene, snapshot: Snapshot, entry: SnapshotRecord, moved: t.Mapping[str, tuple[str, str]]
) -> t.Iterator[GuestStep]:
    """The snapshots above, whose definitions of then name a file that is merged, by this run or an interrupted one."""
    then = {
        path: (disk.base, disk.base_format or "raw")
        for disk in snapshot.disks
        for path in (disk.overlay, disk.reverted)
        if path
    }
    gone = {path: (str(base), form) for path, (base, form) in then.items() if path in entry.files and base}
    files = tuple((path, *to) for path, to in {**gone, **moved}.items())
    above, lineage = scene.tree.descendants(snapshot.name), scene.tree.lineage()
    named = {path for path, _to, _form in files}
    for one in (*above, *(one for one in lineage if one not in (snapshot, *above))):
        overlays = _overlays(scene, one) if one in lineage else ()
        names = bool(named) and one in above and _names(one, named)
        if names or overlays:
            yield Redefine(scene.found.name, scene.found.uuid, one.name, files if names else (), overlays)


def _names(snapshot: Snapshot, files: t.Collection[str]) -> bool:
    """True if a definition of then has one of these files as a disk, or below one."""
    *definitions, _own = of_snapshot(snapshot.xml)
    return any(path in files for xml in definitions for path in sources(xml, lambda _pool, _volume: None, below=True))


def _overlays(scene: Scene, snapshot: Snapshot) -> tuple[tuple[str, str], ...]:
    """The overlays of a snapshot to which the guest went back since, by target: libvirt forgets them otherwise."""
    now = {disk.target: overlay_now(scene, snapshot, disk) for disk in snapshot.disks}
    return tuple((disk.target, path) for disk in snapshot.disks if (path := now[disk.target]) and path != disk.overlay)


def _of_others(scene: Scene, snapshot: Snapshot, merging: t.Sequence[_Merging]) -> t.Iterator[VirtError]:
    """What stands on the files that would change or go, aside of the guest's present state."""
    touched = {path for one in merging for path in (one.overlay, one.base.path)}
    found = [
        name for name, paths in standing_aside(scene).items() if name != snapshot.name and not paths.isdisjoint(touched)
    ]
    if found:
        yield Refused(
            f"{_cannot(scene)}: snapshots of other branches need the same files; delete {', '.join(found)} first"
        )
    there = [path for path in snapshot.files if scene.host.exists(path)]
    yield from unpooled(scene, there, _cannot(scene))


def _cannot(scene: Scene) -> str:
    return f"cannot delete snapshot {scene.spec.name} of {scene.found.name}"


def _of_the_place(scene: Scene, snapshot: Snapshot) -> t.Iterator[VirtError]:
    """What speaks against it by its place in the tree."""
    lineage = scene.tree.lineage()
    aside = [one.name for one in scene.tree.children(snapshot.name) if one not in lineage]
    if aside:
        yield Refused(
            f"{_cannot(scene)}: it has branches beside the guest's present state; delete {', '.join(aside)} first"
        )
    if snapshot.kind == "mixed":
        command = shlex.join(["virsh", "snapshot-delete", scene.found.name, snapshot.name])
        yield Refused(f"{_cannot(scene)}: it is internal for some disks and external for others; use `{command}`")


def _of_the_guest(scene: Scene, merging: t.Sequence[_Merging]) -> t.Iterator[VirtError]:
    found, cannot, kept = scene.found, _cannot(scene), scene.host.kept(scene.found.uuid)
    if not found.persistent:
        yield Refused(f"{cannot}: the guest is transient; define it first (virsh define)")
    if merging and not found.active and "checkpoints" in kept:
        yield Refused(f"{cannot} while the guest is off: its checkpoints would be lost; start it first")
    if merging and not found.active and "managed_save" in kept:
        yield Refused(
            f"{cannot}: its managed save image fits only the present disks; start it, or discard the image "
            f"({shlex.join(['virsh', 'managedsave-remove', found.name])})"
        )
    entry = scene.entry(scene.spec.name)
    begun = entry is not None and entry.phase == SnapshotRecord.DELETING
    for one in merging:
        job = scene.host.job(found.uuid, one.target) if found.active else None
        if job and not (one.job and begun):
            show = shlex.join(["virsh", "blockjob", found.name, one.target])
            yield Refused(f"{cannot}: a block job ({job}) works on disk {one.target} ({show}); wait until it ends")


def _of_the_files(scene: Scene, merging: t.Sequence[_Merging]) -> t.Iterator[VirtError]:
    cannot, snapshot = _cannot(scene), scene.tree.by_name[scene.spec.name]
    bases = {disk.target: disk.base for disk in snapshot.disks}
    recorded = (path for entry in scene.entries for path in entry.files)  # those that matter: `_of_others`
    own = tuple(sorted(scene.used_files().union(recorded)))
    for one in merging:
        user = _user(scene, one, own) if one.base.path else None
        if one.base.path != bases[one.target]:
            yield Refused(
                f"{cannot}: the backing file of {one.overlay} is {one.base.path or 'missing'}, and was "
                f"{bases[one.target]} when the snapshot was taken; somebody has changed its chain: inspect it "
                f"({shlex.join(['qemu-img', 'info', '-U', '--backing-chain', one.overlay])})"
            )
        elif user:
            yield Refused(
                f"{cannot}: merging disk {one.target} would change {one.base.path}, which {user} uses, too; remove "
                "that first"
            )
    entry = scene.entry(snapshot.name)
    begun = entry is not None and entry.phase == SnapshotRecord.DELETING
    merged = {one.target for one in merging}
    for disk in snapshot.disks if snapshot in scene.tree.lineage() and not begun else ():
        if disk.overlay and stands(scene, disk) and disk.target not in merged:
            command = shlex.join(["virsh", "snapshot-delete", "--metadata", scene.found.name, snapshot.name])
            yield Refused(
                f"{cannot}: {disk.overlay} is no longer in the chain of disk {disk.target}; inspect the file, and let "
                f"libvirt forget the snapshot: `{command}`"
            )


def _user(scene: Scene, one: _Merging, own: tuple[str, ...]) -> str | None:
    """Who uses the file that would change: another disk of the guest, or somebody else than it with its `own` files."""
    for target in scene.disks():
        if target != one.target and one.base.path in [link.path for link in scene.chain(target)]:
            return f"disk {target}"
    return scene.host.other_user(one.base.path, scene.found.uuid, own)


def check_merge(step: Merge | MergeOff, chain: t.Sequence[str], *, active: bool) -> None:
    """Raise Refused if the overlay does not stand right on its base any more, or the guest was started or stopped."""
    running = isinstance(step, Merge)
    place = chain.index(step.overlay) if step.overlay in chain else -1
    same = place >= 0 and list(chain[place + 1 : place + 2]) == [step.base]
    if active != running or not same:
        state = "runs" if active else "is off"
        why = f"the guest {state} by now" if active != running else "its chain has changed"
        raise Refused(f"cannot merge disk {step.target} of {step.what}: {why}; nothing was merged; run again")


def check_still_off(step: Define | MergeOff, *, active: bool, same: bool) -> None:
    """Raise Refused if the guest was started since its disks were merged or left, or something wrote to them."""
    if active or not same:
        why = "it was started" if active else "something has written to its disks"
        raise Refused(
            f"cannot define {step.guest} with other disks: {why} in the meantime; it has those of before; run again"
        )
