# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Before a guest of Pacemaker is removed: whether another member may run it."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._core.step import Plan
from ansible_collections.corral.virt.plugins.module_utils._core.uri import tls
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._libvirt import states
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._libvirt.model_state import ACTIVE
from ansible_collections.corral.virt.plugins.module_utils._power import files_pacemaker, plan_power
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import Resource

__all__ = ["entrusted"]

P = t.TypeVar("P", bound="Plan[t.Any]")


def entrusted(plan: P, wanted: GuestSpec, found: Resource | None) -> P:
    """The plan for a guest that may be a resource of Pacemaker. All members are asked whether they run one that is off
    here and is to be removed; raises Refused if one may.
    """
    asks = found is not None and wanted.state == "absent" and not plan_power.holds(plan.steps)
    elsewhere = [*_elsewhere(found.uuid)] if found and asks else []
    return plan_power.entrusted(plan, wanted, found, elsewhere=elsewhere)


def _elsewhere(uuid: str) -> t.Iterator[str]:
    for member in files_pacemaker.others():
        try:
            with opened(tls(member)) as connection:
                found = [state for domain, state in states.of_all(connection) if domain.UUIDString() == uuid]
        except Failed as error:
            yield f"{member} does not say whether it runs there: {error}"
            continue
        if found and found[0] in ACTIVE:
            yield f"{member} has it {found[0]}"
