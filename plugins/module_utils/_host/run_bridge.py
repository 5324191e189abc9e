# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of `virt_bridge`, and how it converges."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import changes as _changes
from ansible_collections.corral.virt.plugins.module_utils._core.defaults import BRIDGE
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._host import files_bridge, files_links, plan_bridge
from ansible_collections.corral.virt.plugins.module_utils._host.model_bridge import (
    BridgeFacts,
    BridgeSpec,
    NetworkChange,
    Vlan,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_bridge import (
    ConfirmBridge,
    RequirePackages,
    SetBridgeOption,
    SetSysctl,
    SwitchToBridge,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import (
    HostStep,
    WriteFile,
)
from ansible_collections.corral.virt.plugins.module_utils._system import configuration

OPTIONS: dict[str, t.Any] = {
    "name": {"type": "str", "default": BRIDGE},
    "state": {"type": "str", "choices": ["present", "confirmed"], "default": "present"},
    "port": {"type": "str", "default": "auto"},
    "address": {"type": "str"},
    "timeout": {"type": "int", "default": 60},
    "filter_guests": {"type": "bool", "default": False},
    "vlan": {"type": "int"},
    "vlan_filtering": {"type": "bool", "default": False},
    "switch_off_stp": {"type": "bool", "default": False},
}
_DOERS: dict[type[HostStep], t.Callable[[t.Any], None]] = {
    RequirePackages: lambda step: files_bridge.require(step.packages),
    WriteFile: lambda step: configuration.write(step.path, step.content),
    SetBridgeOption: lambda step: files_bridge.switch_off(step.bridge, step.field),
    SetSysctl: lambda step: files_bridge.set_sysctl(step.keys, step.value),
    SwitchToBridge: lambda step: files_bridge.start(step.change, step.timeout_s),
    ConfirmBridge: lambda step: files_bridge.confirm(step.bridge),
}


def converge(params: t.Mapping[str, t.Any], gate: Gate) -> dict[str, t.Any]:
    """Read facts, plan, run the steps, and return the result."""
    wanted = plan_bridge.spec(params)
    change = None
    if params["state"] == "confirmed":
        steps, changes = plan_bridge.confirm(wanted.name, files_links.trial())
    else:
        facts = files_links.facts(plan_bridge.NF_CALLS)
        port = plan_bridge.port(wanted, facts)
        change = _change(port, facts, wanted) if port else None
        steps, changes = plan_bridge.decide(wanted, facts, change)
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


def _change(port: str | Vlan, facts: BridgeFacts, wanted: BridgeSpec) -> NetworkChange:
    configured = port.parent if isinstance(port, Vlan) else port
    manager = plan_bridge.manager(configured, files_links.owner(configured), facts, bridge=wanted.name)
    return plan_bridge.switch(wanted, port, facts, files_links.config(manager, configured))
