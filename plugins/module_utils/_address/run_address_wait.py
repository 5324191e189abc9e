# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait for the addresses of started guests, many at once, and record them."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._address import run_addresses
from ansible_collections.corral.virt.plugins.module_utils._address.plan_address import AddressOutcome, notes
from ansible_collections.corral.virt.plugins.module_utils._address.plan_address_steps import WaitForAddress
from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._power import libvirt_wait
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import Seen


def wait_for(connection: t.Any, results: t.Sequence[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Results of guests, once those that wait for an address (`awaits`) have one, or have failed.

    All wait at once. Recording an address is no step, and changes nothing: the gate has let the wait through, check
    mode cannot foresee it, and a run that only looks again would never be unchanged.
    """
    searches = {uuid: step for one in results for uuid, step in one.get("awaits", {}).items()}
    try:
        outcomes = run_addresses.find(connection, searches, named=True) if searches else {}
    except VirtError as error:  # the connection was lost, say; what was done before is told with each guest
        return [
            _failed(one, _awaited(one)[1].timeout_message(Seen(unseen=str(error)))) if "awaits" in one else one
            for one in results
        ]
    run_addresses.do(connection, run_addresses.changes(outcomes))
    return [_result(connection, one, outcomes) if "awaits" in one else one for one in results]


def _awaited(one: dict[str, t.Any]) -> tuple[str, WaitForAddress]:
    """The UUID of a guest, and its wait."""
    ((uuid, step),) = one["awaits"].items()
    return uuid, step


def _result(connection: t.Any, one: dict[str, t.Any], outcomes: t.Mapping[str, AddressOutcome]) -> dict[str, t.Any]:
    uuid, step = _awaited(one)
    outcome = outcomes.get(uuid, AddressOutcome(step.guest))
    if outcome.addresses:
        return {
            **_without_wait(one),
            "addresses": list(outcome.addresses),
            "notes": [*one["notes"], *notes(outcomes, outcome.name)],
        }
    seen = libvirt_wait.observe(connection, step.guest, uuid)
    return _failed(one, step.timeout_message(seen, tried=outcome.tried, refused=outcome.refused))


def _without_wait(one: dict[str, t.Any]) -> dict[str, t.Any]:
    return {key: value for key, value in one.items() if key != "awaits"}


def _failed(one: dict[str, t.Any], reason: str) -> dict[str, t.Any]:
    done = f" (already done: {'; '.join(one['steps'])})" if one["steps"] else ""
    return {**_without_wait(one), "failed": True, "msg": reason + done}
