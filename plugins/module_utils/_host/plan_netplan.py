# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
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
)

__all__ = ["cloud_init_off", "move_to_bridge", "switch"]

# What describes the link, not its place in the network.
_OF_THE_LINK = (
    *("match", "set-name", "wakeonlan", "mtu", "renderer", "optional", "id"),
    *("link", "interfaces", "parameters"),  # of a VLAN or bond
)
_CLOUD_INIT = "/etc/cloud/cloud.cfg.d/99-corral-bridge.cfg"
_GENERATE, _APPLY = ("netplan", "generate"), ("netplan", "apply")


def switch(port: str, bridge: str, mac: str, config: Netplan) -> NetworkChange:
    """The switch; its trial is a file of the same name in /run, which hides the one in /etc."""
    changed: dict[str, Document] = {}
    for path, document in config.documents.items():
        after = copy.deepcopy(dict(document))
        if move_to_bridge(after.get("network") or {}, port, bridge, mac):
            head = f"# {port} was moved to the bridge {bridge} by the role corral.virt.bridge.\n"
            changed[path] = Document(head, after)
    if len(changed) != 1:
        raise Refused(
            f"cannot create bridge {bridge}: {len(changed)} netplan files configure {port}; configure it in exactly one"
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
        undo=(_GENERATE, ("ip", "link", "delete", bridge), _APPLY),
        reload=(_GENERATE,),
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


def _is_port(key: str, link: t.Mapping[str, t.Any], port: str, mac: str) -> bool:
    match = link.get("match") or {}
    by_name = port in (key, link.get("set-name"), match.get("name"))
    return by_name or str(match.get("macaddress")).lower() == mac
