# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide how a disk is cloned, grown, rebased or flattened, and what must be known for that. Pure."""

from __future__ import annotations

import dataclasses
import hashlib
import os.path
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import step
from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.output import agree
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text, image_of_content, is_content
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_image_trust
from ansible_collections.corral.virt.plugins.module_utils._storage.model_clone import (
    BaseImage,
    CloneSpec,
    FoundDisk,
    Use,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.model_header import Header
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
from ansible_collections.corral.virt.plugins.module_utils._system.model_free_space import FreeSpace


@dataclasses.dataclass(frozen=True)
class DiskInfo:
    """The report of qemu-img on an image."""

    size_bytes: int
    backing: str | None  # the file it stands on, which may itself be a link
    snapshots: bool


class CloneHost(t.Protocol):
    """The host of a disk and of the image that it is created from."""

    def kind(self, path: str) -> str:
        """What is at the path: `nothing`, a `file`, a `link` or something `other`."""

    def header(self, path: str) -> Header:
        """What the first bytes of the file say."""

    def chain(self, path: str) -> tuple[str, ...]:
        """The file and its backing files, by their first bytes."""

    def is_managed(self, path: str) -> bool:
        """True if virt_image imported the file."""

    def uses(self, path: str) -> tuple[Use, ...]:
        """How guests of this host use the file."""

    def overlays(self, path: str) -> tuple[str, ...]:
        """The images of active pools that are backed by the file."""

    def is_open(self, path: str) -> bool:
        """True if a process has the file open."""

    def allocated_bytes(self, path: str) -> int:
        """The bytes that the file takes."""

    def flat_bytes(self, path: str) -> int:
        """The bytes that the image takes with all that it reads from its backing files."""

    def info(self, path: str, form: str) -> DiskInfo:
        """What qemu-img reports on the image, which has this format."""

    def raw_disks(self) -> t.Collection[str]:
        """The files that guests of this host have as raw disks, whose first bytes they write."""

    def room(self, directory: str, reserve_bytes: int | None) -> FreeSpace:
        """The room in the filesystem of a directory."""


def base(name: str, path: str, host: CloneHost) -> BaseImage:
    """The image that a disk is created from, by its name and the content behind it; raises Refused.

    Users of a content do not matter: it is nobody's disk.
    """
    fixed = is_content(path)
    chain = host.chain(path)
    managed = bool(chain[1:]) and _strange(chain, host) is None
    header = host.header(path)
    raw = path in host.raw_disks()
    form = plan_image_trust.base("create a disk from", path, header, managed=managed, raw=raw)
    uses = () if fixed else host.uses(path)
    size_bytes = host.info(path, form).size_bytes
    return BaseImage(name, path, form, size_bytes, chain, uses, locked=not fixed and host.is_open(path))


def _strange(chain: t.Sequence[str], host: CloneHost) -> str | None:
    """The first backing file that virt_image did not import; None if it imported all."""
    return next((path for path in chain[1:] if not host.is_managed(path)), None)


def uses(
    guest: FoundGuest,
    targets: t.Sequence[str | None],
    *,
    is_stored: bool,
    managed_state: t.Callable[[], t.Collection[str]],
    forget_xml: str | None,
) -> list[Use]:
    """How a guest uses a file: as it runs (`targets`, one for each of its disks), else as it is stored.

    A guest that is off and has a managed save still uses what it ran with.
    """
    seen = _digest(guest.xml) if forget_xml else ""
    if targets:
        return [Use(guest.name, guest.uuid, "running", target, forget_xml, seen) for target in targets]
    if not is_stored:
        return []
    saved = not guest.active and "managed_save" in managed_state()
    return [Use(guest.name, guest.uuid, "saved" if saved else "off", None, forget_xml, seen)]


def found(wanted: CloneSpec, hidden: str, host: CloneHost) -> FoundDisk:
    """What is at the disk's path, as far as the wanted state needs it; `hidden` is the path at which it is created."""
    path = wanted.path
    kind = host.kind(path)
    left = hidden if host.kind(hidden) == "file" else None
    room = host.room(wanted.directory, wanted.reserve_bytes)
    if kind != "file":
        return FoundDisk(kind, left=left, lacks_room=room.problem(_new_bytes(wanted, host), wanted.directory))
    form = _format(path, host)
    uses = host.uses(path)
    if wanted.state != "absent" and form != wanted.format:
        return FoundDisk(kind, format=form, uses=uses, overlays=host.overlays(path), left=left)
    unknown = "" if uses or form == "raw" else _unknown_base(path, host)
    info = host.info(path, form)
    overlays: tuple[str, ...] = ()
    if wanted.state == "absent" or wanted.allow_shrink:
        overlays = host.overlays(path)
    flattens = wanted.state == "flattened" and info.backing and not unknown
    return FoundDisk(
        kind,
        format=form,
        size_bytes=info.size_bytes,
        backing=info.backing,
        unknown_base=unknown,
        snapshots=info.snapshots,
        uses=uses,
        overlays=overlays,
        locked=host.is_open(path),
        lacks_room=room.problem(_below_bytes(path, host) if flattens else 0, wanted.directory),
        left=left,
    )


def _new_bytes(wanted: CloneSpec, host: CloneHost) -> int:
    """The bytes that a new disk takes at once: for a copy all of its image, unless the filesystem may share blocks."""
    if wanted.base is None or not wanted.copy or may_share(wanted.base, wanted.format):
        return 0
    return sum(host.allocated_bytes(path) for path in wanted.base.chain)


def _below_bytes(path: str, host: CloneHost) -> int:
    """The additional bytes that a disk takes after it is flattened."""
    return max(0, host.flat_bytes(path) - host.allocated_bytes(path))


def may_share(base: BaseImage, form: str) -> bool:
    """True if a copy may share blocks with its image; whether the filesystem can is only known after a try."""
    return base.format == form and len(base.chain) == 1


def _format(path: str, host: CloneHost) -> str:
    """The format of a disk; raw if a guest has it as raw, as it then wrote the first bytes."""
    header = host.header(path)
    return "raw" if path in host.raw_disks() else header.format


def _unknown_base(path: str, host: CloneHost) -> str:
    """The backing or data file that a disk no guest has names itself, unless virt_image imported all backing files.

    Empty if there is none.
    """
    chain = host.chain(path)
    return _strange(chain, host) or host.header(path).data_file or host.header(chain[-1]).backing or ""


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
    steps = [Forget(wanted.path, use.guest, use.uuid, use.seen, use.forget_xml) for use in found.uses if use.forget_xml]
    return [*dict.fromkeys(steps)]  # a guest may have it as several disks


def _digest(xml: str) -> str:
    return hashlib.sha256(xml.encode()).hexdigest()


def check_as_read(step: Forget, now: str | None) -> None:
    """Raise Refused if the guest has another definition `now`, or none: nothing is rolled back."""
    if now is None or _digest(now) != step.seen:
        reason = "somebody has changed its definition" if now else "it was removed or moved away"
        raise Refused(
            f"cannot define {step.guest} without the backing file of {step.path}: {reason} since this run has read it, "
            "so guest and disk are left as they are; run again"
        )


def another_run(path: str, guest: str) -> str:
    """The error for a run that finds another one at work on the guest that has the disk."""
    return (
        f"cannot change disk {path}: another run works on the disks of {guest}, or migrates it; wait for that run, and "
        "run again"
    )


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
