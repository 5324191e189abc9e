# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Rules of storage pools. A pool is never moved: the disks of guests would stay behind."""

from __future__ import annotations

import posixpath
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import (
    Case,
    Define,
    NounPlan,
    Rule,
    Start,
    Stop,
    Undefine,
)
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun_stages import Noun
from ansible_collections.corral.virt.plugins.module_utils._storage.fields_pool import POOL_SCHEMA, SHAPE, host, skeleton
from ansible_collections.corral.virt.plugins.module_utils._storage.model_pool import PoolHost

__all__ = ["POOL", "RULES"]


Findings = t.Iterator[t.Union[VirtError, str]]


def _has_a_place(case: Case, _plan: NounPlan) -> Findings:
    if case.found is None and case.spec.state != "absent" and not case.stored.after.get("path"):
        yield BadInput(f"path of pool {case.spec.name}: it is required for a new pool")


def _is_a_directory(case: Case, _plan: NounPlan) -> Findings:
    kind = case.stored.before.get("type")
    if case.found and case.spec.state != "absent" and kind != "dir":
        yield Refused(f"cannot use pool {case.spec.name}: it is of type {kind}, not a directory; choose another name")


def _stays(case: Case, _plan: NounPlan) -> Findings:
    if case.found and case.changed("path") and case.stored.before.get("type") == "dir":
        before, after = case.stored.before.get("path"), case.stored.after.get("path")
        yield Refused(
            f"cannot move pool {case.spec.name} from {before} to {after}: the disks of guests would stay behind, and "
            f"libvirt knows them by {before}; if one of the two is a link to the other, set path: {before}; if not, "
            "choose another name, or remove the pool first (state: absent keeps the files)"
        )


def _host(case: Case) -> PoolHost:
    return case.facts.host or PoolHost()


def _is_alone_in_its_directory(case: Case, _plan: NounPlan) -> Findings:
    """Refuse a new pool in the directory of another, as libvirt does."""
    path = str(case.stored.after.get("path") or "")
    if case.found or case.spec.state == "absent" or not path:
        return
    host = _host(case)
    ours = host.identity(path)
    for theirs, other in host.directories().items():
        if host.identity(theirs) == ours:
            told = "" if posixpath.normpath(path) == theirs else f", which calls it {theirs}"
            yield Refused(
                f"cannot create pool {case.spec.name} in {path}: it is the directory of pool {other}{told}; use that "
                "pool, or choose another path"
            )


def _is_open_to_guests(case: Case, plan: NounPlan) -> Findings:
    """Note a directory that QEMU's user cannot enter: libvirt gives it the disks, but opens no directory."""
    path = str(case.stored.after.get("path") or "")
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
    path = str(case.stored.after.get("path") or "")
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


RULES: tuple[Rule, ...] = (
    _has_a_place,
    _is_a_directory,
    _stays,
    _is_alone_in_its_directory,
    _can_be_made,
    _is_open_to_guests,
    _keeps_no_guest_off,
)


# A storage pool that is a directory.

POOL = Noun(
    schema=POOL_SCHEMA,
    shape=SHAPE,
    skeleton=skeleton,
    rules=RULES,
    made=lambda values: f"in {values.get('path')}",
    shown=("path",),
    host=host,
)
