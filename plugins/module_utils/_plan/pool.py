# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Rules of storage pools. A pool is never moved: the disks of guests would stay behind."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._plan.noun import Case, NounPlan, Rule

__all__ = ["RULES"]

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


RULES: tuple[Rule, ...] = (_has_a_place, _is_a_directory, _stays)
