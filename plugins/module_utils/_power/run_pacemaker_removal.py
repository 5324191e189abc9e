# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Before a guest of Pacemaker is removed: whether another member may run it."""

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

from ansible_collections.corral.virt.plugins.module_utils._core import step
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._core.uri import tls
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._libvirt import states
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._libvirt.model_state import ACTIVE
from ansible_collections.corral.virt.plugins.module_utils._power import files_pacemaker, plan_power
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import Resource

P = t.TypeVar("P", bound=step.Plan[t.Any])


def entrusted(
    plan: P, wanted: GuestSpec, found: Resource | None, undefines: tuple[type, ...] = ()
) -> tuple[P, t.Callable[[], None] | None]:
    """The plan for a guest that may be a resource of Pacemaker. One that is off here and is to be removed may run on
    another member, or Pacemaker may be starting it there: then also a look, to be made again when Pacemaker looks away.

    Both raise Refused if another member may run it.
    """
    if found is None or wanted.state != "absent" or plan_power.holds(plan.steps):
        return plan_power.entrusted(plan, wanted, found, undefines), None
    plan = plan_power.entrusted(plan, wanted, found, undefines)
    plan_power.refuse_elsewhere(wanted, found, [*_elsewhere(found.uuid)])

    def again() -> None:
        files_pacemaker.settle()
        plan_power.refuse_elsewhere(wanted, found, [*_elsewhere(found.uuid)])

    return plan, again


def _others(here: str, said: str) -> list[str]:
    """The other members that may run a guest: those that Pacemaker sees, and those that it has lost and not fenced."""
    nodes = ElementTree.fromstring(said).iterfind("nodes/node")  # noqa: S314 (Pacemaker's own)
    return sorted(
        {node.get("name", "") for node in nodes if "true" in (node.get("online"), node.get("unclean"))} - {here}
    )


def _elsewhere(uuid: str) -> t.Iterator[str]:
    for member in _others(*files_pacemaker.members()):
        try:
            with opened(tls(member)) as connection:
                found = [state for domain, state in states.of_all(connection) if domain.UUIDString() == uuid]
        except Failed as error:
            yield f"{member} does not say whether it runs there: {error}"
            continue
        if found and found[0] in ACTIVE:
            yield f"{member} has it {found[0]}"
