# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts and guests for placement and balance, from what `virt_host_info` reported of them."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._plan import placement

__all__ = ["OPTIONS", "guest", "host", "policy", "usable"]

Info = t.Mapping[str, t.Any]

# Kept in step with plugins/doc_fragments/controller.py.
OPTIONS: dict[str, t.Any] = {
    "hosts": {"type": "dict", "required": True},
    "cpu_overcommit": {"type": "float", "default": 4.0},
    "memory_overcommit": {"type": "float", "default": 1.0},
}


def policy(options: t.Mapping[str, t.Any], *others: str) -> placement.Policy:
    """How much may be promised; raises BadInput when that or another of these options is not above zero."""
    low = [name for name in (*others, "cpu_overcommit", "memory_overcommit") if options[name] <= 0]
    if low:
        raise BadInput(f"{', '.join(low)}: must be above zero")
    return placement.Policy(options["cpu_overcommit"], options["memory_overcommit"])


def usable(results: t.Mapping[str, t.Any]) -> dict[str, Info]:
    """What was reported, by host; hosts that were not reached are left out."""
    reported = {name: found.get("host") for name, found in sorted(results.items()) if isinstance(found, dict)}
    return {name: info for name, info in reported.items() if isinstance(info, dict)}


def host(name: str, info: Info) -> placement.Host:
    """A hypervisor."""
    return placement.Host(
        name=name,
        cpus=info["cpus"],
        memory_mib=info["memory_mib"] - info["memory_reserved_mib"],
        vcpus_used=info["vcpus_used"],
        memory_used_mib=info["memory_used_mib"],
        guests={found["name"]: found["state"] in placement.ACTIVE for found in info["guests"]},
        apart=frozenset(group for found in info["guests"] for group in _groups(found)),
        bridges=None if info["bridges"] is None else frozenset(info["bridges"]),
        pools=frozenset(pool["name"] for pool in info["pools"] if pool["active"]),
        maintenance=(info.get("maintenance") or {}).get("reason"),
    )


def guest(found: Info) -> placement.Guest:
    """A guest that exists."""
    return placement.Guest(
        name=found["name"],
        vcpus=found["vcpus"],
        memory_mib=found["memory_mib"],
        apart=next(iter(_groups(found)), None),
        bridges=frozenset(found["bridges"]),
        pools=frozenset(found["pools"]),
    )


def _groups(found: Info) -> list[str]:
    return [tag[len("apart-") :] for tag in found["tags"] if tag.startswith("apart-")]
