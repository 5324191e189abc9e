# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A port that netplan configures: its network settings move to the bridge."""

from __future__ import annotations

import copy
import posixpath
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._host.model_bridge import (
    Document,
    Netplan,
    NetworkChange,
    Vlan,
)

# What describes the link, not its place in the network.
_OF_THE_LINK = (
    *("match", "set-name", "wakeonlan", "mtu", "renderer", "optional", "id"),
    *("link", "interfaces", "parameters"),  # of a VLAN or bond
)
_CLOUD_INIT = "/etc/cloud/cloud.cfg.d/99-corral-bridge.cfg"
_NOTHING = {"dhcp4": False, "dhcp6": False, "link-local": [], "accept-ra": False}
_GENERATE, _APPLY = ("netplan", "generate"), ("netplan", "apply")


def switch(port: str, bridge: str, mac: str, config: Netplan) -> NetworkChange:
    """The switch; its trial is a file of the same name in /run, which hides the one in /etc."""
    head = f"# {port} was moved to the bridge {bridge} by the role corral.virt.bridge.\n"
    moved = {
        path: Document(head, after)
        for path, after in _copies(config)
        if move_to_bridge(after.get("network") or {}, port, bridge, mac)
    }
    return _change(moved, bridge, port, port)


def switch_on_vlan(vlan: Vlan, bridge: str, mac: str, config: Netplan) -> NetworkChange:
    """The switch, in the file of the VLAN's parent."""
    head = f"# The VLAN {vlan.id} of {vlan.parent} was added for {bridge} by the role corral.virt.bridge.\n"
    added = {
        path: Document(head, after)
        for path, after in _copies(config)
        if _add_vlan(after.get("network") or {}, vlan, bridge, mac)
    }
    return _change(added, bridge, vlan.name, vlan.parent, holder=vlan.holder)


def _copies(config: Netplan) -> list[tuple[str, dict[str, t.Any]]]:
    return [(path, copy.deepcopy(dict(document))) for path, document in config.documents.items()]


def _change(
    changed: t.Mapping[str, Document], bridge: str, port: str, configured: str, *, holder: str = ""
) -> NetworkChange:
    if len(changed) != 1:
        raise Refused(
            f"cannot create bridge {bridge}: {len(changed)} netplan files configure {configured}; configure it "
            "in exactly one"
        )
    path = next(iter(changed))
    lasting: dict[str, str | Document] = {**changed, **cloud_init_off(path)}
    return NetworkChange(
        bridge=bridge,
        port=port,
        manager="netplan",
        trial={f"/run/netplan/{posixpath.basename(path)}": changed[path]},
        lasting=lasting,
        up=(_GENERATE, _APPLY),
        undo=(
            _GENERATE,
            ("ip", "link", "delete", bridge),
            *((("ip", "link", "delete", port),) if holder else ()),
            _APPLY,
        ),
        reload=(_GENERATE,),
        holder=holder,
    )


def cloud_init_off(path: str) -> dict[str, str]:
    """The file that makes cloud-init leave the network alone, if it wrote that file."""
    text = f"# {path} is no longer cloud-init's.\nnetwork: {{config: disabled}}\n"
    return {_CLOUD_INIT: text} if "cloud-init" in path else {}


def move_to_bridge(network: dict[str, t.Any], port: str, bridge: str, mac: str) -> bool:
    """Move the port's settings to the bridge, in place; True if the port was found."""
    for kind in ("ethernets", "bonds", "vlans"):
        for key, link in (network.get(kind) or {}).items():
            if not _is_port(key, link, port, mac):
                continue
            moved = {word: link.pop(word) for word in list(link) if word not in _OF_THE_LINK}
            link.update({"dhcp4": False, "dhcp6": False, "link-local": []})
            parameters = {"stp": False, "forward-delay": 0}
            own = {"interfaces": [key], "macaddress": mac, "parameters": parameters}
            network["bridges"] = {**(network.get("bridges") or {}), bridge: {**moved, **own}}
            return True
    return False


def _add_vlan(network: dict[str, t.Any], vlan: Vlan, bridge: str, mac: str) -> bool:
    """Add a VLAN of the parent, and a bridge on it, in place; True if the parent was found."""
    for kind in ("ethernets", "bonds", "vlans"):
        for key, link in (network.get(kind) or {}).items():
            if _is_port(key, link, vlan.parent, mac):
                own = {"id": vlan.id, "link": key, **_NOTHING}
                network["vlans"] = {**(network.get("vlans") or {}), vlan.name: own}
                parameters = {"stp": False, "forward-delay": 0}
                of_bridge = {"interfaces": [vlan.name], "parameters": parameters, **_NOTHING}
                network["bridges"] = {**(network.get("bridges") or {}), bridge: of_bridge}
                return True
    return False


def _is_port(key: str, link: t.Mapping[str, t.Any], port: str, mac: str) -> bool:
    match = link.get("match") or {}
    by_name = port in (key, link.get("set-name"), match.get("name"))
    return by_name or str(match.get("macaddress")).lower() == mac
