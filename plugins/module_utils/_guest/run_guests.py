# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converge many guests in one call: each on its own, with one result for all."""

from __future__ import annotations

import concurrent.futures
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import diff
from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.step import Plan
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import Note

W = t.TypeVar("W")


def result(name: str, plan: Plan[t.Any], told: t.Iterable[object] = ()) -> dict[str, t.Any]:
    """The result of one guest; `told` is what its steps returned."""
    return {
        "name": name,
        "changed": any(step.changes for step in plan.steps),
        "steps": [str(step) for step in plan.steps if step.changes],
        "pending": list(plan.pending),
        "notes": [*plan.notes, *(str(note) for note in told if isinstance(note, Note))],
        "diff": diff(plan.changes),
    }


def each(
    wanted: t.Sequence[GuestSpec], converge: t.Callable[[GuestSpec], dict[str, t.Any]], *, at_once: int = 1
) -> list[dict[str, t.Any]]:
    """A result for each guest, started in the given order; a failed one is reported and the others go on."""
    return outcomes(wanted, converge, lambda one: {"name": one.name}, at_once=at_once)


def outcomes(
    wanted: t.Sequence[W],
    converge: t.Callable[[W], dict[str, t.Any]],
    called: t.Callable[[W], t.Mapping[str, t.Any]],
    *,
    at_once: int,
) -> list[dict[str, t.Any]]:
    """A result for each object; `called` returns the keys that name a failed one in its result."""

    def outcome(one: W) -> dict[str, t.Any]:
        try:
            return converge(one)
        except VirtError as error:
            done = list(getattr(error, "done", ()))
            return {**called(one), "failed": True, "msg": str(error), "changed": bool(done), "steps": done}

    if at_once == 1:
        return [outcome(one) for one in wanted]
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(outcome, wanted))


def diffs(results: t.Iterable[t.Mapping[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Diffs that show something, each under the name of its guest."""
    return [
        {"before_header": one["name"], "after_header": one["name"], **one["diff"]}
        for one in results
        if one.get("diff") and (one["diff"]["before"] or one["diff"]["after"])
    ]


def summary(results: t.Sequence[dict[str, t.Any]]) -> dict[str, t.Any]:
    """The module's result: changed if one guest changed, with `msg` if one failed."""
    failed = [one for one in results if one.get("failed")]
    return {
        "changed": any(one["changed"] for one in results),
        "results": list(results),
        "steps": [step for one in results for step in one["steps"]],
        "pending": {one["name"]: one["pending"] for one in results if one.get("pending")},
        "notes": [note for one in results for note in one.get("notes", [])],
        "diff": diffs(results),
        **({"msg": "; ".join(map(_reason, failed))} if failed else {}),
    }


def _reason(one: t.Mapping[str, t.Any]) -> str:
    """Why a guest failed, with its name once."""
    named = re.search(rf"(?<![\w.-]){re.escape(one['name'])}(?![\w-])", one["msg"])
    return str(one["msg"]) if named else f"{one['name']}: {one['msg']}"
