# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a guest that no hypervisor has lacks to be created. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._placement import model_placement
from ansible_collections.corral.virt.plugins.plugin_utils._commands import guest_hosts
from ansible_collections.corral.virt.plugins.plugin_utils._placement.reported_hosts import Info

_EXAMPLES = {"vcpus": "2", "memory": "2GiB"}


def why(item: t.Mapping[str, t.Any], usable: t.Mapping[str, Info]) -> str:
    """Why a guest that no hypervisor has cannot be created; empty if it can."""
    if (item.get("state") or "present") not in guest_hosts.MAKING_STATES:
        return ""
    if item.get("clone_of"):
        return _of_original(item, having(str(item["clone_of"]), usable))
    numa = item.get("numa")
    cells = numa.get("cells") if isinstance(numa, dict) else None  # have the memory
    lacking = [option for option in ("vcpus", "memory") if not item.get(option) and not (option == "memory" and cells)]
    example = " ".join(f"{option}={_EXAMPLES[option]}" for option in lacking)
    return (
        f"no hypervisor has it, and creating it requires {' and '.join(lacking)}, for example {example}"
        if lacking
        else ""
    )


def _of_original(item: t.Mapping[str, t.Any], holders: t.Mapping[str, t.Mapping[str, t.Any]]) -> str:
    name = item["clone_of"]
    if not holders:
        return f"no hypervisor has {name} (clone_of)"
    where = " and ".join(holders)
    if len(holders) > 1:
        return f"{name} (clone_of) is on {where}; find out which of them is meant, and remove the other"
    if item.get("host") not in (None, *holders):
        return f"{name} (clone_of) is on {where}, and a copy is created there; omit host, and migrate the copy"
    if holders[where]["state"] in model_placement.ACTIVE:
        state = holders[where]["state"]
        return (
            f"{name} (clone_of) is {state}; shut it down first: ansible-playbook corral.virt.shutdown -e guest={name}"
        )
    return ""


def having(name: str, usable: t.Mapping[str, Info]) -> dict[str, t.Mapping[str, t.Any]]:
    """A guest by the hosts that have it."""
    return {host: found for host, info in usable.items() for found in info["guests"] if found["name"] == name}
