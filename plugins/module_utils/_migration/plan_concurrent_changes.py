# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Detect and refuse what others changed while a guest migrates. Pure."""

from __future__ import annotations

import functools
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._core.output import agree
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import Made

# Decide whether a file on the destination is still the one that a move made there. Pure.

Volume = t.Mapping[str, t.Any]  # as `_domain.xml_host` reads it

_EMPTY_BYTES = 1024 * 1024  # a new qcow2 file with its tables takes 200 KiB


def foreign(
    made: Made,
    seen: t.Mapping[str, t.Any],
    users: t.Mapping[str, str],
    *,
    begun: t.Callable[[int], bool],
    mark: t.Callable[[], str],
) -> str:
    """Why a file on the destination is not the one that the migration made; empty if it is. `seen` is the volume,
    `users` maps paths to other guests there.

    `begun` returns True if the file's content, of so many bytes, is what the source's file begins with: an interrupted
    copy ends at its last hole. `mark` reads the mark in its header.
    """
    if made.path in users:
        return f"guest {users[made.path]} uses it"
    if made.is_volume:
        return replaced(made, mark())
    if made.phase == Made.COPYING:
        ours = seen["physical_bytes"] in range(1, made.size_bytes + 1) and begun(seen["physical_bytes"])
        return "" if ours else "its content is not what the migration copies there"
    if made.size_bytes not in (seen["capacity_bytes"], seen["physical_bytes"]):
        return "its size differs from what the migration created"
    if made.phase == Made.OPEN:
        return replaced(made, mark())
    if made.phase == Made.MAKING and seen["allocation_bytes"] > _EMPTY_BYTES:
        return "it contains data, and the migration had not created it yet"
    if made.phase == Made.MADE and made.changed != seen["changed"]:
        return "it was replaced or changed after the migration created it"
    return ""


def replaced(made: Made, mark: str) -> str:
    """Why a file that QEMU writes, with this mark in its header, is not the one that was made; empty if it is."""
    if made.is_volume and not made.mark:
        return (
            "the migration was interrupted while it created it, so it may be somebody else's; inspect it, and remove "
            f"it there if nobody needs it (lvremove {made.path})"
        )
    if not made.mark:
        return "a raw file has no mark, so it is unknown whether it is the one that the migration created; inspect it"
    return "" if mark == made.mark else "it was replaced after the migration created it"


def check_size(volume: Volume, path: str, pool: str, *, wanted_bytes: int) -> None:
    """Raise Failed if a new logical volume has another size than the disk: the guest would see it grow."""
    size_bytes = volume["capacity_bytes"]
    if size_bytes != wanted_bytes:
        raise Failed(
            f"cannot copy a disk to {path}: it has {bytes_text(wanted_bytes)}, and volumes of pool {pool} on the "
            f"destination, in whole extents, {bytes_text(size_bytes)}; grow the disk to that size first (virt_domain, "
            "disks[].size), or choose another pool (disk_pool)"
        )


def sorted_out(
    entries: t.Iterable[Made],
    seen: t.Mapping[str, t.Mapping[str, t.Any]],
    users: t.Mapping[str, str],
    *,
    begun: t.Callable[[str, int], bool],
    mark: t.Callable[[str], str],
) -> tuple[set[str], list[str]]:
    """Paths of recorded files that exist and are unchanged, and why others stay; `seen` are volumes by path."""
    ours, others = set(), []
    for made in entries:
        if made.path not in seen:
            continue
        known = functools.partial(begun, made.path), functools.partial(mark, made.path)
        if why := foreign(made, seen[made.path], users, begun=known[0], mark=known[1]):
            others.append(f"{made.path} stays on the destination: {why}")
        else:
            ours.add(made.path)
    return ours, others


def stopped(pool: str) -> str:
    """Why nobody can list the directory of an inactive pool, with the remedy."""
    start = shlex.join(["virsh", "pool-start", pool])
    return f"storage pool {pool} of that directory is not active; start it there with `{start}`"


def without_pool(directory: str) -> str:
    """Why nobody can list the logical volumes of a directory, with the remedy."""
    return f"no storage pool has {directory}; create one of type logical there (virt_pool), or look with `lvs`"


def check_seen(unseen: t.Mapping[str, str]) -> None:
    """Raise Failed with files that nobody could look for, and why: their record must then be kept."""
    if unseen:
        reasons = "; ".join(f"{path}: {reason}" for path, reason in sorted(unseen.items()))
        raise Failed(f"cannot look on the destination for files that the migration created there: {reasons}")


def another_run(name: str) -> str:
    """The error for a run that finds another run migrating this guest."""
    return (
        f"cannot migrate {name}: another run is migrating it from this host; wait for that run, or abort it with "
        "state: aborted"
    )


def check_wanted(name: str, *, interrupted: bool) -> None:
    """Raise Failed if the migration was interrupted while the guest is still on the source."""
    if interrupted:
        raise Failed(f"cannot migrate {name}: interrupted, and the guest has not moved; run again to migrate it")


def check_begun(name: str, *, interrupted: bool) -> None:
    """Raise Failed if all migrations were interrupted before this guest's began."""
    if interrupted:
        raise Failed(f"cannot migrate {name}: all migrations were interrupted before it began; run again to migrate it")


def check_there(path: str, volume: Volume | None) -> Volume:
    """The volume that is copied; raises Failed if it is gone."""
    if volume is None:
        raise Failed(f"cannot copy {path}: it is gone from its pool; restore it, or detach it from the guest")
    return volume


def check_unchanged(path: str, before: Volume, after: Volume) -> None:
    """Raise Failed if a file was written to between two looks: its copy would mix both contents."""
    if any(before[key] != after[key] for key in ("modified_s", "physical_bytes")):
        raise Failed(f"cannot copy {path}: it was written to in the meantime; run again when nothing writes to it")


def check_path_free(path: str, *, user: str | None, taken: bool) -> None:
    """Raise Failed if another guest of the destination uses the path, or a file exists there."""
    if user:
        raise Failed(
            f"cannot copy {path}: guest {user} on the destination uses a file with this name; rename one of the guests"
        )
    if taken:
        raise Failed(
            f"cannot copy {path}: the destination has a file with this name, which no guest uses and no migration of "
            "this guest created; inspect it, and move it away"
        )


def shared_variables(used: t.Mapping[str, str]) -> list[str]:
    """Notes on UEFI variables that stay on the source when their guest has left, as others use them: path -> user."""
    return [f"the UEFI variables in {path} stay on the source: {user} uses them" for path, user in used.items()]


def check_in_place(name: str, problems: t.Mapping[str, str]) -> None:
    """Raise Failed with files of the destination that are not the ones made for the guest; `problems` maps each path to
    what is wrong, or to an empty text.
    """
    if any(problems.values()):
        found = "; ".join(f"{path}: {why}" for path, why in sorted(problems.items()) if why)
        raise Failed(
            f"cannot migrate {name}: on the destination, {found}. Nothing was deleted on either host. If the guest is "
            "there, its content is only in its QEMU process: copy it before it ends (virsh blockcopy, to another "
            "path); else inspect the file, move it away, and run again"
        )


def check_definition(name: str, planned: str, now: str | None) -> None:
    """Raise Failed if the guest's definition (its fingerprint) is not the one that the plan was made for."""
    if now != planned:
        changed = "it is gone" if now is None else "somebody changed its definition (virsh dumpxml shows it)"
        raise Failed(f"cannot migrate {name}: {changed} after the migration was planned; run again")


def check_name_kept(path: str, *, in_place: bool) -> None:
    """Raise Failed if another file took the name of one that was being filled."""
    if not in_place:
        raise Failed(
            f"cannot copy {path}: another file took this name on the destination while it was copied; that file was "
            "not touched, and the guest stays where it is; inspect the file, move it away, and run again"
        )


def check_reserved(name: str, *, reserved: bool) -> None:
    """Raise Failed if somebody replaced the definition that reserves the guest's place on the destination."""
    if not reserved:
        raise Failed(
            f"cannot define {name} on the destination: somebody replaced the definition that reserves its place there. "
            "Nothing was touched, and the disks on the source are kept; a guest that has arrived is paused. Save that "
            f"definition (virsh dumpxml --inactive {name}), undefine it there (virsh undefine {name}), and run again"
        )


def check_is_there(name: str, *, there: bool) -> None:
    """Raise Failed if a guest that had arrived is no longer on the destination."""
    if not there:
        raise Failed(
            f"cannot remove the disks of {name} from the source: the guest is no longer on the destination; they stay; "
            "find out who undefined it there"
        )


def check_not_written(name: str, paths: t.Sequence[str]) -> None:
    """Raise Failed if a process writes to files of a guest that is off."""
    if paths:
        raise Failed(
            f"cannot migrate {name}: it is off, and a process has {', '.join(paths)} open for writing, such as "
            f"qemu-nbd, or the guest was started just now; find it (`fuser -v {paths[0]}`), end it, and run again"
        )


def check_same_content(name: str, differing: t.Sequence[str]) -> None:
    """Raise Failed if copies of disks differ from their originals."""
    if differing:
        raise Failed(
            f"cannot migrate {name}: {', '.join(differing)} {agree(len(differing), 'was', 'were')} written to after "
            "being copied. Nothing kept the guest from being started meanwhile: the filesystem has no locks, and "
            "libvirt does not run the hook of role corral.virt.hypervisor. The guest stays on the source; run again"
        )


def unheld(name: str) -> str:
    """A note on a migration during which nothing keeps the guest from being started."""
    return (
        f"nothing keeps {name} from being started while it is copied (no locks on its filesystem, no hook of role "
        "corral.virt.hypervisor): its disks are compared on both hosts before those on the source are deleted"
    )


def check_off(name: str, state: str) -> None:
    """Raise Failed if a guest that was off is no longer off."""
    if state not in ("shutdown", "crashed"):
        raise Failed(f"cannot migrate {name}: it was started in the meantime; run again to migrate it live")
