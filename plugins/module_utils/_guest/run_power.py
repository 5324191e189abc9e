# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring an existing guest to a power state. Free of Ansible and of the guest model, so that little code travels."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems, contradictions
from ansible_collections.corral.virt.plugins.module_utils._core.units import check_existing_name, uuid_of
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import GuestSpec, Power
from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import Missing, Prerequisites
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_prerequisites import prerequisites
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_start, run_guests
from ansible_collections.corral.virt.plugins.module_utils._guest.run_prerequisites import missing
from ansible_collections.corral.virt.plugins.module_utils._power import libvirt_power, plan_power, run_pacemaker

OPTIONS: dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "uuid": {"type": "str"},
    "state": {
        "type": "str",
        "required": True,
        "choices": ["running", "paused", "shutdown", "destroyed", "rebooted", "reset"],
    },
    "force": {"type": "bool", "default": False},
    "wait": {"type": "bool", "default": True},
    "wait_timeout": {"type": "int", "default": 300},
}


def all_wanted(items: t.Sequence[t.Mapping[str, t.Any]], at_once: int) -> list[GuestSpec]:
    """Every guest as wanted; raises BadInput with the problems of all of them."""
    problems = Problems(contradictions([item["name"] for item in items], at_once))
    found = [_wanted(item, problems) for item in items]
    problems.refuse()
    return found


def _wanted(item: t.Mapping[str, t.Any], problems: Problems) -> GuestSpec:
    guest, waiting = item["name"], {"force": item["force"], "wait": item["wait"]}
    problems.tried(functools.partial(check_existing_name, guest, what="name"))
    problems.found += plan_power.waiting_problems(guest, timeout_s=item["wait_timeout"], **waiting)
    uuid = item.get("uuid") and problems.tried(functools.partial(uuid_of, item["uuid"], what=f"uuid of {guest}"))
    return GuestSpec(
        item["name"], state=item["state"], uuid=uuid or None, wait_timeout_s=item["wait_timeout"], **waiting
    )


def converge(connection: t.Any, wanted: GuestSpec, gate: Gate) -> dict[str, t.Any]:
    """Bring one guest to its state and return its result."""
    found = libvirt_power.find(connection, wanted.name, wanted.uuid)
    resource = run_pacemaker.resource(connection, found.uuid if found else None)
    plan = plan_power.entrusted(plan_power.plan(wanted, found), wanted, resource)
    plan_start.check_steps(wanted.name, plan.steps, lambda: _prerequisites(connection, found))
    uuid = found.uuid if found else ""
    told = run_pacemaker.run(gate, resource, plan.steps, lambda step: libvirt_power.do(connection, uuid, step))
    return run_guests.result(wanted.name, plan, told)


def _prerequisites(connection: t.Any, found: Power | None) -> tuple[Prerequisites, Missing]:
    """What libvirt opens when the guest starts, and what of that is missing."""
    xml, restored = libvirt_power.definition(connection, found.uuid) if found else ("", False)
    needed = prerequisites(xml, restored=restored) if xml else Prerequisites()
    return needed, missing(connection, needed)
