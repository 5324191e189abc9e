# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Disks and interfaces as lists: items are found by identity, edited in place, added, and removed only when said."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._changes import Change
from ansible_collections.corral.virt.plugins.module_utils._model.domain import Disk, Interface
from ansible_collections.corral.virt.plugins.module_utils._xml import disk, interface, row
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, child, make, text

__all__ = ["DISKS", "INTERFACES", "Kind", "graft"]


class Kind(t.NamedTuple):
    """What differs between disks and interfaces."""

    option: str
    table: row.Table
    find: t.Callable[[Element, t.Any], t.Any]
    make: t.Callable[[Element, t.Any], Element]  # a new element with what libvirt needs and the user need not say
    summary: t.Callable[[Element], str]
    prepare: t.Callable[[Element, t.Any], None] = lambda _device, _item: None  # before an edit in place
    keeps: t.Collection[str] = ()  # fields that an existing device keeps when `item.mac_derived`


def _spoken(item: t.Any, table: row.Table) -> dict[str, t.Any]:
    """The fields of an item that the user (or a default) spoke of."""
    return {field: value for field, value in dataclasses.asdict(item).items() if field in table and value is not None}


def graft(kind: Kind, devices: Element, wanted: t.Sequence[t.Any], added: dict[str, str], removed: dict[str, str]) -> list[Change]:
    """The changes, by `disks[name].field`; devices that come or go as a whole are put into `added` / `removed`, by `disks[name]`."""
    changes: list[Change] = []
    for item in wanted:
        where = f"{kind.option}[{item.name}]"
        device, fields = kind.find(devices, item), _spoken(item, kind.table)
        if item.state == "absent":
            if device is not None:
                changes.append(Change(where, kind.summary(device), None))
                removed[where] = text(device)
                devices.remove(device)
        elif device is None:
            device = kind.make(devices, item)
            row.graft(device, kind.table, fields)
            added[where] = text(device)
            changes.append(Change(where, None, kind.summary(device)))
        else:
            kind.prepare(device, item)
            kept = kind.keeps if getattr(item, "mac_derived", False) else ()
            changes += row.graft(device, kind.table, {k: v for k, v in fields.items() if k not in kept}, where + ".")
    return changes


_PREFIX = {"virtio": "vd", "scsi": "sd", "sata": "sd", "usb": "sd", "ide": "hd", "fdc": "fd"}


def _new_disk(devices: Element, item: Disk) -> Element:
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
    taken: set[str | None] = {target.get("dev") for target in devices.findall("disk/target")}
    letters = "abcdefghijklmnopqrstuvwxyz"
    names: list[str] = [*letters] + [a + b for a in letters for b in letters]
    return next(_PREFIX[bus] + name for name in names if _PREFIX[bus] + name not in taken)


def _leave_old_address(device: Element, item: Disk) -> None:
    """A place on one bus is none on another: libvirt then finds a new one."""
    address, target = device.find("address"), device.find("target")
    if address is not None and item.bus and item.bus != target.get("bus"):
        device.remove(address)


def _new_interface(devices: Element, item: Interface) -> Element:
    device = make(devices, "interface", type=item.type or "bridge")
    make(device, "alias", name=f"ua-{item.name}")
    make(device, "model", type="virtio")
    return device


def _disk_summary(device: Element) -> str:
    return str(disk.DISK["source"].read(device) or "present")


def _interface_summary(device: Element) -> str:
    values = row.read(device, interface.INTERFACE)
    return f"{values.get('type')} {values.get('bridge') or values.get('network') or ''}".strip()


def _leave_old_source(device: Element, item: Interface) -> None:
    """From a bridge to a network, or back: the old source's attributes would contradict the new type."""
    source = device.find("source")
    if source is not None and item.type and item.type != device.get("type"):
        source.attrib.clear()


DISKS = Kind("disks", disk.DISK, lambda devices, item: disk.find(devices, item.name), _new_disk, _disk_summary, _leave_old_address)
INTERFACES = Kind("interfaces", interface.INTERFACE, interface.find, _new_interface, _interface_summary, _leave_old_source, ("mac",))
