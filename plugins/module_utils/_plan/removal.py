# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide what goes with a guest that shall not be there. Pure."""

from __future__ import annotations

import functools
import re
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._changes import Change
from ansible_collections.corral.virt.plugins.module_utils._errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._model.domain import FoundGuest, GuestSpec, OwnedDisk
from ansible_collections.corral.virt.plugins.module_utils._model.uri import SYSTEM
from ansible_collections.corral.virt.plugins.module_utils._plan import steps
from ansible_collections.corral.virt.plugins.module_utils._plan.domain import GuestPlan
from ansible_collections.corral.virt.plugins.module_utils._plan.power import power_off
from ansible_collections.corral.virt.plugins.module_utils._plan.steps import GuestStep

__all__ = ["absent", "gone", "named_after", "shared"]


def absent(
    wanted: GuestSpec,
    found: FoundGuest,
    *,
    managed_state: t.Sequence[str],
    owned: t.Sequence[str],
    in_use: t.Mapping[str, str],
    disks: t.Mapping[str, OwnedDisk],
    uri: str = SYSTEM,
) -> GuestPlan:
    """Remove the guest, then (when told to) the disks it owns and nobody else uses; `in_use` is path -> user, and
    `disks` is what there is of those that are to be removed.

    Raises Refused for a disk that cannot be removed now: with the guest goes what tells whose it is. Nobody knows
    afterwards whose a kept disk was, so its note has the command that deletes it, at that `uri`.
    """
    delete = functools.partial(_deletion, uri)
    _refuse_namesake(wanted, found)
    in_use = {**_opened(found, disks), **in_use}
    removed = {path: disks[path] for path in owned if wanted.remove_storage and path not in in_use}
    _refuse_unreachable(wanted.name, removed, uri)
    made: list[GuestStep] = power_off(wanted, found) if found.active else []
    if found.persistent:
        made.append(steps.Undefine(wanted.name, tuple(managed_state)))
    made += [steps.DeleteVolume(wanted.name, path) for path, disk in removed.items() if disk.volume or disk.active]
    notes = [
        f"kept disk {path} of {wanted.name}"
        + (f": {in_use[path]} uses it" if path in in_use else f"; to delete it: {delete(path)}")
        for path in owned
        if path not in removed
    ]
    notes += _unknown(wanted.name, removed)
    return GuestPlan(tuple(made), (Change("state", found.state, "absent"),), notes=tuple(notes), uuid=found.uuid)


def _opened(found: FoundGuest, disks: t.Mapping[str, OwnedDisk]) -> dict[str, str]:
    """Disks that a process has open, such as qemu-nbd, of a guest that is off: one that runs has them open itself."""
    user = "a process that libvirt does not know (see `{}`)"
    return {
        path: user.format(shlex.join(["fuser", "-v", path]))
        for path, disk in disks.items()
        if disk.opened and not found.active
    }


def gone(guest: str, left_over: t.Iterable[str], *, uri: str = SYSTEM) -> GuestPlan:
    """No guest; but files that may be left of it, by a run that ended between its removal and theirs."""
    note = "disk {} may be left over from {}: no guest uses it; inspect it; to delete it: {}"
    return GuestPlan(notes=tuple(note.format(path, guest, _deletion(uri, path)) for path in left_over))


def _unknown(guest: str, disks: t.Mapping[str, OwnedDisk]) -> list[str]:
    """Of disks that can be removed: those of a host whose files nobody can look for from here."""
    return [
        f"disk {path} of {guest} is not deleted: no storage pool has its directory, so it is unknown whether it "
        "exists; inspect it on its host"
        for path, disk in disks.items()
        if not (disk.volume or disk.gone)
    ]


def shared(disks: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, str]:
    """Of a guest's disks those that it does not own alone, but for its seed: path -> who does."""
    why = {"shareable": "it is shareable, and somebody else", "readonly": "it is read-only, and its writer"}
    own = [item for item in disks if item.get("source") and item["name"] != "seed"]
    return {item["source"]: reason for field, reason in why.items() for item in own if item.get(field)}


def named_after(guest: str, paths: t.Iterable[str]) -> list[str]:
    """Those of the paths that are named as the images of that guest are."""
    ours = re.compile(rf"/{re.escape(guest)}-[^/]+\.(qcow2|img|iso)")
    return [path for path in paths if ours.search(path)]


def _refuse_unreachable(guest: str, disks: t.Mapping[str, OwnedDisk], uri: str) -> None:
    """Raises Refused with every disk that would stay with nobody's name on it."""
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


def _deletion(uri: str, path: str) -> str:
    return shlex.join(["virsh", "--connect", uri, "vol-delete", path])


def _refuse_namesake(wanted: GuestSpec, found: FoundGuest) -> None:
    """A name is not an identity: a guest that was named by its UUID is not removed with another one of that name."""
    if wanted.uuid and wanted.uuid != found.uuid:
        raise Refused(
            f"cannot remove {wanted.name}: the guest with this name has UUID {found.uuid}, not {wanted.uuid}; check "
            "the UUID"
        )
