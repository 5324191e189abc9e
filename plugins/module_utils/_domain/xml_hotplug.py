# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the facts that decide if a running guest can get a device."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain.fields_remote import has_medium
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import (
    EXPRESS,
    PCI,
    Buses,
    NetworkFilter,
    Plug,
    Slot,
)
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, parse

# Read a network filter.


def read(xml: str) -> tuple[str, NetworkFilter]:
    """The name of a network filter, and its protocols and references."""
    root = parse(xml)
    protocols = frozenset(part.tag for part in root.iterfind("rule/*") if isinstance(part.tag, str))
    return root.get("name"), NetworkFilter(protocols, tuple(one.get("filter") for one in root.findall("filterref")))


# Ports of USB controllers. Source: libvirt, domain_addr.c
_USB_PORTS = {
    **dict.fromkeys(("piix3-uhci", "piix4-uhci", "vt82c686b-uhci"), 2),
    **dict.fromkeys(("ehci", "ich9-ehci1"), 6),
    **dict.fromkeys(("ich9-uhci1", "ich9-uhci2", "ich9-uhci3", "none"), 0),  # the first three share those of ehci1
    "pci-ohci": 3,
    **dict.fromkeys(("nec-xhci", "qemu-xhci"), 4),  # where `ports` says nothing
}
_HUB_PORTS = 8

# Controllers that take devices while the guest runs: the kind of their slots, the first and the last.
_SLOTS = {
    "pci-root": (PCI, 1, 31),
    "pci-bridge": (PCI, 1, 31),
    "pci-expander-bus": (PCI, 0, 31),
    "pcie-to-pci-bridge": (PCI, 1, 31),
    "pcie-root-port": (EXPRESS, 0, 0),
    "pcie-switch-downstream-port": (EXPRESS, 0, 0),
}
_ISA_BRIDGE = (0, 1)  # of a machine pc; it has no element


def buses(xml: str) -> Buses | None:
    """The PCI and USB buses of a running guest; None if its devices are not on PCI."""
    root = parse(xml)
    controllers = root.findall("devices/controller[@type='pci']")
    roots = {one.get("model") for one in controllers if one.get("model") in ("pci-root", "pcie-root")}
    if not roots or any(one.get("type") in ("ccw", "virtio-mmio") for one in root.iterfind("devices/*/address")):
        return None
    used = collections.Counter(slot for slot in map(_slot, root.iterfind("devices/*")) if slot)
    machine = root.find("os/type").get("machine") or ""
    if machine == "pc" or machine.startswith("pc-i440fx"):
        used[_ISA_BRIDGE] += 1
    return Buses(
        slots={slot: kind for one in controllers for slot, kind in _slots(one)},
        used=used,
        express="pcie-root" in roots,
        scsi=root.find("devices/controller[@type='scsi']") is not None,
        usb=_free_usb(root),
        no_usb=not any(one.get("model") != "none" for one in root.iterfind("devices/controller[@type='usb']")),
    )


def _free_usb(root: Element) -> int | None:
    """The number of free USB ports, None if unknown; libvirt adds no hub to a running guest."""
    controllers = root.findall("devices/controller[@type='usb']")
    ports = [one.get("ports") or _USB_PORTS.get(one.get("model")) for one in controllers]
    hubs = len(root.findall("devices/hub[@type='usb']"))
    used = len(root.findall("devices/*/address[@type='usb']"))
    known = [int(one) for one in ports if one is not None]
    return max(0, sum(known) + _HUB_PORTS * hubs - used) if len(known) == len(ports) else None


def _slots(controller: Element) -> t.Iterator[tuple[Slot, str]]:
    target = controller.find("target")
    kind, first, last = _SLOTS.get(controller.get("model") or "", ("", 0, -1))
    if target is None or target.get("hotplug") != "off":
        for slot in range(first, last + 1):
            yield (int(controller.get("index") or 0), slot), kind


def _slot(device: Element) -> Slot | None:
    address = device.find("address")
    if address is None or address.get("type") != "pci" or address.get("slot") is None:
        return None
    return int(address.get("bus") or "0", 16), int(address.get("slot"), 16)


def plug(xml: str) -> Plug:
    """The facts about a device that matter for plugging it."""
    device = parse(xml)
    is_disk, model = device.tag == "disk", device.find("model")
    kind = (device.find("target").get("bus") if is_disk else device.get("type")) or ""
    named = device.get("model") if model is None else model.get("type")
    return Plug(
        what=str(device.tag),
        kind=kind,
        model=named or "",
        drive=(device.get("device") or "disk") if is_disk else "",
        empty=is_disk and not has_medium(device),
        slot=_slot(device),
    )
