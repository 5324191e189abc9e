# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Many guests in one call: all checked first, then each on its own, one result for all."""

from __future__ import annotations

import concurrent.futures
import functools
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._front import domain_options
from ansible_collections.corral.virt.plugins.module_utils._model.domain import GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._plan.problems import Problems, contradictions

__all__ = ["all_wanted", "each", "summary", "waited"]


def all_wanted(items: t.Sequence[t.Mapping[str, t.Any]], at_once: int = 1) -> list[GuestSpec]:
    """Every guest as wanted; raises BadInput with the problems of all of them."""
    problems = Problems()
    found = [problems.tried(functools.partial(domain_options.wanted, item)) for item in items]
    originals = {item["name"]: item["clone_of"] for item in items if item.get("clone_of")}
    problems.found += contradictions([item["name"] for item in items], at_once, originals)
    problems.refuse()
    return [one for one in found if one]


def each(
    wanted: t.Sequence[GuestSpec], converge: t.Callable[[GuestSpec], dict[str, t.Any]], *, at_once: int = 1
) -> list[dict[str, t.Any]]:
    """A result for each guest, begun in the order given; one that fails is reported and the rest goes on."""

    def result(one: GuestSpec) -> dict[str, t.Any]:
        try:
            return converge(one)
        except VirtError as error:
            done = getattr(error, "done", [])
            return {"name": one.name, "failed": True, "msg": str(error), "changed": bool(done), "steps": done}

    if at_once == 1:
        return [result(one) for one in wanted]
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(result, wanted))


def waited(connection: t.Any, results: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """The results after all guests that were to have an address have one, or failed to; they wait side by side."""
    if not any("awaits" in one for one in results):
        return results
    # compiled only where it is needed
    from ansible_collections.corral.virt.plugins.module_utils._front import addresses

    return addresses.wait_for(connection, results)


def summary(results: t.Sequence[dict[str, t.Any]]) -> dict[str, t.Any]:
    """The module's result: changed when one changed, `msg` when one failed."""
    diffs = [
        {"before_header": one["name"], "after_header": one["name"], **one["diff"]}
        for one in results
        if one.get("diff") and (one["diff"]["before"] or one["diff"]["after"])
    ]
    failed = [one for one in results if one.get("failed")]
    return {
        "changed": any(one["changed"] for one in results),
        "results": list(results),
        "steps": [step for one in results for step in one["steps"]],
        "pending": {one["name"]: one["pending"] for one in results if one.get("pending")},
        "notes": [note for one in results for note in one.get("notes", [])],
        "diff": diffs,
        **({"msg": "; ".join(map(_reason, failed))} if failed else {}),
    }


def _reason(one: t.Mapping[str, t.Any]) -> str:
    """Why a guest failed; its name once."""
    named = re.search(rf"(?<![\w.-]){re.escape(one['name'])}(?![\w-])", one["msg"])
    return str(one["msg"]) if named else f"{one['name']}: {one['msg']}"
