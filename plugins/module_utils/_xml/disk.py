# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The rows of a disk. Identity: our alias `ua-<name>`, else the target (`vda`) for disks others made."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._changes import Change
from ansible_collections.corral.virt.plugins.module_utils._model.domain import Disk
from ansible_collections.corral.virt.plugins.module_utils._xml import row
from ansible_collections.corral.virt.plugins.module_utils._xml.row import INT, Flag, Row
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, child, make, parse, text

__all__ = ["DISK", "by_name", "find", "graft", "name_of", "read_all"]

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
_PREFIX = {"virtio": "vd", "scsi": "sd", "sata": "sd", "usb": "sd", "ide": "hd", "fdc": "fd"}


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


def graft(devices: Element, wanted: t.Sequence[Disk], added: dict[str, str], removed: dict[str, str]) -> list[Change]:
    """Edit, add and (only when said) remove disks; whole devices go to `added` / `removed` by `disks[name]`."""
    changes: list[Change] = []
    for item in wanted:
        where = f"disks[{item.name}]"
        device = find(devices, item.name)
        if item.state == "absent":
            if device is not None:
                changes.append(Change(where, row.read(device, DISK).get("source", "present"), None))
                removed[where] = text(device)
                devices.remove(device)
        elif device is None:
            device = _new(devices, item)
            row.graft(device, DISK, _fields(item))
            added[where] = text(device)
            changes.append(Change(where, None, item.source or "present"))
        else:
            changes += row.graft(device, DISK, _fields(item), where + ".")
    return changes


def _fields(item: Disk) -> dict[str, t.Any]:
    return {field: value for field, value in dataclasses.asdict(item).items() if field in DISK and value is not None}


def _new(devices: Element, item: Disk) -> Element:
    """A disk element with what libvirt needs and the user need not say."""
    bus = item.bus or ("sata" if item.device == "cdrom" else "virtio")
    device = make(devices, "disk", type="file", device=item.device or "disk")
    make(device, "driver", name="qemu", type=item.format or ("raw" if item.device == "cdrom" else "qcow2"))
    make(device, "target", dev=item.target or _next_target(devices, bus), bus=bus)
    make(device, "alias", name=f"ua-{item.name}")
    if item.device == "cdrom":
        child(device, "readonly")
    return device


def _next_target(devices: Element, bus: str) -> str:
    """`vda`, `vdb`, … `vdz`, `vdaa`: the first that no disk has."""
    taken = {target.get("dev") for target in devices.findall("disk/target")}
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = [*letters] + [a + b for a in letters for b in letters]
    return next(_PREFIX[bus] + name for name in names if _PREFIX[bus] + name not in taken)
