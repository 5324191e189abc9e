# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of `virt_firewall`, and how it converges."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import changes as _changes
from ansible_collections.corral.virt.plugins.module_utils._core.defaults import LIBVIRT_TLS, MIGRATIONS
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._host import files_firewall, plan_firewall
from ansible_collections.corral.virt.plugins.module_utils._host.plan_firewall_steps import (
    AddFirewalldRule,
    AddUfwRule,
    ChangeIptables,
    ChangeNftables,
    DeleteUfwRule,
    MoveToZone,
    ReloadFirewalld,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import HostStep, WriteFile

DEFAULT_PORTS = [f"{LIBVIRT_TLS}/tcp", f"{MIGRATIONS}/tcp"]
OPTIONS: dict[str, t.Any] = {
    "ports": {"type": "list", "elements": "str", "default": DEFAULT_PORTS},
    "sources": {"type": "list", "elements": "str", "required": True},
    "source_names": {"type": "list", "elements": "str", "default": []},
    "bridges": {"type": "list", "elements": "str", "default": []},
    "purge": {"type": "bool", "default": True},
    "controller": {"type": "bool", "default": False},  # the action adds it to the sources
}
_DOERS: dict[type[HostStep], t.Callable[[t.Any], None]] = {
    WriteFile: lambda step: files_firewall.write(step.path, step.content, step.checked_by, step.checked_within),
    ChangeNftables: lambda step: files_firewall.nftables(step.commands),
    AddFirewalldRule: lambda step: files_firewall.firewalld(step.zone, step.kind, step.rule, permanent=step.permanent),
    AddUfwRule: lambda step: files_firewall.ufw(step.rule),
    DeleteUfwRule: lambda step: files_firewall.delete_ufw(step.rule),
    ReloadFirewalld: lambda _step: files_firewall.reload_firewalld(),
    MoveToZone: lambda step: files_firewall.move_to_zone(step.zone, step.device),
    ChangeIptables: lambda step: files_firewall.iptables(
        step.tool, step.chain, step.at, delete=step.delete, insert=step.insert
    ),
}


def converge(params: t.Mapping[str, t.Any], gate: Gate) -> dict[str, t.Any]:
    """Read facts, plan, run the steps, and return the result."""
    resolved = {name: files_firewall.addresses(name) for name in params["source_names"]}
    wanted = plan_firewall.spec(
        params["ports"], params["sources"], resolved, bridges=params.get("bridges") or [], purge=params["purge"]
    )
    manager = plan_firewall.manager(files_firewall.services())
    steps, changes = plan_firewall.decide(wanted, files_firewall.read(manager, wanted.bridges) if manager else None)
    gate.run(steps, lambda step: _DOERS[type(step)](step))
    return {
        "changed": bool(steps),
        "diff": _changes.diff(changes),
        "steps": [str(step) for step in steps],
        "manager": manager or "none",
        "unknown": plan_firewall.unknown(resolved),
    }
