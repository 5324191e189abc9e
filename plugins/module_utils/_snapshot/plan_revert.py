# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide how a guest goes back to a snapshot, and what it must not throw away unasked. Pure.

A snapshot of disks that the guest's present state stands on is restored by this collection, with every libvirt: new
files on the content of then, and the definition, UEFI variables and TPM state of then. libvirt itself restores those
with memory, those inside disks, and those that others stand on.
"""

from __future__ import annotations

import dataclasses
import os.path
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.problems import refuse_all
from ansible_collections.corral.virt.plugins.module_utils._core.units import age_text, bytes_text
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record
from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import (
    Snapshot,
    SnapshotDisk,
    SnapshotRecord,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_snapshot import definition_then
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_guest_steps import Define, GuestStep
from ansible_collections.corral.virt.plugins.module_utils._snapshot.plan_snapshot import (
    Scene,
    SnapshotPlan,
    disposals,
    leftovers,
    lost,
    lost_note,
    second_name,
    stands,
    unpooled,
)
from ansible_collections.corral.virt.plugins.module_utils._snapshot.plan_snapshot_steps import (
    CreateOverlay,
    PowerOff,
    PutBack,
    RecordSnapshot,
    Redefine,
    Revert,
    StartAgain,
    StayOff,
)
from ansible_collections.corral.virt.plugins.module_utils._snapshot.plan_take import check_whole, file_name
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disposal import DeleteVolume, steps_and_notes

_REVERTS = 9_009_000  # the libvirt that reverts to external snapshots


def plan(scene: Scene) -> SnapshotPlan:
    """The plan; raises all refusals at once."""
    spec, found = scene.spec, scene.found
    snapshot = scene.tree.by_name.get(spec.name)
    if snapshot is None:
        names = ", ".join(scene.tree.by_name)
        others = f"choose one of {names}" if names else "it has none"
        raise NotFound(f"cannot revert {found.name}: it has no snapshot {spec.name}; {others}")
    entry = scene.entry(spec.name)
    check_whole("revert to", found.name, entry)
    own = _is_own(scene, snapshot)
    present = _present(scene)
    refuse_all(
        [
            *_of_the_guest(scene, snapshot, own=own),
            *_of_the_files(scene, snapshot),
            *unpooled(scene, present, _cannot(scene)),
            *_unconfirmed(scene, present),
        ]
    )
    steps, notes = _own(scene, snapshot, present) if own else _by_libvirt(scene, snapshot, present)
    finishing, told = steps_and_notes(found.name, scene.host.unfinished_removals())
    state = Change("state of then", None, snapshot.name)
    kept = tuple(present) if spec.keep_reverted_h and snapshot.kind == "external" else ()
    return SnapshotPlan(
        (*finishing, *leftovers(scene), *steps),
        (state,),
        notes=(*notes, *told),
        name=snapshot.name,
        thrown_away=tuple(present.items()),
        kept=kept,
    )


def _is_own(scene: Scene, snapshot: Snapshot) -> bool:
    """True if this collection restores it, with any libvirt."""
    ours = snapshot.kind == "external" and snapshot.memory == "no"
    return ours and snapshot.current and not scene.tree.children(snapshot.name)


def _present(scene: Scene) -> dict[str, int]:
    """The files with what the guest has written since its current snapshot, and their bytes."""
    current, gone = scene.tree.current(), _gone(scene)
    targets = [disk.target for disk in current.disks if disk.overlay and disk not in gone] if current else []
    tops = [str(disk.path) for target, disk in scene.disks().items() if target in targets and disk.path]
    return {path: scene.host.taken_bytes(path) for path in tops if scene.host.exists(path)}


def _gone(scene: Scene) -> list[SnapshotDisk]:
    """The disks of the current snapshot that the guest has no longer, or another one in their place."""
    current = scene.tree.current()
    return [disk for disk in current.disks if disk.overlay and not stands(scene, disk)] if current else []


def _detached(scene: Scene) -> dict[str, str]:
    """The files with what the guest has written since its current snapshot to disks that it has no longer, by path
    their targets. They stay: the owner has detached them, and kept them.
    """
    used, files = scene.used_files(), {str(disk.reverted or disk.overlay): disk.target for disk in _gone(scene)}
    return {path: target for path, target in files.items() if path not in used and scene.host.exists(path)}


def _own(scene: Scene, snapshot: Snapshot, present: t.Mapping[str, int]) -> tuple[list[GuestStep], t.Iterable[str]]:
    found, spec, token = scene.found, scene.spec, scene.host.token()
    whose = (found.name, found.uuid, snapshot.name)
    now = scene.disks()
    made = {
        disk.target: CreateOverlay(
            *whose,
            disk.target,
            os.path.join(os.path.dirname(disk.overlay), file_name(scene, disk.target, token, snapshot.name) + ".qcow2"),
            str(disk.base),
            disk.base_format or "raw",
        )
        for disk in snapshot.disks
        if disk.kind == "external" and disk.overlay
    }
    overlays = {target: step.path for target, step in made.items()}
    entry = scene.entry(snapshot.name) or SnapshotRecord(snapshot.name, found.uuid)
    detached = _detached(scene)
    files = (*_without(entry, detached).files, *overlays.values())
    entry = dataclasses.replace(entry, phase=SnapshotRecord.MADE, files=files)
    old = [disk.overlay for disk in snapshot.disks if disk.overlay and disk.overlay not in detached]
    tops = tuple(str(disk.path) for disk in now.values() if disk.written and disk.path)
    xml = definition_then(snapshot.xml, found.xml, overlays)
    steps: list[GuestStep] = [
        RecordSnapshot(*whose, entry),
        *made.values(),
        *([PowerOff(*whose, tops)] if found.active else []),
        Define(found.name, xml, f"as of snapshot {snapshot.name}", found.uuid, fields_record.fingerprint(found.xml)),
        Redefine(*whose, (), tuple(overlays.items())),
        *(PutBack(*whose, copy, path) for path, copy in entry.copies),
        RecordSnapshot(*whose, entry, tuple(overlays.values())),
        *([StartAgain(*whose)] if spec.run else []),
        *([StayOff(*whose)] if found.active and not spec.run else []),
        *disposals(scene, dict.fromkeys((*present, *old)), keep_h=spec.keep_reverted_h),
    ]
    return steps, _notes(scene, snapshot, {snapshot.name: detached})


def _notes(scene: Scene, snapshot: Snapshot, left: t.Mapping[str, t.Mapping[str, str]]) -> t.Iterator[str]:
    others = {disk.target for disk in _gone(scene)}
    then = {disk.target for disk in snapshot.disks} - others
    for target, disk in scene.disks().items():
        if target not in then and disk.written:
            yield (
                f"disk {target} of {scene.found.name} is detached: snapshot {snapshot.name} is older than it; "
                f"{disk.path} is kept"
            )
    told = set[str]()
    for name, files in left.items():  # the newest first: it stands on the others
        for path, target in files.items():
            if target not in told:
                yield lost_note(scene, scene.tree.by_name[name], target, path)
        told.update(files.values())


def _left(scene: Scene, snapshot: Snapshot) -> dict[str, dict[str, str]]:
    """The files of detached disks that the guest leaves, and libvirt's documents go on naming: by snapshot and path,
    their targets. Also those that it has by now as disks of another target.
    """
    host, bases = scene.host, [disk for disk in snapshot.disks if disk.base and scene.host.exists(disk.base)]
    content = {link.path for disk in bases for link in host.chain(str(disk.base), disk.base_format or "raw")}
    found = {
        one.name: {path: target for path, target in lost(scene, one).items() if path not in content}
        for one in scene.tree.lineage()
    }
    return {name: files for name, files in found.items() if files}


def _by_libvirt(
    scene: Scene, snapshot: Snapshot, present: t.Mapping[str, int]
) -> tuple[list[GuestStep], t.Iterable[str]]:
    found, spec, whose = scene.found, scene.spec, (scene.found.name, scene.found.uuid)
    left = _left(scene, snapshot)
    detached = [path for files in left.values() for path in files]
    names, spared = (_second_names(scene, snapshot, paths) for paths in (present, detached))
    second = (tuple(names.items()), tuple(spared.items()))
    step = Revert(*whose, snapshot.name, snapshot.created_s, bool(spec.run), *second)
    aside: list[GuestStep] = [
        DeleteVolume(found.name, name, scene.host.identity(path), keep_h=spec.keep_reverted_h)
        for path, name in names.items()
    ]
    notes = [*_notes(scene, snapshot, left)]
    entry = scene.entry(snapshot.name)
    if entry and entry.copies:
        notes.append(
            f"UEFI variables and TPM state of {found.name} stay as they are, as there are newer snapshots than "
            f"{snapshot.name}"
        )
    return [*_records(scene, snapshot, names, left, spared), step, *aside], notes


def _records(
    scene: Scene,
    snapshot: Snapshot,
    names: t.Mapping[str, str],
    left: t.Mapping[str, t.Collection[str]],
    spared: t.Mapping[str, str],
) -> t.Iterator[RecordSnapshot]:
    """The entries for the revert: what has another name then goes with its snapshot, and what is spared does not."""
    uuid = scene.found.uuid
    for name in dict.fromkeys((*(one.name for one in scene.entries), *left, snapshot.name)):
        entry = scene.entry(name)
        then = _without(entry or SnapshotRecord(name, uuid, SnapshotRecord.MADE), spared)
        files = dict.fromkeys((*then.files, *(names.values() if name == snapshot.name else ())))
        mine = {**dict(then.spared), **{path: spared[path] for path in left.get(name, ()) if path in spared}}
        now = dataclasses.replace(then, files=tuple(files), spared=tuple(mine.items()))
        if now != entry and (entry or files or mine):
            yield RecordSnapshot(scene.found.name, uuid, name, now)


def _second_names(scene: Scene, snapshot: Snapshot, paths: t.Iterable[str]) -> dict[str, str]:
    """The names under which files stay while libvirt removes them, by path."""
    token = scene.host.token()
    return {path: second_name(path, token) for path in paths} if snapshot.kind == "external" else {}


def _without(entry: SnapshotRecord, files: t.Collection[str]) -> SnapshotRecord:
    """The entry without files that stay, whatever becomes of its snapshot."""
    return dataclasses.replace(entry, files=tuple(path for path in entry.files if path not in files))


def _cannot(scene: Scene) -> str:
    return f"cannot revert {scene.found.name} to snapshot {scene.spec.name}"


def _of_the_guest(scene: Scene, snapshot: Snapshot, *, own: bool) -> t.Iterator[VirtError]:
    found, spec, cannot, host = scene.found, scene.spec, _cannot(scene), scene.host
    kept = host.kept(found.uuid)
    if not found.persistent:
        yield Refused(f"{cannot}: the guest is transient; define it first (virsh define)")
    if snapshot.kind == "mixed":
        command = shlex.join(["virsh", "snapshot-revert", found.name, snapshot.name])
        yield Refused(f"{cannot}: it is internal for some disks and external for others; use `{command}`")
    if snapshot.memory != "no" and not spec.run:
        yield Refused(f"{cannot} and leave it off: the snapshot has the memory of the running guest; set run: true")
    if "managed_save" in kept:
        command = shlex.join(["virsh", "managedsave-remove", found.name])
        yield Refused(f"{cannot}: its managed save image would be lost; start it, or discard the image ({command})")
    if "checkpoints" in kept:
        yield Refused(
            f"{cannot}: it has checkpoints, whose bitmaps would not fit its disks any more; delete them first "
            f"({shlex.join(['virsh', 'checkpoint-delete', found.name, 'NAME'])})"
        )
    if snapshot.kind == "external" and not own and host.version() < _REVERTS:
        yield from _too_old(scene, snapshot)


def _too_old(scene: Scene, snapshot: Snapshot) -> t.Iterator[VirtError]:
    cannot, needs = _cannot(scene), "needs libvirt 9.9 on the hypervisor"
    newer = [one.name for one in reversed(scene.tree.descendants(snapshot.name))]
    if snapshot.memory != "no":
        yield Refused(f"{cannot}: restoring memory {needs}; upgrade it")
    elif newer:
        yield Refused(
            f"{cannot}: it has newer ones ({', '.join(newer)}), which {needs}; upgrade it, or delete these first, in "
            "this order (the guest keeps what it has written until it is reverted)"
        )
    else:
        yield Refused(f"{cannot}: the guest's present state is on another branch, which {needs}; upgrade it")


def _of_the_files(scene: Scene, snapshot: Snapshot) -> t.Iterator[VirtError]:
    for disk in snapshot.disks:
        if disk.kind != "external":
            continue
        if not disk.base or not scene.host.exists(disk.base):
            yield Refused(
                f"{_cannot(scene)}: {disk.base or 'the file'} with the content of disk {disk.target} is missing; "
                "restore it, or delete the snapshot"
            )
    entry = scene.entry(snapshot.name)
    for path, copy in entry.copies if entry else ():
        if not scene.host.exists(copy):
            yield Refused(f"{_cannot(scene)}: {copy}, the copy of {path}, is missing; restore it")


def _unconfirmed(scene: Scene, present: t.Mapping[str, int]) -> t.Iterator[VirtError]:
    spec, current = scene.spec, scene.tree.current()
    if spec.confirm == spec.name:
        return
    since = f" in {age_text(scene.host.now_s() - current.created_s)}" if current else ""
    files = "; ".join(f"{path}: {bytes_text(taken)}" for path, taken in present.items())
    nowhere = "to none of the disks that it has now" if _gone(scene) else "inside its disks"
    yield Refused(
        f"{_cannot(scene)}: this throws away what the guest has written{since} ({files or nowhere}); to "
        f"confirm it, set confirm: {spec.name} (playbook revert: -e confirm_snapshot={shlex.quote(spec.name)})"
    )


def check_present(step: PowerOff | Revert, files: t.Sequence[str], *, created_s: int | None = None) -> None:
    """Raise Refused if the guest writes to other files than the plan has seen, or the snapshot is another one."""
    if isinstance(step, PowerOff):
        same = tuple(files) == step.files
    else:
        same = created_s == step.created_s and {old for old, _name in step.thrown_away} <= set(files)
    if not same:
        raise Refused(
            f"cannot revert {step.guest} to snapshot {step.name}: its disks or snapshots have changed since this run "
            "has read them; it goes on as it is; run again"
        )
