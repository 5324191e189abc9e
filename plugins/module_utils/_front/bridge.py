# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Options of `virt_bridge`, and its way from them to a result."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils import _changes
from ansible_collections.corral.virt.plugins.module_utils._files import (
    bridge,
    configuration,
    links,
)
from ansible_collections.corral.virt.plugins.module_utils._model.bridge import (
    BridgeFacts,
    NetworkChange,
)
from ansible_collections.corral.virt.plugins.module_utils._model.defaults import BRIDGE
from ansible_collections.corral.virt.plugins.module_utils._plan import bridge as plan
from ansible_collections.corral.virt.plugins.module_utils._plan.bridge_steps import (
    ConfirmBridge,
    RequirePackages,
    SetBridgeOption,
    SetSysctl,
    SwitchToBridge,
)
from ansible_collections.corral.virt.plugins.module_utils._plan.host_steps import (
    HostStep,
    WriteFile,
)
from ansible_collections.corral.virt.plugins.module_utils._run import Gate

__all__ = ["OPTIONS", "converge"]

OPTIONS: dict[str, t.Any] = {
    "name": {"type": "str", "default": BRIDGE},
    "state": {"type": "str", "choices": ["present", "confirmed"], "default": "present"},
    "port": {"type": "str", "default": "auto"},
    "address": {"type": "str"},
    "timeout": {"type": "int", "default": 60},
    "filter_guests": {"type": "bool", "default": False},
}
_DOERS: dict[type[HostStep], t.Callable[[t.Any], None]] = {
    RequirePackages: lambda step: bridge.require(step.packages),
    WriteFile: lambda step: configuration.write(step.path, step.content),
    SetBridgeOption: lambda step: bridge.switch_off(step.bridge, step.field),
    SetSysctl: lambda step: bridge.set_sysctl(step.keys, step.value),
    SwitchToBridge: lambda step: bridge.start(step.change, step.timeout_s),
    ConfirmBridge: lambda step: bridge.confirm(step.bridge),
}


def converge(params: t.Mapping[str, t.Any], gate: Gate) -> dict[str, t.Any]:
    """Fetch, plan, pass through the gate, report."""
    wanted = plan.spec(params)
    change = None
    if params["state"] == "confirmed":
        steps, changes = plan.confirm(wanted.name, links.trial())
    else:
        facts = links.facts(plan.NF_CALLS)
        port = plan.port(wanted, facts)
        change = _change(port, facts, wanted.name) if port else None
        steps, changes = plan.decide(wanted, facts, change)
    gate.run(steps, lambda step: _DOERS[type(step)](step))
    return {
        "changed": bool(steps),
        "diff": _changes.diff(changes),
        "steps": [str(step) for step in steps],
        "switches": change is not None,
        "port": change.port if change else None,
        "manager": change.manager if change else None,
        "packages": list(change.packages) if change else [],
    }


def _change(port: str, facts: BridgeFacts, name: str) -> NetworkChange:
    manager = plan.manager(port, links.owner(port), facts, bridge=name)
    return plan.switch(name, port, facts, links.config(manager, port))
