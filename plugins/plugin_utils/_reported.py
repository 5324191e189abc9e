# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts and guests for placement and balance, from what `virt_host_info` reported of them."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._plan import placement

__all__ = ["OPTIONS", "guest", "host", "policy", "unsettled", "usable"]

Info = t.Mapping[str, t.Any]

# Kept in step with plugins/doc_fragments/controller.py.
OPTIONS: dict[str, t.Any] = {
    "hosts": {"type": "dict", "required": True},
    "cpu_overcommit": {"type": "float", "default": 4.0},
    "memory_overcommit": {"type": "float", "default": 1.0},
    "all_defined": {"type": "bool", "default": False},
}


def policy(options: t.Mapping[str, t.Any], *others: str) -> placement.Policy:
    """How much may be promised; raises BadInput when that or another of these options is not above zero."""
    given = {name: options[name] for name in (*others, "cpu_overcommit", "memory_overcommit")}
    low = [name for name, value in given.items() if value is not None and value <= 0]
    if low:
        raise BadInput(f"{', '.join(low)}: must be above zero")
    return placement.Policy(options["cpu_overcommit"], options["memory_overcommit"])


def usable(results: t.Mapping[str, t.Any]) -> dict[str, Info]:
    """What was reported, by host; hosts that were not reached are left out."""
    reported = {name: found.get("host") for name, found in sorted(results.items()) if isinstance(found, dict)}
    return {name: info for name, info in reported.items() if isinstance(info, dict)}


def unsettled(infos: t.Mapping[str, Info]) -> list[dict[str, t.Any]]:
    """Guests with the record of a migration, on whichever host: where they came from, and where they are or were to
    go.
    """
    names = {info["uuid"]: name for name, info in infos.items() if info.get("uuid")}
    found: dict[str, dict[str, t.Any]] = {}
    for name, info in infos.items():
        for its in info["guests"]:
            source = names.get(its.get("moving_from") or "")
            dest = its.get("moving") if name == source else name
            if its.get("moving") and source and dest in infos:
                described = {"name": its["name"], "source": source, "dest": dest, "state": its["state"]}
                found.setdefault(
                    its["uuid"],
                    {**described, "why": f"its migration from {source} to {dest} is in progress or was interrupted"},
                )
    return sorted(found.values(), key=lambda move: (move["source"], move["name"]))


def host(
    name: str, info: Info, *, started: t.Mapping[str, placement.Guest] | None = None, all_defined: bool = False
) -> placement.Host:
    """A hypervisor, and what is promised there: to guests that run, that start with it, or that are `started` now."""
    vcpus, memory_mib = info["vcpus_used"], info["memory_used_mib"]
    for found in info["guests"]:
        wanted, active = (started or {}).get(found["name"]), found["state"] in placement.ACTIVE
        if active or wanted or found.get("autostart") or all_defined:
            own = (found["vcpus"], found["memory_mib"])
            most = (max(own[0], wanted.vcpus), max(own[1], wanted.memory_mib)) if wanted else own
            counted = own if active else (0, 0)  # by the host itself
            vcpus, memory_mib = vcpus + most[0] - counted[0], memory_mib + most[1] - counted[1]
    return placement.Host(
        name=name,
        cpus=info["cpus"],
        memory_mib=info["memory_mib"] - info["memory_reserved_mib"],
        vcpus_used=vcpus,
        memory_used_mib=memory_mib,
        guests={found["name"]: _copy(found) for found in info["guests"]},
        apart=frozenset(group for found in info["guests"] for group in _groups(found)),
        bridges=None if info["bridges"] is None else frozenset(info["bridges"]),
        pools=frozenset(pool["name"] for pool in info["pools"] if pool["active"]),
        maintenance=(info.get("maintenance") or {}).get("reason"),
    )


def guest(found: Info) -> placement.Guest:
    """A guest that exists."""
    return placement.Guest(
        name=found["name"],
        uuid=found["uuid"],
        vcpus=found["vcpus"],
        memory_mib=found["memory_mib"],
        apart=next(iter(_groups(found)), None),
        bridges=frozenset(found["bridges"]),
        pools=frozenset(found["pools"]),
    )


def _copy(found: Info) -> placement.Copy:
    return placement.Copy(found["state"], found["uuid"], found.get("moving"), found.get("moving_from"))


def _groups(found: Info) -> list[str]:
    return [tag[len("apart-") :] for tag in found["tags"] if tag.startswith("apart-")]
