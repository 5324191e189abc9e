# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Wait for the addresses of guests that were started, many at once, and record them."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._front import addresses
from ansible_collections.corral.virt.plugins.module_utils._libvirt import query, wait
from ansible_collections.corral.virt.plugins.module_utils._plan import steps

__all__ = ["wait_for"]


def wait_for(connection: t.Any, results: t.Sequence[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Results of guests, after those of them that wait for an address (`awaits`) have one, or have failed.

    All wait at once.
    """
    searches = {uuid: step for one in results for uuid, step in one.get("awaits", {}).items()}
    outcomes = addresses.find(connection, searches, named=True) if searches else {}
    addresses.do(connection, addresses.changes(outcomes))
    return [_result(connection, one, outcomes) for one in results]


def _result(connection: t.Any, one: dict[str, t.Any], outcomes: t.Mapping[str, addresses.Outcome]) -> dict[str, t.Any]:
    if "awaits" not in one:
        return one
    ((uuid, step),) = one["awaits"].items()
    result = {key: value for key, value in one.items() if key != "awaits"}
    outcome = outcomes.get(uuid, addresses.Outcome(step.guest))
    if outcome.addresses:
        return {
            **result,
            "addresses": list(outcome.addresses),
            "notes": [*result["notes"], *addresses.notes(outcomes, outcome.name)],
        }
    try:
        seen = wait.observe(connection, query.by_uuid(connection, uuid))
    except VirtError:
        seen = steps.Seen(state="shutdown")
    done = f" (already done: {'; '.join(result['steps'])})" if result["steps"] else ""
    return {**result, "failed": True, "msg": step.too_late(seen, tried=outcome.tried, refused=outcome.refused) + done}
