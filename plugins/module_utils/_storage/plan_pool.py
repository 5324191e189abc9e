# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of storage pools. A pool is never moved: the disks of guests would stay behind."""

from __future__ import annotations

import dataclasses
import posixpath
import re
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.output import some_of
from ansible_collections.corral.virt.plugins.module_utils._core.step import Look
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import (
    Case,
    Define,
    NounPlan,
    NounStep,
    Rule,
    Start,
    Stop,
    Undefine,
)
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun_stages import Noun
from ansible_collections.corral.virt.plugins.module_utils._storage.fields_pool import (
    POOL_SCHEMA,
    SHAPE,
    host,
    places,
    skeleton,
    where,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.model_pool import (
    BUILT,
    DIRECTORIES,
    POOL_TYPES,
    PoolHost,
)

Findings = t.Iterator[t.Union[VirtError, str]]


@dataclasses.dataclass(frozen=True)
class Build(NounStep):
    """Make a filesystem, a partition table or a volume group on empty devices."""

    look: t.ClassVar[Look | None] = Look(
        at="signatures on the devices (file systems, partition tables, members of a volume group), and who holds them; "
        "whether there is a volume group of that name; libvirt looks again by itself",
        holds="",
        leaves="the devices and their content",
        by=("devices", "group"),
    )

    type: str
    devices: tuple[str, ...]
    group: str = ""  # the volume group that is made

    def __str__(self) -> str:
        return f"{self.verb} {self.ref} on {', '.join(self.devices)}"


@dataclasses.dataclass(frozen=True)
class Refresh(NounStep):
    """Let libvirt look at the volumes and sizes of a running pool anew."""

    changes: t.ClassVar[bool] = False


def check_empty(ref: object, contents: t.Iterable[tuple[str, str | None]]) -> None:
    """Raise Refused if one of the devices that are to be built on is not empty."""
    found = [f"{device} {content}" for device, content in contents if content]
    if found:
        raise Refused(
            f"cannot build {ref}: {'; '.join(found)}; to use what is there, omit build; build only writes on empty "
            "devices, so to give up what is there, erase it yourself (wipefs)"
        )


def check_group(step: Build, *, there: bool) -> None:
    """Raise Refused if the volume group that is to be made is there: its devices are others."""
    if there:
        raise Refused(
            f"cannot build {step.ref}: this host has a volume group {step.group} on other devices; to use that, omit "
            "build and source.devices, or choose another source.name"
        )


def _of_type(case: Case) -> str:
    return str(case.stored.after.get("type"))


def _says_enough(case: Case, _plan: NounPlan) -> Findings:
    """Refuse a new pool without what its type needs."""
    values, kind = case.stored.after, _of_type(case)
    if case.found is not None or case.spec.state == "absent":
        return
    for field in POOL_TYPES[kind].needs:
        if not values.get(field):
            of = "" if kind == "dir" else f" of type {kind}"
            yield BadInput(f"{field} of pool {case.spec.name}: it is required for a new pool{of}")
    if kind == "scsi" and not (values.get("source.adapter.name") or values.get("source.adapter.wwpn")):
        yield BadInput(
            f"source.adapter of pool {case.spec.name}: it is required for a new pool of type scsi: name (scsi_host), "
            "or wwnn and wwpn (fc_host)"
        )


def _is_buildable(case: Case, plan: NounPlan) -> Findings:
    """Refuse to build what cannot be built, or where nobody can look at the devices; refuse devices with content."""
    kind, values, name = _of_type(case), case.stored.after, case.spec.name
    if not case.spec.own.get("build") or case.spec.state == "absent":
        return
    if kind not in (*BUILT, "dir", "netfs"):
        yield BadInput(f"build of pool {name}: it applies to type {', '.join(BUILT[:-1])} or {BUILT[-1]}, not {kind}")
    if case.found is None and kind == "fs" and values.get("source.format") in (None, "auto"):
        yield BadInput(f"source.format of pool {name}: build requires it, such as ext4 or xfs")
    if case.found is None and kind == "logical" and not values.get("source.devices"):
        yield BadInput(f"source.devices of pool {name}: build requires them, for a new volume group")
    content, has_group = _host(case).content, _host(case).has_group
    for step in plan.steps:
        if isinstance(step, Build) and content is None:
            yield Refused(f"cannot build {step.ref}: its devices are on another machine; run this task on that host")
        elif isinstance(step, Build) and content is not None:
            try:
                check_empty(step.ref, [(one, content(one)) for one in step.devices])
                check_group(step, there=bool(step.group) and has_group(step.group))
            except Refused as refusal:
                yield refusal


def _own(case: Case) -> list[NounStep]:
    runs = case.found is not None and case.found.active and case.spec.state == "active"
    refresh = [Refresh(case.ref(POOL_SCHEMA.kind))] if runs and case.spec.own.get("refresh") else []
    return [*_building(case), *refresh]


def _building(case: Case) -> list[NounStep]:
    """Build a new pool, or one that an interrupted run has defined and not built."""
    devices, content = tuple(case.stored.after.get("source.devices") or ()), _host(case).content
    if not case.spec.own.get("build") or _of_type(case) not in BUILT or not devices:
        return []
    if case.found and (case.found.active or content is None or any(map(content, devices))):
        return []
    kind = _of_type(case)
    group = str(case.stored.after.get("source.name") or case.spec.name) if kind == "logical" else ""
    return [Build(case.ref(POOL_SCHEMA.kind), kind, devices, group)]


_FIXED = ("type", "source.hosts", "source.dir", "source.name", "source.devices", "source.adapter", "source.initiator")


def _stays(case: Case, _plan: NounPlan) -> Findings:
    if not case.found or case.spec.state == "absent":
        return
    name, before, after = case.spec.name, case.stored.before, case.stored.after
    fixed = [one for one in case.stored.changes if re.match("|".join(map(re.escape, _FIXED)), one.where)]
    if fixed:
        yield Refused(
            f"cannot change {some_of(list(map(str, fixed)), 4)} of pool {name}: the disks of guests would stay behind; "
            "choose another name, or remove the pool first (state: absent keeps what is in it)"
        )
    elif case.changed("path"):
        old, new = before.get("path"), after.get("path")
        yield Refused(
            f"cannot move pool {name} from {old} to {new}: the disks of guests would stay behind, and "
            f"libvirt knows them by {old}; if one of the two is a link to the other, set path: {old}; if not, "
            "choose another name, or remove the pool first (state: absent keeps the files)"
        )


def _host(case: Case) -> PoolHost:
    return case.host or PoolHost()


def _is_alone(case: Case, _plan: NounPlan) -> Findings:
    """Refuse a new pool that is the same as another: the same directory, export, devices, volume group or target."""
    name, values = case.spec.name, case.stored.after
    if case.found or case.spec.state == "absent":
        return
    host = _host(case)
    ours = {(thing, key): words for thing, key, words in places(name, values, host.identity)}
    for other, fields in host.others().items() if ours else ():
        shared = [(one[0], one[2], ours[one[:2]]) for one in places(other, fields, host.identity) if one[:2] in ours]
        for thing, theirs, here in shared[:1]:
            told = "" if posixpath.normpath(here) == posixpath.normpath(theirs) else f", which calls it {theirs}"
            at, what, path = ("in", "the directory", "path") if thing == "directory" else ("of", "that", "source")
            yield Refused(
                f"cannot create pool {name} {at} {here}: it is {what} of pool {other}{told}; use that pool, or choose "
                f"another {path}"
            )


def _directory(case: Case) -> str:
    """The path of a pool that is a directory; empty for others."""
    return str(case.stored.after.get("path") or "") if _of_type(case) in DIRECTORIES else ""


def _is_open_to_guests(case: Case, plan: NounPlan) -> Findings:
    """Note a directory that QEMU's user cannot enter: libvirt gives it the disks, but opens no directory."""
    path = _directory(case)
    comes = any(isinstance(step, (Define, Start)) for step in plan.steps)
    closed = _host(case).closed(path) if comes and path else None
    if closed:
        user, _colon, directory = closed.partition(":")
        mend = shlex.join(["setfacl", "-m", f"u:{user}:x", directory])
        yield (
            f"guests cannot use disks of pool {case.spec.name} in {path}: QEMU's user {user} cannot enter {directory}; "
            f"choose another path, or open it (`{mend}`)"
        )


def _can_be_made(case: Case, plan: NounPlan) -> Findings:
    """Refuse a path through anything but directories: libvirt only creates missing directories."""
    path = _directory(case)
    starts = any(isinstance(step, Start) for step in plan.steps)
    blocked = _host(case).obstacle(path) if starts and path else None
    if blocked:
        yield Refused(
            f"cannot start pool {case.spec.name} in {path}: {blocked} is not a directory but a file or a dangling "
            "link; remove or repair it, or choose another path"
        )


def _keeps_no_guest_off(case: Case, plan: NounPlan) -> Findings:
    """Note guests with disks in a pool that is stopped or removed; those that name the pool cannot start without it."""
    if not any(isinstance(step, (Stop, Undefine)) for step in plan.steps):
        return
    name, users = case.spec.name, _host(case).users()
    by_pool = ", ".join(sorted(user.name for user in users if user.by_pool))
    by_path = ", ".join(sorted(user.name for user in users if not user.by_pool))
    if by_pool:
        yield f"guests that name disks by pool {name} cannot start without it: {by_pool}"
    if by_path:
        yield f"guests have disks in the directory of pool {name}, and keep them: {by_path}"


def _is_on_its_way_out(case: Case, plan: NounPlan) -> Findings:
    if _of_type(case) == "gluster" and any(isinstance(step, Define) for step in plan.steps):
        yield (
            f"pool {case.spec.name} is of type gluster, which QEMU 9.2 and newer deprecate; rather mount the volume "
            "(type: netfs, source.format: glusterfs)"
        )


RULES: tuple[Rule, ...] = (
    _says_enough,
    _is_buildable,
    _stays,
    _is_alone,
    _is_on_its_way_out,
    _can_be_made,
    _is_open_to_guests,
    _keeps_no_guest_off,
)


POOL = Noun(
    schema=POOL_SCHEMA,
    shape=SHAPE,
    skeleton=skeleton,
    rules=RULES,
    made=lambda values: where("", values),
    shown=("type", "path"),
    host=host,
    own=_own,
)
