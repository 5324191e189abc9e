# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The rows of a network interface. Identity: our alias `ua-<name>`, else the MAC address."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._model.domain import Interface
from ansible_collections.corral.virt.plugins.module_utils._xml import row
from ansible_collections.corral.virt.plugins.module_utils._xml.row import INT, Row
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element

__all__ = ["INTERFACE", "find", "read_all"]

INTERFACE: row.Table = {
    "type": Row("./@type"),
    "mac": Row("mac/@address", same=lambda found, wanted: (found or "").lower() == wanted),
    "bridge": Row("source/@bridge"),
    "network": Row("source/@network"),
    "portgroup": Row("source/@portgroup"),
    "model": Row("model/@type"),
    "mtu": Row("mtu/@size", INT),
    "vlan": Row("vlan/tag/@id", INT),
    "link": Row("link/@state"),
    "boot_order": Row("boot/@order", INT),
}


def find(devices: Element, item: Interface) -> Element | None:
    """The interface of that name, or of that MAC where nobody named it."""
    by_mac = None
    for device in devices.findall("interface"):
        alias = device.find("alias")
        if alias is not None and alias.get("name") == f"ua-{item.name}":
            return device
        mac = device.find("mac")
        if item.mac and mac is not None and (mac.get("address") or "").lower() == item.mac:
            by_mac = device
    return by_mac


def read_all(root: Element) -> list[dict[str, t.Any]]:
    """Every interface with its fields; `name` where we gave one."""
    found = []
    for device in root.findall("devices/interface"):
        values = row.read(device, INTERFACE)
        alias = device.find("alias")
        if alias is not None and (alias.get("name") or "").startswith("ua-"):
            values["name"] = alias.get("name")[len("ua-") :]
        found.append(values)
    return found
