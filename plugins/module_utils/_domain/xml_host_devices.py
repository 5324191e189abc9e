# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices of a host that a guest can use exclusively, named the same way for guests and hosts."""

from __future__ import annotations

import re
import typing as t
from xml.etree import ElementTree

Element = ElementTree.Element

_PCI = re.compile(r"pci_([0-9a-f]{4})_([0-9a-f]{2})_([0-9a-f]{2})_([0-7])")
_MDEV = re.compile(r"mdev_([0-9a-f]{8})_([0-9a-f]{4})_([0-9a-f]{4})_([0-9a-f]{4})_([0-9a-f]{12})(?:_|$)")


def bound(root: Element) -> dict[str, t.Any]:
    """What binds a guest to hosts: architecture, machine type, host devices, and its platform features."""
    kind = root.find("os/type")
    return {
        "arch": None if kind is None else kind.get("arch"),
        "machine": None if kind is None else kind.get("machine"),
        "devices": devices(root),
        "platform": sorted(_platform(root)),
    }


def _platform(root: Element) -> t.Iterator[str]:
    """Platform features of a guest that a host may not offer: efi, secure_boot, tpm."""
    if root.find("os[@firmware='efi']") is not None:
        yield "efi"
        signed = ("os/loader[@secure='yes']", "os/firmware/feature[@name='secure-boot'][@enabled='yes']")
        if any(root.find(place) is not None for place in signed):
            yield "secure_boot"
    if root.find("devices/tpm/backend[@type='emulator']") is not None:
        yield "tpm"


def devices(root: Element) -> list[str]:
    """Host devices that a guest uses exclusively: `pci 0000:06:00.0`, `usb 0x1d6b:0x0002`, `mdev UUID`."""
    found: list[str] = []
    for device in root.iterfind("devices/hostdev/source"):
        found += _host_device(device)
    for parent in ("interface[@type='hostdev']/source", "disk[@type='nvme']/source"):
        found += [f"pci {_pci(address)}" for address in root.iterfind(f"devices/{parent}/address")]
    return sorted(found)


def devices_of(fragment: str) -> list[str]:
    """The host devices in a user's fragment of a definition; empty without one; raises ValueError if it is no XML."""
    try:
        return devices(ElementTree.fromstring(fragment)) if fragment else []  # noqa: S314 (the user's own)
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from error


def _host_device(source: Element) -> t.Iterator[str]:
    """The names of a device; a USB device has one by vendor and product, one by place, or both while it runs."""
    address = source.find("address")
    yield from _makers_numbers(source)
    if address is None:
        return
    if address.get("uuid"):
        yield f"mdev {address.get('uuid')}"
    elif address.get("device"):
        bus, device = (int(address.get(part) or "0", 0) for part in ("bus", "device"))
        yield f"usb {bus}.{device}"
    elif address.get("slot"):
        yield f"pci {_pci(address)}"


def _pci(address: Element) -> str:
    """The PCI address as lspci -D prints it."""
    domain, bus, slot, function = (int(address.get(part) or "0", 0) for part in ("domain", "bus", "slot", "function"))
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function}"


def _makers_numbers(device: Element) -> t.Iterator[str]:
    vendor, product = device.find("vendor"), device.find("product")
    if vendor is not None and product is not None:
        yield f"usb {vendor.get('id')}:{product.get('id')}"


def offered(listed: t.Iterable[tuple[str, str]] | None) -> list[str] | None:
    """Devices of a host that guests can have, named as `devices` names them; None if they are not listed."""
    return None if listed is None else sorted(word for name, xml in listed for word in _device(name, xml))


def pci_address(name: str) -> str | None:
    """`0000:06:00.0` for libvirt's `pci_0000_06_00_0`; None for a device that is not on a PCI bus."""
    pci = _PCI.fullmatch(name)
    return f"{pci[1]}:{pci[2]}:{pci[3]}.{pci[4]}" if pci else None


def _device(name: str, xml: str) -> t.Iterator[str]:
    if pci := pci_address(name):
        yield f"pci {pci}"
    elif mdev := _MDEV.match(name):
        yield f"mdev {'-'.join(mdev.groups())}"
    elif xml:
        for usb in ElementTree.fromstring(xml).iterfind("capability[@type='usb_device']"):  # noqa: S314 (libvirt's own)
            yield from _makers_numbers(usb)
            yield f"usb {usb.findtext('bus')}.{usb.findtext('device')}"
