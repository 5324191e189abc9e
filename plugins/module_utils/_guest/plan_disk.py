# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what is done with each disk of a guest, from what exists and what is asked: one table. Pure."""

from __future__ import annotations

import dataclasses
import functools
import posixpath
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.defaults import POOL
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, NotFound, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.problems import refuse_all
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text, check_name, is_content
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import (
    PLACES,
    Disk,
    GuestSpec,
    Original,
    Volume,
    owner_tag,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import UNFINISHED_SUFFIX
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_steps
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    plan_image_trust,
    plan_pool_files,
    plan_thin_pool,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import (
    SEED,
    Answer,
    DiskDevice,
    DiskOrigin,
    Known,
    Question,
    Site,
    SiteOf,
    Size,
    SizeOf,
    ThinPool,
    VolumeGroup,
)
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity

# Decide what the image of a disk is made of, and refuse what it cannot be made of. Pure.

_DRIVES = ("cdrom", "floppy")
_DEFAULT_SIZE_BYTES = 8 * 1024**3  # the seeds' default profile


def format_of(item: Disk) -> str:
    """The format of a new disk."""
    return item.fields.get("format") or "qcow2"


def file_name(guest: str, item: Disk) -> str:
    """The name of the disk's file in its pool."""
    form = format_of(item)
    check_name(guest, what=f"a new file for disk {item.name} is named after its guest")
    return f"{guest}-{item.name}.{'img' if form == 'raw' else form}"


def new_site(guest: str, item: Disk) -> SiteOf:
    """What must be known before the image is planned. A copy goes where its original is."""
    if item.copy_of:
        return SiteOf(item.pool, file_name(guest, item), copy_of=item.copy_of.path, thin_pool=item.thin_pool)
    pool, name = item.pool or POOL, file_name(guest, item)
    return SiteOf(pool, name, item.image, image_pool=item.image_pool, thin_pool=item.thin_pool)


def new_volume_of(guest: str, item: Disk, site: Site) -> Volume:
    """The image of a disk as it would be made; raises BadInput, NotFound or Refused for one that cannot be."""
    name = plan_pool_files.volume_name(site.pool, file_name(guest, item))
    path, size = plan_pool_files.disk_in(site.pool, name), item.size_bytes or _DEFAULT_SIZE_BYTES
    if site.pool.type == "logical":
        item = _logical(guest, item, site)
    elif item.thin_pool:
        raise BadInput(
            f"thin_pool of disk {item.name} of {guest}: pool {site.pool.name} is of type {site.pool.type}, and thin "
            "pools are in pools of type logical; omit it, or choose such a pool"
        )
    form = format_of(item)
    below: dict[str, t.Any] = {}
    if item.copy_of:
        origin = _checked_original(guest, item, item.copy_of, site)
        size, below = item.size_bytes or origin.capacity_bytes, {"copy_of": origin.path}
    elif item.image:
        origin = _checked_origin(guest, item, item.image, site)
        size = item.size_bytes or max(_DEFAULT_SIZE_BYTES, origin.capacity_bytes)
        below = {"backing_path": origin.content, "backing_format": origin.format}
        if item.clone == "copy":
            below = {"copy_of": origin.path}
    if site.group:
        size = site.group.rounded(size)
    return Volume(pool=site.pool.name, name=name, path=path, capacity_bytes=size, format=form, **below)


def _logical(guest: str, item: Disk, site: Site) -> Disk:
    """The disk as a logical volume can hold it: raw, and a copy of its image; raises BadInput or Refused."""
    pool, what = site.pool.name, f"disk {item.name} of {guest}"
    copied = item.copy_of and item.fields.get("format") == item.copy_of.format  # it has that of its original
    problems = []
    if item.fields.get("format") not in (None, "raw") and not copied:
        problems.append(f"format of {what}: a logical volume, as in pool {pool}, is always raw; omit format")
    if item.clone == "overlay":
        problems.append(f"clone of {what}: a logical volume, as in pool {pool}, cannot be an overlay; set clone: copy")
    if item.image and item.image_pool in (None, pool):
        problems.append(
            f"image_pool of {what}: pool {pool} has logical volumes, and images are files; name the pool that has "
            f"image {item.image}, for example image_pool: {POOL}"
        )
    if problems:
        raise BadInput(problems)
    if site.group is None:
        raise Refused(
            f"cannot create {what} in pool {pool}: its volume group {site.pool.group} cannot be read from here; run "
            "the module on the hypervisor, as root, with lvm2 installed"
        )
    if item.thin_pool and site.thin is None:
        raise plan_thin_pool.missing(f"cannot create {what}", site.group.name, item.thin_pool)
    return dataclasses.replace(item, clone="copy" if item.image else None, fields={**item.fields, "format": "raw"})


def _checked_origin(guest: str, item: Disk, image: str, site: Site) -> DiskOrigin:
    """The image, with its format as in its first bytes; raises if the disk cannot be created from it."""
    copied, size = item.clone == "copy", item.size_bytes
    origin = _usable(guest, image, site, copied=copied)
    if format_of(item) != "qcow2" and not copied:
        raise BadInput(
            f"disk {item.name} of {guest}: only qcow2 can have a backing file; set clone: copy, or format: qcow2"
        )
    if size is not None and size < origin.capacity_bytes:
        raise BadInput(
            f"disk {item.name} of {guest}: size {bytes_text(size)} is smaller than its image {image} "
            f"({bytes_text(origin.capacity_bytes)})"
        )
    return origin


def _checked_original(guest: str, item: Disk, original: Original, site: Site) -> DiskOrigin:
    """The disk to copy; raises if it cannot be copied.

    A raw disk holds data of the guest, whatever it looks like. libvirt may have probed the file, or may probe it again
    before it copies: so its answer and the first bytes must both agree with the definition.
    """
    origin, size, what = site.origin, item.size_bytes, f"disk {item.name} of {original.guest}"
    cannot = f"cannot copy {what} for {guest}"
    if origin is None:
        raise NotFound(f"{cannot}: {original.path} does not exist; check that guest's disks")
    if not origin.here:
        remedy = (
            f"from here {original.guest} cannot be kept from starting in the meantime; run the module on the hypervisor"
        )
        raise Refused(f"{cannot} over {origin.uri}: {remedy}")
    if origin.written:
        who = f"a QEMU process, perhaps on another host, writes to {origin.path}"
        raise Refused(f"{cannot}: {who}; on this host `fuser -v {shlex.quote(origin.path)}` shows which")
    other = {origin.format, origin.header.format} - {original.format}
    if other:
        raise Refused(
            f"{cannot}: {original.guest} uses it as {original.format}, and its first bytes say "
            f"{', '.join(sorted(other))}; copy it manually with qemu-img convert -f {original.format}, and set that "
            f"copy as disks[].source of {guest}"
        )
    if size is not None and size < origin.capacity_bytes:
        have = bytes_text(origin.capacity_bytes)
        raise BadInput(f"disk {item.name} of {guest}: size {bytes_text(size)} is smaller than {what} ({have})")
    return origin


def _usable(guest: str, image: str, site: Site, *, copied: bool) -> DiskOrigin:
    """The image, if guests can use it; raises NotFound or Refused."""
    origin, pool = site.origin, site.image_pool or site.pool.name
    if origin is None:
        raise NotFound(f"cannot create {guest}: there is no image {image} in pool {pool}; import it with virt_image")
    if not (origin.here or copied or is_content(image)):
        raise Refused(
            f"cannot create {guest} on image {image} over {origin.uri}: from here the content behind that name cannot "
            "be determined; name the content (as virt_image returns it), set clone: copy, or run the module on the "
            "hypervisor"
        )
    if origin.guest is not None:  # it would break when that guest writes
        raise Refused(
            f"cannot create {guest} on image {image}: it is a disk of guest {origin.guest}; use an image from "
            "virt_image"
        )
    form = plan_image_trust.base(f"create {guest} from image", origin.content, origin.header, managed=origin.managed)
    if form != origin.format:
        raise Refused(
            f"cannot create {guest} from image {origin.content}: libvirt detects it as {origin.format}; refresh pool "
            f"{pool} and check it"
        )
    return origin


STARTED = ("running", "paused", "rebooted")  # states that let a guest run
NewVolume = t.Callable[[Volume], str]  # its document
UserOf = t.Callable[[str], "str | None"]  # who uses the file at a path; a question to the host


@dataclasses.dataclass(frozen=True)
class DiskPlan:
    """Disks with their sources filled in, and the steps that create or grow their images."""

    disks: tuple[Disk, ...] | None = None
    steps: tuple[plan_guest_steps.GuestStep, ...] = ()
    making: tuple[str, ...] = ()  # paths that do not exist, or not completely, before the steps are done
    changes: tuple[Change, ...] = ()
    left: tuple[str, ...] = ()  # of an interrupted run, and not made by this one either
    notes: tuple[str, ...] = ()

    def unfinished(self) -> tuple[Disk, ...]:
        """Disks with incomplete images suffixed: nobody can start the guest before the steps are done."""
        making = {path: path + UNFINISHED_SUFFIX for path in self.making if not path.endswith(SEED)}
        sources = [(disk, disk.fields.get("source")) for disk in self.disks or ()]
        return tuple(_placed(disk, making[path]) if path in making else disk for disk, path in sources)

    def remember(self, known: Known) -> dict[str, t.Any]:
        """Fields of the guest's record after the steps: the images it owns, and which ones are still incomplete."""
        made = tuple(path for path in self.making if path not in known.volumes)
        done: dict[str, t.Any] = {"making": self.left} if known.making != self.left else {}
        return {**done, **({"volumes": known.entries(made)} if made or known.adopted else {})}

    def begun(self, known: Known) -> dict[str, t.Any]:
        """Fields of the record before the steps: files that are replaced are owned, files at the paths of new images
        are not.
        """
        made = [step for step in self.steps if isinstance(step, plan_guest_steps.MAKING)]
        new = {step.path for step in made if not step.replace}
        replaced = [step.path for step in made if step.replace and step.path in self.making]
        return {"making": self.making, "volumes": known.entries(replaced, without=new)}


def resumed(wanted: GuestSpec, known: Known) -> GuestSpec:
    """A guest created without `disks` and repeated without them gets the one disk of the default profile again."""
    system = known.devices.get("system")
    begun = system is not None and system.path in known.unfinished
    whole = {"vcpus.current", "memory.current_kib"} <= set(wanted.fields)  # enough to make it, not only to change it
    if wanted.disks is None and begun and (wanted.image or whole):
        return wanted.with_fields(disks=(Disk("system", image=wanted.image),))
    return wanted


def questions(wanted: GuestSpec, known: Known) -> dict[str, Question]:
    """Questions about files of the host, by disk name."""
    asked: dict[str, Question] = {}
    for item in wanted.disks or ():
        device = _defined(item, known)
        if _given(item):
            volume = _opened_volume(wanted, item, known)
            if volume:
                asked[item.name] = SizeOf("", volume)
            elif unopened := _unknown_format(item, known):
                asked[item.name] = SizeOf("", unopened, opened=False)
            continue
        if device is None:
            asked[item.name] = new_site(wanted.name, item)
        elif item.size_bytes is not None and (device.path or device.volume):
            seen_by = (known.owner.guest, device.target) if known.active else None
            asked[item.name] = SizeOf(device.path, device.volume, seen_by)
    return asked


def _unknown_format(item: Disk, known: Known) -> tuple[str, str] | None:
    """Pool and name of a volume that becomes the guest's disk now, and whose format nobody says; else None."""
    pool, slash, name = (item.fields.get("volume") or "").partition("/")
    device = known.devices.get(item.name)
    has_it = device is not None and device.volume == (pool, name)
    asks = slash and not has_it and item.state == "present" and not item.fields.get("format")
    return (pool, name) if asks else None


def _opened_volume(wanted: GuestSpec, item: Disk, known: Known) -> tuple[str, str] | None:
    """Pool and name of a volume that the task names and that libvirt opens now, through its pool; else None."""
    told = item.fields.get("volume")
    if not told or item.state != "present":
        return None
    pool, _slash, name = told.partition("/")
    device = known.devices.get(item.name)
    has_it = device is not None and device.volume == (pool, name)
    starts = wanted.state in STARTED and not known.active
    attaches = known.active and not has_it and wanted.apply != "next_boot"
    return (pool, name) if starts or attaches else None


def plan(
    wanted: GuestSpec, known: Known, answers: t.Mapping[str, Answer], new_volume: NewVolume, user_of: UserOf
) -> DiskPlan:
    """The plan for every wanted disk; raises BadInput, NotFound or Refused."""
    if wanted.disks is None:
        _refuse_start(wanted, known)
        return DiskPlan(left=known.unfinished)
    refuse_all([*_other_kinds(wanted, known), *_other_formats(wanted, known)])
    asked = [(item, answers.get(item.name)) for item in wanted.disks]
    outcomes = [_outcome(wanted.name, item, known, answer, new_volume, user_of) for item, answer in asked]
    _check_room(wanted.name, [one.taken for one in outcomes if one.taken])
    making = tuple(path for one in outcomes for path in one.making)
    return DiskPlan(
        disks=tuple(one.disk for one in outcomes),
        steps=tuple(step for one in outcomes for step in one.steps),
        making=making,
        changes=tuple(change for one in outcomes for change in one.changes),
        left=tuple(path for path in known.unfinished if path not in making and not path.endswith(SEED)),
        notes=tuple(note for one in outcomes for note in one.notes),
    )


def _other_kinds(wanted: GuestSpec, known: Known) -> t.Iterator[Refused]:
    """A problem for each disk that would become a drive for media, or a drive that would become a disk."""
    for item in wanted.disks or ():
        device, kind = _defined(item, known), item.fields.get("device")
        if device and kind and item.state == "present" and (kind in _DRIVES) != (device.kind in _DRIVES):
            yield Refused(
                f"cannot make {item.name} of {wanted.name} a {kind}: it is a {device.kind}; name another one, or "
                "remove it first (state: absent)"
            )


def _other_formats(wanted: GuestSpec, known: Known) -> t.Iterator[Refused]:
    """A problem for each disk that the options call by another format: its content would be read as what it is not."""
    for item in wanted.disks or ():
        device, form = _defined(item, known), item.fields.get("format")
        if device and form and device.format not in ("", form) and _stays(item, device):
            move = shlex.join(["-e", f"guest={wanted.name}", "-e", f"disk={item.name}", "-e", f"format={form}"])
            yield Refused(
                f"cannot make disk {item.name} of {wanted.name} {form}: it is {device.format}; omit format, or convert "
                f"it: ansible-playbook corral.virt.move_disk {move} -e pool={item.pool or 'POOL'}"
            )


def _check_room(guest: str, taken: t.Sequence[Taken]) -> None:
    """Raise Refused if new and growing disks do not fit into a volume group, which they take all their space from."""
    problems: list[VirtError] = []
    for thin in {one.thin.name: one.thin for one in taken if one.thin}.values():
        its = [one for one in taken if one.thin and one.thin.name == thin.name]
        more, written = sum(one.bytes for one in its), sum(one.written_bytes for one in its)
        problems += plan_thin_pool.problems(f"cannot create or grow disks of {guest}", thin, more, written)
    for group in {one.group.name: one.group for one in taken}.values():
        needed = sum(one.bytes for one in taken if one.group.name == group.name and not one.thin)
        if needed > group.free_bytes:
            problems.append(
                Refused(
                    f"cannot create or grow disks of {guest}: volume group {group.name} has "
                    f"{bytes_text(group.free_bytes)} free of {bytes_text(needed)} that they need; extend it (vgextend "
                    f"{group.name} DEVICE), or use smaller disks"
                )
            )
    refuse_all(problems)


def _refuse_start(wanted: GuestSpec, known: Known) -> None:
    if known.unfinished and wanted.state in STARTED and not known.active:
        raise Refused(
            f"cannot start {wanted.name}: an interrupted run left {', '.join(known.unfinished)} incomplete; list its "
            "disks again to finish creating them, or remove the guest"
        )


# What there is of a disk.
GIVEN = "given"  # the task names what is there, wants a drive without a medium, or no disk of that name
DEFINED = "defined"  # the guest has it
BEGUN = "begun"  # an interrupted run had begun to make it
OURS = "ours"  # a file that was made for this guest, and taken away from it
FOREIGN = "foreign"  # a file that has the name that it would have
NOTHING = "nothing"

# What becomes of it. The last three are refused.
KEEP, GROW, ADOPT, ADOPT_AND_GROW, MAKE, REMAKE = "keep", "grow", "adopt", "adopt and grow", "make", "remake"
SHRINKS, UNREADABLE, TAKEN = "shrinks", "unreadable", "taken"

# What is asked, beside what there is; the other cells of the table cannot be: `questions` does not ask there.
SILENT, SAME, LARGER, SMALLER, UNKNOWN = "silent", "same", "larger", "smaller", "unknown"
_CASES = {
    GIVEN: dict.fromkeys((SILENT, UNKNOWN), KEEP),
    DEFINED: {SAME: KEEP, LARGER: GROW, SMALLER: SHRINKS, UNKNOWN: UNREADABLE},
    BEGUN: dict.fromkeys((SILENT, SAME, LARGER, SMALLER, UNKNOWN), REMAKE),
    OURS: {SILENT: ADOPT, SAME: ADOPT, LARGER: ADOPT_AND_GROW, SMALLER: SHRINKS},
    FOREIGN: dict.fromkeys((SILENT, SAME, LARGER, SMALLER), TAKEN),
    NOTHING: dict.fromkeys((SILENT, UNKNOWN), MAKE),
}


def case_of(there: str, asked_bytes: int | None, has_bytes: int | None) -> str:
    """The case of a disk, from what exists (`there`), and the requested and current sizes."""
    return _CASES[there][_size(asked_bytes, has_bytes)]


def _size(asked_bytes: int | None, has_bytes: int | None) -> str:
    """How the requested size compares with the current one."""
    if asked_bytes is None:
        return SILENT
    if has_bytes is None:
        return UNKNOWN
    if asked_bytes > has_bytes:
        return LARGER
    return SAME if asked_bytes == has_bytes else SMALLER


@dataclasses.dataclass(frozen=True)
class _Sight:
    """One disk with what is known of it."""

    guest: str
    item: Disk
    path: str | None = None  # where it is, or would be
    volume: Volume | None = None  # as it would be made
    has_bytes: int | None = None
    target: str | None = None  # where the guest that runs has it
    identity: FileIdentity | None = None  # of the file that has the path of the one that would be made
    site: Site | None = None  # where it would be made
    size: Size | None = None  # of the one that the guest has
    user: str | None = None  # of a file that has its name; None if this host knows of none

    @property
    def group(self) -> VolumeGroup | None:
        """The volume group that has it, or would have it."""
        answer = self.site or self.size
        return answer.group if answer else None

    @property
    def asked_bytes(self) -> int | None:
        """The size that is asked for, as the storage gives it."""
        asked = self.item.size_bytes
        return self.group.rounded(asked) if self.group and asked is not None else asked

    def fail(self, kind: type[VirtError], verb: str, reason: str) -> t.NoReturn:
        """Raise `kind` with a message that names the disk and the guest."""
        raise kind(f"cannot {verb} disk {self.item.name} of {self.guest}{reason}")


class Taken(t.NamedTuple):
    """What a new or growing disk takes from a volume group, or promises to a thin pool in it."""

    group: VolumeGroup
    bytes: int
    thin: ThinPool | None = None
    written_bytes: int = 0  # of a thin volume at once


@dataclasses.dataclass(frozen=True)
class _Outcome:
    """What is done with one disk."""

    disk: Disk
    steps: tuple[plan_guest_steps.GuestStep, ...] = ()
    making: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    taken: Taken | None = None


def _outcome(
    guest: str, item: Disk, known: Known, answer: Answer | None, new_volume: NewVolume, user_of: UserOf
) -> _Outcome:
    if isinstance(answer, Site):
        volume = new_volume_of(guest, item, answer)
        there = _standing(volume.path, known, answer)
        sight = _Sight(guest, item, volume.path, volume, answer.size_bytes, identity=answer.identity, site=answer)
        if item.fields.get("source") == "":
            where = f"it has no drive of that name; to see its drives: virsh domblklist {guest}"
            sight.fail(NotFound, "eject the medium of", f": {where}")
    elif isinstance(answer, Size) and not _given(item):
        device = t.cast(DiskDevice, _defined(item, known))  # that was asked about
        target = device.target if known.active else None
        there = DEFINED
        has = _least(answer.size_bytes, answer.seen_bytes)
        sight = _Sight(guest, item, _path(device, answer), has_bytes=has, target=target, size=answer)
    else:
        there, sight = GIVEN, _Sight(guest, _with_format(item, known, answer))
    case = case_of(there, sight.asked_bytes, sight.has_bytes)
    if case == TAKEN:
        sight = dataclasses.replace(sight, user=user_of(t.cast(str, sight.path)))
    return _VERBS[case](sight, new_volume)


def _with_format(item: Disk, known: Known, answer: Answer | None) -> Disk:
    """The disk; raw if it is a volume that is a device, and nobody says its format."""
    is_device = isinstance(answer, Size) and plan_pool_files.has_devices(answer.pool_type)
    if not is_device or not _unknown_format(item, known):
        return item
    return dataclasses.replace(item, fields={**item.fields, "format": "raw"})


def _least(size_bytes: int | None, seen_bytes: int | None) -> int | None:
    """The size of a disk: an interrupted run may have grown it without telling the guest that runs."""
    return size_bytes if size_bytes is None or seen_bytes is None else min(size_bytes, seen_bytes)


def _path(device: DiskDevice, answer: Size) -> str:
    """The path of a disk's bytes; for a missing volume, pool/name as in the definition."""
    return answer.path or device.path or "/".join(t.cast("tuple[str, str]", device.volume))


def _standing(path: str, known: Known, site: Site) -> str:
    """What exists at the path of a disk that the guest does not have: BEGUN, NOTHING, OURS or FOREIGN."""
    begun = path in known.unfinished and path in known.volumes
    # A logical volume has its owner's tag from its first moment on: without that, others have made it since.
    if begun and (site.size_bytes is None or not site.group or owner_tag(known.owner.guest) in site.tags):
        return BEGUN
    if site.size_bytes is None:
        return NOTHING
    if begun:
        return FOREIGN
    return OURS if known.is_own(path, site.identity) else FOREIGN


def _stays(item: Disk, device: DiskDevice) -> bool:
    """True if a disk may keep the storage that it has: the options name none, or one of that name, which may lead to it
    by another path or pool.
    """
    fields = item.fields
    if item.state == "absent" or any(field in fields and not fields[field] for field in PLACES.values()):
        return False  # ejected
    named = fields.get("source") or fields.get("volume")
    has = device.path or (device.volume or ("", ""))[1]
    return not item.places or (posixpath.basename(named) == posixpath.basename(has) if named else not has)


def _given(item: Disk) -> bool:
    """True if nothing is created or grown: the disk is absent, names its storage, or is an empty drive."""
    return item.state == "absent" or bool(item.places) or item.fields.get("device", "disk") != "disk"


def _defined(item: Disk, known: Known) -> DiskDevice | None:
    """The disk as the guest has it; None if it has none or the disk is incomplete."""
    device = known.devices.get(item.name)
    return None if device is None or device.path in known.unfinished else device


def _keep(sight: _Sight, _new_volume: NewVolume) -> _Outcome:
    item = sight.item
    if item.state == "absent" or sight.asked_bytes in (None, sight.has_bytes):
        return _Outcome(item)
    ignored = f"size of disk {item.name} of {sight.guest} is ignored: the disk is not in a storage pool"
    return _Outcome(item, notes=(f"{ignored}; omit size, and resize the disk where it is stored",))


def _grown(sight: _Sight, disk: Disk) -> _Outcome:
    size, has = t.cast(int, sight.asked_bytes), t.cast(int, sight.has_bytes)
    path, target = t.cast(str, sight.path), sight.target
    changes = (Change(f"disks[{disk.name}].size", bytes_text(has), bytes_text(size)),)
    if sight.group:
        steps, taken = _extended(sight, sight.group, size)
        return _Outcome(disk, steps, changes=changes, taken=taken)
    if path.startswith("/dev/") and target is None:
        remedy = f"grow {path} (for example with lvextend), `virsh pool-refresh` its pool, and run again"
        sight.fail(Refused, "grow", f" from {bytes_text(has)} to {bytes_text(size)}: it is a block device; {remedy}")
    grow = (sight.guest, path, size)
    step = plan_guest_steps.GrowDisk(*grow) if target is None else plan_guest_steps.GrowRunningDisk(*grow, target)
    return _Outcome(disk, (step,), changes=changes)


def _extended(sight: _Sight, group: VolumeGroup, size: int) -> tuple[tuple[plan_guest_steps.GuestStep, ...], Taken]:
    """Steps that grow a logical volume, and let the guest that runs see its size; and what it takes."""
    path, answer = t.cast(str, sight.path), sight.size or t.cast(Site, sight.site)
    before, pool = t.cast(int, answer.size_bytes), t.cast(str, answer.pool_name)
    steps: list[plan_guest_steps.GuestStep] = []
    if before < size:
        kind = plan_guest_steps.GrowThinVolume if answer.thin else plan_guest_steps.GrowLogicalVolume
        steps.append(kind(sight.guest, path, pool, before, size))
    if sight.target is not None:
        steps.append(plan_guest_steps.GrowRunningDisk(sight.guest, path, size, sight.target))
    return tuple(steps), Taken(group, max(size - before, 0), answer.thin)


def _adopted(sight: _Sight) -> Disk:
    return _placed(sight.item, t.cast(str, sight.path), format=t.cast(Volume, sight.volume).format)


def _make(sight: _Sight, new_volume: NewVolume, *, replace: bool = False) -> _Outcome:
    volume, site = t.cast(Volume, sight.volume), t.cast(Site, sight.site)
    expected = sight.identity if replace else None
    placed = _placed(sight.item, volume.path, format=volume.format)
    if site.group:
        form, size = (site.origin.format, site.origin.capacity_bytes) if site.origin else ("", 0)
        thin = site.thin.name if site.thin else ""
        made = plan_guest_steps.CreateLogicalVolume(
            sight.guest, volume, site.group.name, form, size, replace=replace, expected=expected, thin_pool=thin
        )
        taken = Taken(site.group, volume.capacity_bytes - (site.size_bytes or 0), site.thin, size)
        return _Outcome(placed, (made,), making=(volume.path,), taken=taken)
    step = plan_guest_steps.CreateVolume(sight.guest, volume, new_volume(volume), replace=replace, expected=expected)
    return _Outcome(placed, (step,), making=(volume.path,))


def _refuse_shrinking(sight: _Sight, _new_volume: NewVolume) -> t.NoReturn:
    have, size = (bytes_text(t.cast(int, one)) for one in (sight.has_bytes, sight.asked_bytes))
    if sight.group:
        sight.fail(Refused, "shrink", f" from {have} to {size}: data would be lost; use {have} or more")
    remedy = "shrink its content, shut the guest down, and use virt_image with allow_shrink: true"
    sight.fail(Refused, "shrink", f" from {have} to {size}: data would be lost; {remedy}")


def _refuse_unreadable(sight: _Sight, _new_volume: NewVolume) -> t.NoReturn:
    remedy = "start the pool that has it (`virsh pool-list --all`), or create one for its directory with virt_pool"
    sight.fail(NotFound, "read the size of", f": {sight.path} is in no active storage pool; {remedy}")


def _refuse_taken(sight: _Sight, _new_volume: NewVolume) -> t.NoReturn:
    if sight.user:
        remedy = "choose another name for the guest or the disk, or another pool"
        sight.fail(Refused, "create", f": {sight.path} exists already, and {sight.user} uses it; {remedy}")
    remedy = f"If neither, remove it, or use it as it is with disks[].source: {sight.path}"
    why = "another run may be creating it, or another host may use it"
    sight.fail(Refused, "create", f": {sight.path} exists already; {why}. {remedy}")


_VERBS: dict[str, t.Callable[[_Sight, NewVolume], _Outcome]] = {
    KEEP: _keep,
    GROW: lambda sight, _new_volume: _grown(sight, sight.item),
    ADOPT: lambda sight, _new_volume: _Outcome(_adopted(sight)),  # attached again, unchanged
    ADOPT_AND_GROW: lambda sight, _new_volume: _grown(sight, _adopted(sight)),
    MAKE: _make,
    REMAKE: functools.partial(_make, replace=True),  # over what an interrupted run left
    SHRINKS: _refuse_shrinking,
    UNREADABLE: _refuse_unreadable,
    TAKEN: _refuse_taken,
}


def _placed(item: Disk, path: str, **more: str) -> Disk:
    return dataclasses.replace(item, fields={**item.fields, "source": path, **more})
