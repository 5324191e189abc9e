# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide how a disk is cloned, grown, rebased or flattened. Pure."""

from __future__ import annotations

import dataclasses
import os.path
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import step
from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.output import agree
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text, image_of_content
from ansible_collections.corral.virt.plugins.module_utils._storage.model_clone import (
    BaseImage,
    CloneSpec,
    FoundDisk,
    Use,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_clone_steps import (
    CloneStep,
    Copy,
    Flatten,
    Forget,
    Grow,
    GrowLive,
    Overlay,
    Pull,
    RebaseDisk,
    Remove,
    Shrink,
)


@dataclasses.dataclass(frozen=True)
class ClonePlan(step.Plan[CloneStep]):
    """Steps, their changes, and the disk after them."""

    size_bytes: int | None = None
    backing_file: str | None = None


def plan(wanted: CloneSpec, found: FoundDisk) -> ClonePlan:
    """Steps that make the disk as wanted; raises BadInput, NotFound or Refused before anything is touched."""
    if found.kind in ("link", "other"):
        what = "an image: disks are created from it, and it is never changed" if found.kind == "link" else "not a file"
        raise Refused(
            f"cannot bring disk {wanted.name} to state {wanted.state}: {wanted.path} is {what}; choose another name"
        )
    if wanted.state == "absent":
        return _absent(wanted, found)
    if found.kind == "nothing":
        return _made(wanted, found)
    _refuse_other_format(wanted, found)
    now = ClonePlan(size_bytes=found.size_bytes, backing_file=found.backing)
    return {"present": _present, "rebased": _rebased, "flattened": _flattened}[wanted.state](wanted, found, now)


def _made(wanted: CloneSpec, found: FoundDisk) -> ClonePlan:
    base = wanted.base
    if wanted.state != "present" or base is None:
        raise NotFound(f"there is no disk {wanted.path}; to create it, set image and state: present")
    size = base.size_bytes if wanted.size_bytes is None else wanted.size_bytes
    if size < base.size_bytes and not wanted.allow_shrink:
        raise BadInput(
            f"size of {wanted.name}: {bytes_text(size)} is smaller than image {base.name} "
            f"({bytes_text(base.size_bytes)}), whose end would be cut off; set a larger size, or allow_shrink: true"
        )
    _refuse_taken(wanted, base)
    _refuse_full(f"create disk {wanted.name}", found)
    kind = Copy if wanted.copy else Overlay
    below = None if wanted.copy else base.path
    changes = (
        Change("disk", None, wanted.path),
        Change("size", None, bytes_text(size)),
        Change("backing_file", None, below),
    )
    return ClonePlan((kind(wanted.path, size, base, wanted.format),), changes, size_bytes=size, backing_file=below)


def _refuse_taken(wanted: CloneSpec, base: BaseImage) -> None:
    """Refuse an image in use: a disk on another's disk breaks when that is written; a copy of a disk in use is torn."""
    user = next((use for use in base.uses if use.busy or not wanted.copy), None)
    if user:
        raise Refused(
            f"cannot {'copy' if wanted.copy else 'use'} image {base.name} for {wanted.name}: guest {user.guest} "
            f"({user.state}) uses it; "
            + (
                "shut the guest down first"
                if wanted.copy
                else "use an image from virt_image, or clone: copy while the guest is off"
            )
        )
    if base.locked and wanted.copy:
        raise Refused(f"cannot copy image {base.name} for {wanted.name}: {_STRANGER.format(shlex.quote(base.path))}")


_STRANGER = "a process that libvirt does not know has it open; see `fuser -v {}`"


def _present(wanted: CloneSpec, found: FoundDisk, now: ClonePlan) -> ClonePlan:
    if wanted.base and found.backing and not _same_image(found.backing, wanted.base):
        raise Refused(
            f"cannot create disk {wanted.name} from image {wanted.base.name}: it exists, and its backing file is "
            f"{found.backing}; to rebase it on the other image and keep its content, set state: rebased; to start "
            "over, remove it first"
        )
    if wanted.size_bytes is None or wanted.size_bytes == found.size_bytes:
        return now
    size = wanted.size_bytes
    change = Change("size", bytes_text(found.size_bytes), bytes_text(size))
    step = _grown(wanted, found, size) if size > found.size_bytes else _shrunk(wanted, found, size)
    return dataclasses.replace(now, steps=(step,), changes=(change,), size_bytes=size)


def _same_image(path: str, base: BaseImage) -> bool:
    """True if the disk is backed by this image; an older content of it counts."""
    name = os.path.basename(path)
    return path == base.path or base.name in (name, image_of_content(name))


def _grown(wanted: CloneSpec, found: FoundDisk, size: int) -> CloneStep:
    writer = _writer(f"grow disk {wanted.name}", found)
    if writer is None:
        _refuse_busy(f"grow disk {wanted.name}", wanted, found)
        _refuse_unknown(f"grow disk {wanted.name}", found)
        return Grow(wanted.path, size, found.format)
    return GrowLive(wanted.path, size, writer.guest, writer.uuid, t.cast(str, writer.target))


def _shrunk(wanted: CloneSpec, found: FoundDisk, size: int) -> CloneStep:
    verb = f"shrink disk {wanted.name} from {bytes_text(found.size_bytes)} to {bytes_text(size)}"
    if not wanted.allow_shrink:
        raise Refused(
            f"cannot {verb}: the data at its end would be lost; shrink its content first, then set allow_shrink: true"
        )
    _refuse_busy(verb, wanted, found)
    _refuse_unknown(verb, found)
    _refuse_snapshots(verb, found)
    if found.overlays:
        raise Refused(
            f"cannot {verb}: {', '.join(found.overlays)} {agree(len(found.overlays), 'is', 'are')} backed by it; "
            "flatten that first"
        )
    return Shrink(wanted.path, size, found.format)


def _rebased(wanted: CloneSpec, found: FoundDisk, now: ClonePlan) -> ClonePlan:
    base, verb = t.cast(BaseImage, wanted.base), f"rebase disk {wanted.name}"
    if found.format != "qcow2":
        raise Refused(
            f"cannot {verb}: it is {found.format}, and only qcow2 can have a backing file; create a new disk "
            f"with image: {base.name} and format: qcow2"
        )
    if found.backing == base.path:
        return now
    if wanted.path in base.chain:
        raise Refused(
            f"cannot {verb} on {base.name}: that image is backed by {wanted.name} itself; choose another image"
        )
    _refuse_taken(wanted, base)
    _refuse_busy(verb, wanted, found)
    _refuse_unknown(verb, found)
    _refuse_snapshots(verb, found)
    _refuse_full(verb, found)
    changes = (Change("backing_file", found.backing, base.path),)
    return dataclasses.replace(
        now, steps=(*_forgotten(wanted, found), RebaseDisk(wanted.path, base)), changes=changes, backing_file=base.path
    )


def _flattened(wanted: CloneSpec, found: FoundDisk, now: ClonePlan) -> ClonePlan:
    verb = f"flatten disk {wanted.name}"
    if found.backing is None:
        return now
    writer = _writer(verb, found)
    if writer is None:
        _refuse_busy(verb, wanted, found)
    _refuse_unknown(verb, found)
    _refuse_snapshots(verb, found)
    _refuse_full(verb, found)
    work: CloneStep = Flatten(wanted.path)
    if writer:
        work = Pull(wanted.path, writer.guest, writer.uuid, t.cast(str, writer.target), wanted.timeout_s)
    changes = (Change("backing_file", found.backing, None),)
    return dataclasses.replace(now, steps=(*_forgotten(wanted, found), work), changes=changes, backing_file=None)


def _absent(wanted: CloneSpec, found: FoundDisk) -> ClonePlan:
    """The removal of a disk; refused unless remove_storage is set and nobody uses it."""
    verb = f"remove disk {wanted.name}"
    paths = [wanted.path] if found.kind == "file" else []
    paths += [found.left] if found.left else []
    users = sorted({*(f"guest {use.guest}" for use in found.uses), *(f"image {path}" for path in found.overlays)})
    if users:
        uses = agree(len(users), "uses", "use")
        raise Refused(f"cannot {verb}: {', '.join(users)} {uses} it; remove or change that first")
    if found.kind == "file":
        if not wanted.remove_storage:
            raise Refused(f"cannot {verb}: its data would be lost; set remove_storage: true to remove it anyway")
        _refuse_busy(verb, wanted, found)
    return ClonePlan(tuple(map(Remove, paths)), tuple(Change("disk", path, None) for path in paths))


def _forgotten(wanted: CloneSpec, found: FoundDisk) -> list[CloneStep]:
    """Steps that take the backing file out of definitions, before the disk changes: they are then right before and
    after.
    """
    return [Forget(wanted.path, use.guest, use.forget_xml) for use in found.uses if use.forget_xml]


def _writer(verb: str, found: FoundDisk) -> Use | None:
    """The one running guest that has the disk as its own; None if no guest runs with it."""
    running = [use for use in found.uses if use.state == "running"]
    if not running:
        return None
    first = running[0]
    guests = sorted({use.guest for use in running})
    if len(guests) > 1 or any(use.target is None for use in running):
        raise Refused(
            f"cannot {verb}: {', '.join(guests)} {agree(len(guests), 'runs', 'run')} with it as a backing file, "
            f"read-only or shared; shut {agree(len(guests), 'it', 'them')} down first"
        )
    return first


def _refuse_busy(verb: str, wanted: CloneSpec, found: FoundDisk) -> None:
    for use in found.uses:
        if use.busy:
            remedy = (
                "shut it down first"
                f"{', or discard its saved state (virsh managedsave-remove)' if use.state == 'saved' else ''}"
            )
            raise Refused(f"cannot {verb}: guest {use.guest} ({use.state}) uses it; {remedy}")
    if found.locked:
        raise Refused(f"cannot {verb}: {_STRANGER.format(shlex.quote(wanted.path))}")


def _refuse_unknown(verb: str, found: FoundDisk) -> None:
    """Refuse a disk whose backing file nobody vouches for: a guest may have written its first bytes as a raw disk."""
    if found.unknown_base:
        raise Refused(
            f"cannot {verb}: no guest on this host uses it, and only its own first bytes say that its backing file is "
            f"{found.unknown_base}, which is not an image from virt_image; define the guest that uses it first, or "
            "create the disk again"
        )


def _refuse_full(verb: str, found: FoundDisk) -> None:
    if found.lacks_room:
        raise Refused(f"cannot {verb}: {found.lacks_room}")


def _refuse_snapshots(verb: str, found: FoundDisk) -> None:
    if found.snapshots:
        raise Refused(
            f"cannot {verb}: its internal snapshots would be damaged; delete them first (qemu-img snapshot -l, -d)"
        )


def _refuse_other_format(wanted: CloneSpec, found: FoundDisk) -> None:
    if wanted.format != found.format:
        raise Refused(
            f"cannot convert disk {wanted.name} to {wanted.format}: it is {found.format}; set format: {found.format}, "
            f"or create a new disk with image: {wanted.name} and clone: copy"
        )
