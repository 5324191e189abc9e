# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide whether a file on the destination is still the one that a move made there. Pure."""

from __future__ import annotations

import functools
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import Made

__all__ = ["check_seen", "foreign", "replaced", "sorted_out", "stopped"]

_EMPTY_BYTES = 1024 * 1024  # a new qcow2 file with its tables takes 200 KiB


def foreign(
    made: Made,
    seen: t.Mapping[str, t.Any],
    users: t.Mapping[str, str],
    *,
    begun: t.Callable[[int], bool],
    mark: t.Callable[[], str],
) -> str:
    """Why it is not, so that it is never touched; empty when it is. `seen` is the volume, `users` are paths of other
    guests there.

    `begun` tells whether its content, of so many bytes, is what the file on the source begins with: a copy that broke
    off is cut at its last hole. `mark` reads the mark in its header.
    """
    if made.path in users:
        return f"guest {users[made.path]} uses it"
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
    """Why a file that QEMU writes, with that mark in its header, is not the one that was made; empty when it is."""
    if not made.mark:
        return "a raw file has no mark, so it is unknown whether it is the one that the migration created; inspect it"
    return "" if mark == made.mark else "it was replaced after the migration created it"


def sorted_out(
    entries: t.Iterable[Made],
    seen: t.Mapping[str, t.Mapping[str, t.Any]],
    users: t.Mapping[str, str],
    *,
    begun: t.Callable[[str, int], bool],
    mark: t.Callable[[str], str],
) -> tuple[set[str], list[str]]:
    """Paths of recorded files that are there and still those, and why others stay; `seen` are volumes by path."""
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
    """Why nobody can look into the directory of a pool that is not active."""
    start = shlex.join(["virsh", "pool-start", pool])
    return f"storage pool {pool} of that directory is not active; start it there with `{start}`"


def check_seen(unseen: t.Mapping[str, str]) -> None:
    """Raise Failed with files that nobody could look for, and why: then nobody may forget whose they are, either."""
    if unseen:
        reasons = "; ".join(f"{path}: {reason}" for path, reason in sorted(unseen.items()))
        raise Failed(f"cannot look on the destination for files that the migration created there: {reasons}")
