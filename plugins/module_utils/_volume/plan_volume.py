# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of volumes, and the steps that only they have."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import size_text
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, NotFound, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.step import Look
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text, uuid_of
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Spec
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import (
    Case,
    Create,
    Define,
    NounPlan,
    NounStep,
)
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun_stages import Noun
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity
from ansible_collections.corral.virt.plugins.module_utils._volume.fields_volume import (
    SHAPE,
    VOLUME_SCHEMA,
    finish,
    skeleton,
)
from ansible_collections.corral.virt.plugins.module_utils._volume.model_volume import (
    POOLS,
    CloneSource,
    PoolVolumes,
    SourceFile,
    Verb,
)

_CYLINDER_KIB = 16 * 255 // 2  # at most: heads x sectors of 512 bytes
Findings = t.Iterator[t.Union[VirtError, str]]


@dataclasses.dataclass(frozen=True)
class PoolSight:
    """The pool of a volume."""

    type: str
    available_bytes: int
    extent_bytes: int = 4 * 1024**2  # of a volume group: LVM's default


@dataclasses.dataclass(frozen=True)
class Fill(NounStep):
    """Upload a file into a volume; what the volume holds of it already is kept."""

    template = "upload {0.source} into {0.ref}"
    source: str


@dataclasses.dataclass(frozen=True)
class Save(NounStep):
    """Download a volume's content into a file."""

    template = "download {0.ref} to {0.dest}"
    dest: str


@dataclasses.dataclass(frozen=True)
class Resize(NounStep):
    """Change the size that a guest sees; shrinking loses what is behind the new end."""

    look: t.ClassVar[Look | None] = Look(
        at="inode and birth of the file; who uses it: guests, volumes on top of it, loop devices; QEMU's locks, "
        "also of other hosts",
        holds="the lock of disks: no run of this collection takes an existing disk into use",
        leaves="the volume as it is; its user",
        by=("identity",),
    )

    capacity_kib: int
    path: str = dataclasses.field(repr=False)
    identity: FileIdentity | None = dataclasses.field(default=None, repr=False)

    def __str__(self) -> str:
        return f"resize {self.ref} to {size_text(self.capacity_kib)}"


@dataclasses.dataclass(frozen=True)
class Delete(NounStep):
    """Delete a volume, and on request overwrite its content before."""

    look: t.ClassVar[Look | None] = Look(
        at="inode and birth of the file, libvirt's key of a volume on another machine, and its users: guests, stored, "
        "running, saved, with snapshots and backup jobs; volumes on top of it; loop devices; open descriptors",
        holds="the disk is moved aside before the look, and given back where the look finds a user",
        leaves="the volume; its user",
        by=("identity", "key"),
    )

    path: str = dataclasses.field(repr=False)
    key: str | None = dataclasses.field(default=None, repr=False)
    identity: FileIdentity | None = dataclasses.field(default=None, repr=False)
    wipe: bool = False

    def __str__(self) -> str:
        return f"{'wipe and delete' if self.wipe else 'delete'} {self.ref}"


@dataclasses.dataclass(frozen=True)
class Finish(NounStep):
    """Finish the removal of a volume that an interrupted run has moved aside."""

    template = "finish the removal of {0.ref} ({0.place})"
    look: t.ClassVar[Look | None] = Look(
        at="inode and birth of the file, as the note beside it tells; its users as for a removal",
        holds="the note: no other run is at work on it; the lock of disks",
        leaves="the volume, given back under its name; its user",
        by=("identity",),
    )
    is_gone: t.ClassVar[bool] = True

    place: str
    identity: FileIdentity | None = dataclasses.field(default=None, repr=False)
    wipe: bool = False


class VolumeHost(t.Protocol):
    """The host of a volume; each question takes round trips."""

    def pool(self) -> PoolSight:
        """The pool; raises NotFound, or Failed if it is not active."""

    def source(self, path: str) -> SourceFile:
        """The file to upload; raises Failed or NotFound."""

    def original(self, pool: str, name: str) -> CloneSource | None:
        """The volume to clone; None if there is none."""

    def user(self, path: str) -> str | None:
        """Who has the volume as a disk, stands on it, or has it open, perhaps on another host, in words."""

    def taker(self, path: str) -> str | None:
        """Who must not notice a new size: all but a guest that is off, without saved state or snapshots in it, whose
        disk it is.
        """

    def writer(self, path: str) -> str | None:
        """The running guest that has the volume as a disk, or a process that writes it, perhaps on another host."""

    def identity(self, path: str) -> tuple[str | None, FileIdentity | None]:
        """libvirt's key of the volume, and which file it is."""

    def removals(self) -> t.Sequence[tuple[str, FileIdentity]]:
        """Where files of volumes with this name are that interrupted removals have moved aside, and which they are."""

    def unfinished(self) -> str | None:
        """What the volume is being filled with, as `content` names it; None: its content is complete."""

    def content(self, spec: Spec) -> str:
        """A name of the content that the options give: the file with its size and time, or the original."""

    def is_saved(self, path: str) -> bool:
        """True if the file holds the volume's content already."""


def _ref(case: Case) -> t.Any:
    return case.ref(VOLUME_SCHEMA.kind)


def _problems(spec: Spec) -> t.Iterator[str]:
    own, what = spec.own, f"of volume {spec.name}"
    given = [option for option in ("source", "clone_of", "backing") if option in own or f"{option}.path" in spec.fields]
    if len(given) > 1:
        yield f"{given[0]} {what}: it and {given[1]} are mutually exclusive"
    if "clone_pool" in own and "clone_of" not in own:
        yield f"clone_pool {what}: it requires clone_of"
    if spec.fields.get("encryption") and given and given != ["backing"]:
        yield f"encryption {what}: it and {given[0]} are mutually exclusive; create it empty"
    if "mode" in own and not re.fullmatch("0?[0-7]{3}", own["mode"] if isinstance(own["mode"], str) else ""):
        yield f"mode {what}: must be three octal digits in quotes, such as '0600'"
    for option in ("source", "dest"):
        if option in own and not own[option].startswith("/"):
            yield f"{option} {what}: must be an absolute path"
    if own.get("preallocate") and spec.fields.get("format", "raw" if spec.fields.get("encryption") else "") != "raw":
        yield f"preallocate {what}: it requires format: raw"
    if own.get("preallocate") and (given or not spec.fields.get("capacity_kib")):
        yield f"preallocate {what}: it requires capacity, and no {given[0] if given else 'other content'}"
    if own.get("wipe") and spec.state != "absent":
        yield f"wipe {what}: it requires state: absent"
    if "secret" in own:
        try:
            uuid_of(own["secret"], what=f"secret {what}")
        except BadInput as error:
            yield from error.problems


def _content(spec: Spec) -> str | None:
    return spec.own.get("source") or spec.own.get("clone_of")


def _own(case: Case) -> list[NounStep]:
    spec, ref, host = case.spec, _ref(case), case.host
    steps: list[NounStep] = []
    source = spec.own.get("source")
    is_half = case.found is not None and host.unfinished() is not None
    if source and (case.found is None or is_half):
        steps.append(Fill(ref, source))
    wanted = spec.fields.get("capacity_kib")
    has = _capacity_kib(case, has_content=bool(source) and (case.found is None or is_half))
    if wanted is not None and has is not None and not _is_size(case, has, wanted):
        identity = host.identity(_path(case))[1] if case.found else None
        steps.append(Resize(ref, wanted, _path(case), identity))
    if "dest" in spec.own and case.found and not is_half and not host.is_saved(spec.own["dest"]):
        steps.append(Save(ref, spec.own["dest"]))
    return steps


def _capacity_kib(case: Case, *, has_content: bool) -> int | None:
    """The size before a resize; None where it is created with the one that is asked for."""
    if has_content:
        return t.cast(int, case.host.source(case.spec.own["source"]).capacity_kib)
    return t.cast("int | None", case.stored.before.get("capacity_kib")) if case.found else None


def _is_size(case: Case, has_kib: int, wanted_kib: int) -> bool:
    """True if a volume has the size; that of a VHD is rounded up to a cylinder, that of an LV to an extent."""
    step_kib = _CYLINDER_KIB if case.stored.before.get("format") == "vpc" else 1
    pool = case.host.pool()
    if pool.type == "logical":
        step_kib = pool.extent_bytes // 1024
    return 0 <= has_kib - wanted_kib < step_kib


def _path(case: Case) -> str:
    return str(case.stored.before.get("path") or "")


def _remove(case: Case) -> NounStep:
    key, identity = case.host.identity(_path(case))
    return Delete(_ref(case), _path(case), key, identity, bool(case.spec.own.get("wipe")))


def _left(case: Case) -> list[NounStep]:
    wipe = bool(case.spec.own.get("wipe"))
    return [Finish(_ref(case), place, identity, wipe) for place, identity in case.host.removals()]


def check_unused(ref: object, verb: str, user: str | None) -> None:
    """Raise Refused if somebody uses a volume that is to be changed."""
    if user:
        raise Refused(f"cannot {verb} {ref}: {user} uses it; {_REMEDIES[verb]}")


def check_same(ref: object, verb: str, expected: FileIdentity | None, found: FileIdentity | None) -> None:
    """Raise Refused if the volume is another file than the one that the plan has seen."""
    if expected and not (found and expected.is_same(found)):
        raise Refused(f"cannot {verb} {ref}: another file has its name by now; inspect it, and run again")


_REMEDIES = {
    "resize": "a guest's disk grows with virt_domain (disks[].size); shut the guest down to do it here, and do not "
    "resize what others stand on",
    "delete": "remove or detach that first",
    "fill": "it is not complete: remove it from that first, and run again",
    "clone": "shut that guest down, or clone the guest (virt_domain: clone_of)",
    "download": "shut that guest down first, as it writes while it is read",
    "back": "a guest that writes it destroys what stands on it; clone it instead (clone_of)",
}


def check_original(pool: str, name: str, found: CloneSource | None, capacity_kib: int | None = None) -> None:
    """Raise NotFound or Refused for a volume that cannot be cloned."""
    what = f"cannot clone volume {name} of pool {pool}"
    if found is None:
        raise NotFound(f"{what}: there is none; virt_volume_info lists them")
    if found.encrypted:
        raise Refused(f"{what}: libvirt would write its copy unencrypted; download it, and upload it (dest, source)")
    if capacity_kib is not None and capacity_kib < found.capacity_kib:
        raise Refused(f"{what}: it is larger than {size_text(capacity_kib)}; omit capacity, and resize the copy")


def check_new(ref: object, found: str | None) -> None:
    """Raise Refused if the volume that is to be created is there by now."""
    if found is not None:
        raise Refused(f"cannot create {ref}: somebody has made one of this name meanwhile; run again")


def check_source(path: str, before: str, now: str) -> None:
    """Raise Refused if the file that was uploaded is not the one that the upload began with."""
    if before != now:
        raise Refused(
            f"cannot upload {path}: it has changed during the upload, and the volume holds parts of both; remove the "
            "volume (state: absent), and run again"
        )


def check_part(path: str, *, is_ours: bool, is_free: bool) -> None:
    """Raise Refused if others could read what is downloaded into the part that is there, or another run writes it."""
    if not is_free:
        raise Refused(f"cannot download to {path}: another run writes it; wait until it ends")
    if not is_ours:
        raise Refused(f"cannot download to {path}: other users can read it; find out who made it, and remove it")


def _tried(*checks: t.Callable[[], None]) -> Findings:
    for check in checks:
        try:
            check()
        except VirtError as error:
            yield error


def _verbs(case: Case, plan: NounPlan) -> t.Iterator[Verb]:
    """What the options ask of the pool, whether or not it is done already."""
    spec = case.spec
    creates = case.found is None and spec.state == "present"
    yield from (verb for kind, verb in _VERBS if any(isinstance(step, kind) for step in plan.steps))
    if creates and spec.own.get("clone_of"):
        yield "clone"
    if creates and spec.fields.get("backing.path"):
        yield "back"
    if creates and spec.fields.get("encryption"):
        yield "encrypt"


_VERBS: tuple[tuple[type[NounStep], Verb], ...] = (
    (Create, "create"),
    (Delete, "delete"),
    (Finish, "delete"),
    (Resize, "resize"),
    (Fill, "upload"),
    (Save, "download"),
)


def _is_possible_there(case: Case, plan: NounPlan) -> Findings:
    """Refuse what cannot be done with volumes of a pool of this type."""
    kind = case.host.pool().type
    able = POOLS.get(kind, PoolVolumes(otherwise="see virsh help volume"))
    lacking = [verb for verb in _verbs(case, plan) if verb not in able.verbs]
    if lacking:
        yield Refused(
            f"cannot {' or '.join(lacking)} {_ref(case)}: the pool is of type {kind}, where this module cannot do "
            f"that; {able.otherwise}"
        )
    elif kind == "logical" and any(isinstance(step, Create) for step in plan.steps) and not _is_whole(case.spec):
        yield BadInput(
            f"preallocate of {_ref(case)}: a pool of type logical requires it, and format: raw; libvirt makes no thin "
            "volumes (lvcreate does)"
        )


def _is_whole(spec: Spec) -> bool:
    """True if all of a volume is allocated: of less, libvirt makes a snapshot, which breaks when it is full."""
    return spec.fields.get("format") == "raw" and bool(spec.own.get("preallocate"))


def _says_enough(case: Case, _plan: NounPlan) -> Findings:
    """Refuse a new volume without what it needs."""
    spec = case.spec
    if spec.state == "absent" or case.found is not None:
        return
    if not (spec.fields.get("capacity_kib") or spec.fields.get("backing.path") or _content(spec)):
        yield BadInput(f"capacity of {_ref(case)}: a new volume requires it, or source, clone_of or backing")
    if spec.fields.get("backing.path") and not spec.fields.get("backing.format"):
        yield BadInput(
            f"backing.format of {_ref(case)}: it is required beside backing.path, because a guest could choose what is "
            "guessed"
        )
    if spec.fields.get("encryption") and "secret" not in spec.own:
        yield BadInput(f"secret of {_ref(case)}: encryption requires it; virt_secret creates one")


def _shrinks_only_when_told(case: Case, plan: NounPlan) -> Findings:
    host = case.host
    for step in plan.steps:
        if isinstance(step, Resize):
            before = _capacity_kib(case, has_content=any(isinstance(one, Fill) for one in plan.steps)) or 0
            if step.capacity_kib < before and not case.spec.own.get("shrink"):
                yield Refused(
                    f"cannot resize {step.ref} from {size_text(before)} to {size_text(step.capacity_kib)}: what is "
                    "behind its new end is lost; shrink the file systems in it first, and set shrink: true"
                )
            if case.found:
                yield from _tried(lambda: check_unused(_ref(case), "resize", host.taker(_path(case))))
                yield from _can_be_opened(case)


def _can_be_opened(case: Case) -> Findings:
    before = case.stored.before
    if before.get("encryption") and before.get("format") == "qcow2":
        yield Refused(
            f"cannot resize {_ref(case)}: libvirt gives qemu-img no secret for a qcow2 that is encrypted; grow it "
            "while its guest runs (virsh blockresize), or use an encrypted raw volume (format: raw)"
        )


def _keeps_its_users(case: Case, plan: NounPlan) -> Findings:
    if any(isinstance(step, Delete) for step in plan.steps):
        yield from _tried(lambda: check_unused(_ref(case), "delete", case.host.user(_path(case))))


def _comes_from_what_is_there(case: Case, plan: NounPlan) -> Findings:
    """Refuse content that is missing, that somebody writes, that does not fit, or that names other files."""
    spec, host, creates = case.spec, case.host, any(isinstance(step, Create) for step in plan.steps)
    if creates and "clone_of" in spec.own:
        pool, name = spec.own.get("clone_pool") or str(spec.within), spec.own["clone_of"]
        original = host.original(pool, name)
        yield from _tried(lambda: check_original(pool, name, original, spec.fields.get("capacity_kib")))
        if original is not None:
            writer = host.writer(original.path)
            yield from _tried(lambda: check_unused(f"volume {name} of pool {pool}", "clone", writer))
    if creates and spec.fields.get("backing.path"):
        base = spec.fields["backing.path"]
        yield from _tried(lambda: check_unused(f"{_ref(case)} with {base}", "back", host.writer(base)))
    if any(isinstance(step, Fill) for step in plan.steps):
        if case.found:
            yield from _tried(lambda: check_unused(_ref(case), "fill", host.user(_path(case))))
        yield from _of_source(case, host.source(spec.own["source"]), host.pool().available_bytes)


def _of_source(case: Case, source: SourceFile, available_bytes: int) -> Findings:
    path, wanted = case.spec.own["source"], case.spec.fields.get("format")
    if wanted and wanted != source.format and case.found is None:
        yield Refused(
            f"cannot upload {path} into {_ref(case)}: it is {source.format}, not {wanted}; set format to that"
        )
    if source.names:
        yield Refused(
            f"cannot upload {path} into {_ref(case)}: it names {source.names}, which would be missing there, or be "
            f"somebody else's; flatten it first (`qemu-img convert -O qcow2`)"
        )
    if case.found is None and source.allocated_bytes > available_bytes:
        yield Refused(
            f"cannot upload {path} into {_ref(case)}: it takes {bytes_text(source.allocated_bytes)}, and the pool has "
            f"{bytes_text(available_bytes)} left; make room there, or choose another pool"
        )


def is_marked(which: str, now: str, allocated_bytes: int) -> bool:
    """True if a mark is about the volume that has the name `now`. A run that was killed right after it created the
    volume has not recorded `which` one it is; that holds nothing.
    """
    return which == now if which else not allocated_bytes


def _is_complete(case: Case, _plan: NounPlan) -> Findings:
    """Refuse to use what an interrupted run has left, except to finish or delete it."""
    if case.found is None or case.spec.state == "absent":
        return
    left = case.host.unfinished()
    if left is not None and left != (case.host.content(case.spec) if "source" in case.spec.own else None):
        yield Refused(
            f"cannot use {_ref(case)}: an interrupted run was filling it with {left}; run that again to finish an "
            "upload, or remove the volume first (state: absent)"
        )


def _is_read_alone(case: Case, plan: NounPlan) -> Findings:
    if any(isinstance(step, Save) for step in plan.steps):
        yield from _tried(lambda: check_unused(_ref(case), "download", case.host.writer(_path(case))))
    if "dest" in case.spec.own and case.spec.state == "present" and case.found is None:
        yield f"{_ref(case)} is new: it is downloaded by the next run"


def _created(case: Case, step: Define) -> Define:
    """The step that creates the volume: a copy says of what."""
    original = case.spec.own.get("clone_of")
    pool = case.spec.own.get("clone_pool") or case.spec.within
    detail = f"{step.detail} as a copy of volume {original} of pool {pool}"
    return dataclasses.replace(step, detail=detail) if original else step


def _made(values: t.Mapping[str, t.Any]) -> str:
    size = values.get("capacity_kib")
    return f"({', '.join(filter(None, (values.get('format'), values.get('encryption'), size and size_text(size))))})"


VOLUME = Noun(
    schema=VOLUME_SCHEMA,
    shape=SHAPE,
    skeleton=skeleton,
    rules=(
        _is_possible_there,
        _says_enough,
        _is_complete,
        _shrinks_only_when_told,
        _keeps_its_users,
        _comes_from_what_is_there,
        _is_read_alone,
    ),
    made=_made,
    create=_created,
    shown=("capacity_kib", "format", "path"),
    finish=finish,
    own=_own,
    amends=frozenset({"capacity_kib"}),
    remove=_remove,
    left=_left,
    problems=_problems,
)
