# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The rows of a disk. Identity: our alias `ua-<name>`, else the target (`vda`) for disks others made."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._xml import row
from ansible_collections.corral.virt.plugins.module_utils._xml.row import INT, Flag, Row
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, parse

__all__ = ["DISK", "by_name", "find", "name_of", "read_all", "sources"]

DISK: row.Table = {
    "device": Row("./@device"),
    "format": Row("driver/@type"),
    "cache": Row("driver/@cache"),
    "discard": Row("driver/@discard"),
    "io": Row("driver/@io"),
    "source": Row("source/@file"),
    "target": Row("target/@dev"),
    "bus": Row("target/@bus"),
    "serial": Row("serial"),
    "readonly": Flag("readonly"),
    "shareable": Flag("shareable"),
    "boot_order": Row("boot/@order", INT),
}


def name_of(device: Element) -> str:
    """The name we gave the device, or the target others know it by."""
    alias = device.find("alias")
    if alias is not None and (alias.get("name") or "").startswith("ua-"):
        return t.cast(str, alias.get("name"))[len("ua-") :]
    target = device.find("target")
    return "" if target is None else target.get("dev") or ""


def find(devices: Element, name: str) -> Element | None:
    """The disk of that name."""
    for device in devices.findall("disk"):
        target = device.find("target")
        if name_of(device) == name or (target is not None and target.get("dev") == name):
            return device
    return None


def read_all(root: Element) -> list[dict[str, t.Any]]:
    """Every disk with its name, fields, and where its bytes are (file, block device, volume or network)."""
    found = []
    for device in root.findall("devices/disk"):
        values = {"name": name_of(device), **row.read(device, DISK)}
        source = device.find("source")
        if source is not None:
            values["source"] = source.get("file") or source.get("dev") or source.get("name")
            values["pool"], values["volume"] = source.get("pool"), source.get("volume")
        found.append({field: value for field, value in values.items() if value is not None and value is not False})
    return found


def by_name(xml: str) -> dict[str, dict[str, t.Any]]:
    """The disks of a definition, by name and by target."""
    found = read_all(parse(xml))
    return {**{str(item.get("target")): item for item in found}, **{item["name"]: item for item in found}}


def sources(xml: str) -> list[str]:
    """Paths of all files and devices that the disks of a definition use."""
    return [item["source"] for item in read_all(parse(xml)) if item.get("source")]
