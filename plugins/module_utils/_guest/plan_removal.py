# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what is removed with a guest. Pure."""

from __future__ import annotations

import dataclasses
import re
import shlex
import typing as t
from types import MappingProxyType

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._core.uri import SYSTEM
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import (
    FoundGuest,
    GuestSpec,
    OwnedDisk,
    owner_tag,
)
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_steps
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_changes import GuestPlan
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_guest_steps import GuestStep
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power import power_off
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_disk_facts, plan_disposal
from ansible_collections.corral.virt.plugins.module_utils._storage.model_removed_disk import DiskAside
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import Owner
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import OwnedVolume


def absent(
    wanted: GuestSpec,
    found: FoundGuest,
    *,
    managed_state: t.Sequence[str],
    owned: t.Sequence[OwnedVolume],
    in_use: t.Mapping[str, str],
    disks: t.Mapping[str, OwnedDisk],
    owner: Owner,
    others: t.Sequence[str] = (),
    shared: t.Mapping[str, str] = MappingProxyType({}),
    unfinished: t.Sequence[DiskAside] = (),
    uri: str = SYSTEM,
) -> GuestPlan:
    """Remove the guest, then (if wanted) the disks that it owns and nobody else uses. Raises Refused for one that
    cannot be removed now: the record goes with the guest. Notes on kept disks have the command that deletes them.

    `in_use` is path -> user, `disks` what exists of the disks to remove. `owned` are entries of its record, which count
    only for their `owner`. `others` are files that are not in it, and stay, as do disks on filesystems that are
    `shared` with hosts that nobody has asked (path -> kind).
    """
    _refuse_namesake(wanted, found)
    in_use = {**_opened(found, disks), **in_use}
    doubts = {**_shared(shared), **_doubts(owned, owner, disks)}
    own = {one.path: one for one in owned if one.path not in {**in_use, **doubts}}
    removed = {path: disks[path] for path in own if wanted.remove_storage}
    _refuse_unreachable(wanted.name, removed, uri)
    made: list[GuestStep] = []
    if found.active:
        made = [plan_guest_steps.Destroy(wanted.name)] if wanted.force_off else power_off(wanted, found)
    if found.persistent:
        made.append(plan_guest_steps.Undefine(wanted.name, tuple(managed_state)))
    made += _deletions(wanted, own, removed)
    finishing, kept = plan_disposal.steps_and_notes(wanted.name, unfinished)
    used = {path: user for path, user in in_use.items() if user not in others}
    notes = [_left(owner, path, used, uri) for path in others]
    notes += [_kept(owner, one, used, doubts, uri) for one in owned if one.path not in removed]
    notes += [*_unknown(wanted.name, removed), *kept]
    changes = (Change("state", found.state, "absent"),)
    return GuestPlan((*finishing, *made), changes, notes=tuple(notes), uuid=found.uuid)


def with_shared_variables(plan: GuestPlan, in_use: t.Mapping[str, str]) -> GuestPlan:
    """The plan that keeps the guest's UEFI variables if they are `in_use` by others (path -> user): libvirt deletes the
    file by its path, and a definition that was copied by hand names it, too.
    """

    def keeping(step: GuestStep) -> GuestStep:
        if not isinstance(step, plan_guest_steps.Undefine) or not in_use:
            return step
        kinds = [f"keep_{kind}" if kind == "nvram" else kind for kind in step.managed_state]
        return dataclasses.replace(step, managed_state=tuple(kinds))

    notes = [f"kept UEFI variables {path}: {user} uses them" for path, user in in_use.items()]
    return dataclasses.replace(plan, steps=tuple(map(keeping, plan.steps)), notes=(*plan.notes, *notes))


def _deletions(
    wanted: GuestSpec, own: t.Mapping[str, OwnedVolume], removed: t.Mapping[str, OwnedDisk]
) -> list[plan_guest_steps.DeleteVolume]:
    """Steps that delete the disks that exist, or may exist."""
    going = tuple(path for path, disk in removed.items() if disk.volume or disk.active)
    return [
        plan_guest_steps.DeleteVolume(
            wanted.name,
            path,
            own[path].identity,
            others=going,
            keep_h=wanted.keep_removed_h if removed[path].tags is None else 0,  # a logical volume cannot be moved aside
            key=removed[path].key,
        )
        for path in going
    ]


def _doubts(owned: t.Sequence[OwnedVolume], owner: Owner, disks: t.Mapping[str, OwnedDisk]) -> dict[str, str]:
    """Why disks in the guest's record may not be its own, by path."""
    found = {path: disk.identity for path, disk in disks.items()}
    reasons = {
        one.path: plan_disk_facts.doubt(one, owner, found.get(one.path)) or _untagged(one, owner, disks.get(one.path))
        for one in owned
    }
    return {path: reason for path, reason in reasons.items() if reason}


def _shared(paths: t.Mapping[str, str]) -> dict[str, str]:
    """Why disks stay that a guest of another host may use, by path."""
    return {
        path: f"it is on {kind}, and a guest of a host that was not asked may use it" for path, kind in paths.items()
    }


def _untagged(entry: OwnedVolume, owner: Owner, disk: OwnedDisk | None) -> str:
    """Why a logical volume may be somebody else's: an interrupted run recorded its name, and may not have made it."""
    tag = owner_tag(owner.guest)
    if entry.identity or disk is None or disk.tags is None or tag in disk.tags:
        return ""
    return f"it does not have the tag {tag}, so it was not created for {owner.name}"


def _kept(owner: Owner, one: OwnedVolume, in_use: t.Mapping[str, str], doubts: t.Mapping[str, str], uri: str) -> str:
    """A note on a recorded disk that stays when its guest is removed."""
    kept = f"kept disk {one.path} of {owner.name}"
    if one.path in in_use:
        return f"{kept}: {in_use[one.path]} uses it"
    reason = f": {doubts[one.path]}" if one.path in doubts else ""
    if one.path in doubts and one.guest and not one.is_of(owner.guest, owner.host):
        return f"{kept}{reason}; find out there who uses it before you delete it"
    return f"{kept}{reason}; to delete it: {plan_disposal.command(uri, one.path)}"


def _left(owner: Owner, path: str, in_use: t.Mapping[str, str], uri: str) -> str:
    """A note on a file that stays and is not in the record: made by a snapshot or by hand."""
    kept = f"kept file {path} of {owner.name}, which is not in its record (made by a snapshot, or by hand)"
    return (
        f"{kept}: {in_use[path]} uses it"
        if path in in_use
        else f"{kept}; to delete it: {plan_disposal.command(uri, path)}"
    )


def unrecorded(chains: t.Iterable[t.Sequence[str]], owned: t.Collection[str]) -> list[str]:
    """Files of a guest that are not in its record, in the order of `chains`: each of its files with its backing files.
    Files between two of its own are its own; what is below them is an image that others use too.
    """
    found: list[str] = []
    tops = {chain[0] for chain in chains}
    for chain in chains:
        last = max(at for at, path in enumerate(chain) if path in owned or path in tops)
        found += chain[: last + 1]
    return [path for path in dict.fromkeys(found) if path not in owned]


def below(chains: t.Iterable[t.Sequence[str]], kept: t.Collection[str]) -> dict[str, str]:
    """Files on which files that stay stand: path -> the file on top of it."""
    found: dict[str, str] = {}
    for chain in chains:
        for top, base in zip(chain, chain[1:]):
            if top in kept or top in found:
                found.setdefault(base, top)
    return found


def _opened(found: FoundGuest, disks: t.Mapping[str, OwnedDisk]) -> dict[str, str]:
    """Disks of a guest that is off that a process such as qemu-nbd has open: path -> user."""
    user = "a process that libvirt does not know (see `{}`)"
    return {
        path: user.format(shlex.join(["fuser", "-v", path]))
        for path, disk in disks.items()
        if disk.opened and not found.active
    }


def gone(
    guest: str, left_over: t.Iterable[str], unfinished: t.Sequence[DiskAside] = (), *, uri: str = SYSTEM
) -> GuestPlan:
    """The plan for a guest that does not exist: notes on files that an interrupted removal may have left."""
    note = "disk {} may be left over from {}: no guest uses it; inspect it; to delete it: {}"
    finishing, kept = plan_disposal.steps_and_notes(guest, unfinished)
    left = [note.format(path, guest, plan_disposal.command(uri, path)) for path in left_over]
    return GuestPlan(tuple(finishing), notes=(*left, *kept))


def _unknown(guest: str, disks: t.Mapping[str, OwnedDisk]) -> list[str]:
    """Notes on disks that are not deleted, as nobody can look for files of their host from here."""
    return [
        f"disk {path} of {guest} is not deleted: no storage pool has its directory, so it is unknown whether it "
        "exists; inspect it on its host"
        for path, disk in disks.items()
        if not (disk.volume or disk.gone)
    ]


def shared(disks: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, str]:
    """Disks of the guest, except its seed, that it does not own alone: path -> who else does."""
    why = {"shareable": "it is shareable, and somebody else", "readonly": "it is read-only, and its writer"}
    own = [item for item in disks if item.get("source") and item["name"] != "seed"]
    return {item["source"]: reason for field, reason in why.items() for item in own if item.get(field)}


def named_after(guest: str, paths: t.Iterable[str]) -> list[str]:
    """The paths that are named like images of this guest."""
    ours = re.compile(rf"/{re.escape(guest)}-[^/]+\.(qcow2|img|iso)")
    return [path for path in paths if ours.search(path)]


def _refuse_unreachable(guest: str, disks: t.Mapping[str, OwnedDisk], uri: str) -> None:
    """Raise Refused with every disk that would stay without an owner."""
    problems = []
    for path, disk in disks.items():
        if disk.pool and not disk.active and not disk.volume:
            start = shlex.join(["virsh", "--connect", uri, "pool-start", disk.pool])
            problems.append(f"storage pool {disk.pool} of disk {path} is not active (start it: {start})")
        elif disk.pool is None and disk.exists and not disk.volume:
            problems.append(f"disk {path} is in no storage pool (create one for its directory with virt_pool)")
    if problems:
        raise Refused(
            f"cannot remove {guest} with its disks: {'; '.join(problems)}; or set remove_storage: false and delete "
            "the files by hand"
        )


def _refuse_namesake(wanted: GuestSpec, found: FoundGuest) -> None:
    """Raise Refused if the guest has another UUID than the task says."""
    if wanted.uuid and wanted.uuid != found.uuid:
        raise Refused(
            f"cannot remove {wanted.name}: the guest with this name has UUID {found.uuid}, not {wanted.uuid}; check "
            "the UUID"
        )
