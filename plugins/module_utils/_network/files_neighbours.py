# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host kernel's addresses, routers and neighbours."""

from __future__ import annotations

import ipaddress
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain.model_address import (
    HostLinks,
    HostSubnet,
    Interface,
    host_address,
)
from ansible_collections.corral.virt.plugins.module_utils._system.iproute import ip

_LIVE = {"REACHABLE", "PERMANENT"}
_DEAD = {"FAILED", "INCOMPLETE", "NOARP"}


def links() -> HostLinks:
    """The current links of this host."""
    devices = ip("addr", "show")
    routes = ip("route", "show", "default") + ip("-6", "route", "show", "default")
    entries = [entry for entry in ip("neigh", "show") if _lladdr(entry) and not _DEAD & {*entry.get("state", ())}]
    known = {(str(entry["dev"]), str(host_address(entry["dst"]))): entry for entry in entries}
    return HostLinks(
        addresses={str(device["ifname"]): tuple(_interfaces(device)) for device in devices},
        macs={str(device["ifname"]): str(device["address"]).lower() for device in devices if device.get("address")},
        routers=frozenset(str(route["gateway"]) for route in routes if route.get("gateway")),
        neighbours={place: _lladdr(entry) for place, entry in known.items()},
        live=frozenset(place for place, entry in known.items() if _LIVE & {*entry.get("state", ())}),
    )


def subnets() -> list[HostSubnet]:
    """Subnets of this host's addresses and routes, without link-local addresses and default routes."""
    found = [
        HostSubnet(str(device["ifname"]), str(one.network))
        for device in ip("addr", "show")
        for one in _interfaces(device)
        if not one.is_link_local
    ]
    for route in ip("route", "show") + ip("-6", "route", "show"):
        if route.get("protocol") != "kernel" and route["dst"] != "default":
            found.append(HostSubnet(str(route.get("dev") or ""), str(route["dst"]), is_connected=False))
    return found


def _interfaces(device: t.Mapping[str, t.Any]) -> t.Iterator[Interface]:
    for one in device.get("addr_info") or ():
        if one.get("local"):
            yield ipaddress.ip_interface(f"{one['local']}/{one['prefixlen']}")


def _lladdr(entry: t.Mapping[str, t.Any]) -> str:
    return str(entry.get("lladdr") or "").lower()
