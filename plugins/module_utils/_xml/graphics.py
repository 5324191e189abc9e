# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The rows of the remote display."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._changes import Change
from ansible_collections.corral.virt.plugins.module_utils._xml import row
from ansible_collections.corral.virt.plugins.module_utils._xml.row import INT, YESNO, Row
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, child, make

__all__ = ["GRAPHICS", "graft", "read_all"]

GRAPHICS: row.Table = {
    "type": Row("./@type"),
    "autoport": Row("./@autoport", YESNO),
    "port": Row("./@port", INT),
    "listen": Row("listen/@address"),
    "password": Row("./@passwd", secret=True),
}


def read_all(root: Element) -> list[dict[str, t.Any]]:
    """Every display; the password is left out."""
    found = [row.read(device, GRAPHICS) for device in root.findall("devices/graphics")]
    return [{field: value for field, value in values.items() if field != "password"} for values in found]


def graft(devices: Element, wanted: t.Mapping[str, t.Any]) -> list[Change]:
    """Edit the display of that type, else the first; make it (on loopback) where there is none, or take all away for type `none`."""
    found_first = devices.find("graphics")
    device = next((found for found in devices.findall("graphics") if found.get("type") == wanted.get("type")), found_first)
    if wanted.get("type") == "none":
        gone = devices.findall("graphics")
        for found in gone:
            devices.remove(found)
        return [Change("graphics", ", ".join(found.get("type") for found in gone), None)] if gone else []
    if device is None:
        device = make(devices, "graphics", type=wanted.get("type") or "vnc", autoport="yes")
        child(device, "listen").set("type", "address")
        row.graft(device, GRAPHICS, {"listen": "127.0.0.1", **wanted})
        return [Change("graphics", None, device.get("type"))]
    changes = row.graft(device, GRAPHICS, wanted, "graphics.")
    if any(change.where == "graphics.listen" for change in changes):
        # libvirt prints the address twice and refuses a definition in which the two differ.
        device.attrib.pop("listen", None)
        child(device, "listen").set("type", "address")
    return changes
