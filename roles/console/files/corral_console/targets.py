# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where guests can be moved, and why not: placement's own rules, applied to the live state.

It decides nothing: the playbook places and checks again with what the hosts say then.
"""

from __future__ import annotations

import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.defaults import RESERVED_MIB
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import APART, TOGETHER, after_prefix
from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import (
    ACTIVE,
    Guest,
    GuestCopy,
    Host,
    Policy,
)
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_host_load import Load, Neighbours
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_rules import against

from .store import Value

__all__ = ["Needs", "guest_needs", "targets"]


class Needs(t.NamedTuple):
    """A guest that is to be moved, and the host where it is."""

    host: str
    guest: Guest


def guest_needs(card: Value, details: t.Mapping[str, t.Any], pools: t.Iterable[t.Mapping[str, t.Any]]) -> Needs:
    """Of its live values and its description; `pools` are those of its host."""
    directories = {str(disk["source"]).rpartition("/")[0] for disk in details["disks"] if disk.get("source")}
    volumes = {disk["volume"].partition("/")[0] for disk in details["disks"] if disk.get("volume")}
    guest = Guest(
        name=card["name"],
        uuid=card["uuid"],
        vcpus=card["vcpus"],
        memory_mib=card["maximum_mib"],
        apart=after_prefix(card["tags"], APART),
        together=after_prefix(card["tags"], TOGETHER),
        bridges=frozenset(nic["bridge"] for nic in details["interfaces"] if nic.get("bridge")),
        pools=frozenset(pool["name"] for pool in pools if pool["path"] in directories) | volumes,
    )
    return Needs(card["host"], guest)


def targets(
    moved: t.Sequence[Needs], hosts: t.Mapping[str, Value], guests: t.Iterable[Value], policy: Policy | None = None
) -> list[dict[str, str | None]]:
    """For each host the reason why it cannot take all of the guests together, None where it can."""
    there: dict[str, list[Value]] = {name: [] for name in hosts}
    for guest in guests:
        there.setdefault(guest["host"], []).append(guest)
    moving = {guest.uuid for _source, guest in moved}
    others = [
        _host(name, hosts[name], [guest for guest in there[name] if guest["uuid"] not in moving])
        for name in hosts
        if hosts[name]["state"] == "connected"
    ]
    found = []
    for name in sorted(hosts):
        host = hosts[name]
        refusal = _unreached(host)
        if not refusal:
            load = Load(_host(name, host, there[name]), policy or Policy(), neighbours=Neighbours(others))
            refusal = _refusal(load, moved)
        found.append({"host": name, "refusal": refusal or _strange(host, hosts, moved)})
    return found


def _strange(host: Value, hosts: t.Mapping[str, Value], moved: t.Sequence[Needs]) -> str | None:
    """Whether a guest comes from processors of another kind."""
    kinds = {hosts[source].get("arch") for source, _guest in moved if source in hosts}
    return f"has processors of another kind: {host['arch']}" if kinds - {host.get("arch")} else None


def _unreached(host: Value) -> str | None:
    if host["state"] == "connected":
        return None
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(host["since"]))
    return f"cannot be reached, since {since}"


def _refusal(load: Load, moved: t.Sequence[Needs]) -> str | None:
    name = load.host.name
    for source, guest in moved:
        reason = f"{guest.name} is there" if source == name else against(load, guest)
        if reason:
            return reason if len(moved) == 1 or source == name else f"{guest.name}: {reason}"
        load.put(guest)
    return None


def _host(name: str, host: Value, there: t.Sequence[Value]) -> Host:
    promised = [guest for guest in there if guest["state"] in ACTIVE or guest["autostart"]]
    return Host(
        name=name,
        cpus=host["cpus"],
        memory_mib=host["memory_mib"] - RESERVED_MIB,
        vcpus_used=sum(guest["vcpus"] for guest in promised),
        memory_used_mib=sum(guest["maximum_mib"] for guest in promised),
        guests={guest["name"]: GuestCopy(guest["state"], guest["uuid"]) for guest in there},
        apart=frozenset().union(*(after_prefix(guest["tags"], APART) for guest in there)),
        together=frozenset().union(*(after_prefix(guest["tags"], TOGETHER) for guest in there)),
        pools=frozenset(pool["name"] for pool in host["pools"] if pool["active"]),
        maintenance=host.get("maintenance"),
    )
