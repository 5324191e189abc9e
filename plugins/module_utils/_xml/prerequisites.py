# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What must be on the host before a guest can start. With the standard library alone, as little travels for that."""

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

from ansible_collections.corral.virt.plugins.module_utils._model.prerequisites import Prerequisites, Qcow2
from ansible_collections.corral.virt.plugins.module_utils._xml import host_devices

__all__ = ["prerequisites"]

Element = ElementTree.Element

_BOOTED = ("os/kernel", "os/initrd", "os/dtb", "os/loader")
_PLUGGED = ("bridge", "direct")  # into a network device of the host
_FILTERED = ("bridge", "network", "ethernet")  # libvirt ignores or refuses filters of others
_FILTERS = "devices/interface[@type='{}']/filterref"


def prerequisites(xml: str, *, restored: bool = False) -> Prerequisites:
    """Of a guest, or of one device of it. Not the file of an NVDIMM: QEMU makes one that is missing.

    `restored`: it goes on from a saved state, with more devices that may be missing.
    """
    root = _domain(xml)
    _drop(root, ("optional", "requisite") if restored else ("optional",))
    layers = [layer for disk in root.iter("disk") for layer in _layers(disk)]
    sources = [one for layer in layers for one in layer.findall("source")]
    nics = [(nic, _kind(nic), one) for nic in root.iter("interface") for one in nic.findall("source")]
    files = [*(root.findtext(place) for place in _BOOTED), *(one.get("file") for one in root.iter("rom"))]
    files += [one.get("dir") for one in root.iterfind("devices/filesystem/source")]
    files += [one.get("file") or one.get("dev") for one in (*sources, *root.iterfind(".//dataStore/source"))]
    return Prerequisites(
        networks=_named(one.get("network") for _nic, kind, one in nics if kind == "network"),
        plugged=_named(one.get("network") for nic, kind, one in nics if kind == "network" and not _is_switched(nic)),
        filters=_named(one.get("filter") for kind in _FILTERED for one in root.iterfind(_FILTERS.format(kind))),
        links=_named(one.get("bridge") or one.get("dev") for _nic, kind, one in nics if kind in _PLUGGED),
        lower=_named(one.get("dev") for _nic, kind, one in nics if kind == "direct"),
        devices=_devices(root),
        files=_named(files),
        volumes=frozenset((one.get("pool", ""), one.get("volume", "")) for one in sources if one.get("pool")),
        images=frozenset(image for layer in layers for image in _images(layer)),
        templates={one.get("template", ""): _variables(one) for one in root.iterfind("os/nvram[@template]")},
        restored=restored,
    )


def _domain(xml: str) -> Element:
    """The guest, or a guest with nothing but that device."""
    root = ElementTree.fromstring(xml)  # noqa: S314 (libvirt wrote it)
    if root.tag == "domain":
        return root
    domain = Element("domain")
    ElementTree.SubElement(domain, "devices").append(root)
    return domain


def _drop(root: Element, policies: t.Collection[str]) -> None:
    """Remove the devices without which the guest starts as well."""
    for devices in root.iterfind("devices"):
        for device in list(devices):
            source = device.find("source")
            if source is not None and source.get("startupPolicy") in policies:
                devices.remove(device)


def _named(names: t.Iterable[str | None]) -> frozenset[str]:
    return frozenset(filter(None, names))


def _layers(disk: Element) -> t.Iterator[Element]:
    """A disk, and what its definition says that it stands on."""
    layer: Element | None = disk
    while layer is not None:
        yield layer
        layer = layer.find("backingStore")


def _images(layer: Element) -> t.Iterator[Qcow2]:
    """Where a disk, or what it stands on, is a qcow2; only then libvirt reads what its first bytes name."""
    described = layer.find("driver[@type='qcow2']") is not None or layer.find("format[@type='qcow2']") is not None
    for source in layer.findall("source") if described else ():
        volume = (source.get("pool", ""), source.get("volume", ""))
        place = source.get("file") or (volume if all(volume) else None)
        if place and source.find("dataStore") is None:
            yield Qcow2(place, layer.find("backingStore") is not None)


def _devices(root: Element) -> frozenset[str]:
    """Nothing where a number is none, or is written as only libvirt reads it."""
    try:
        return frozenset(host_devices.devices(root))
    except ValueError:
        return frozenset()


def _kind(nic: Element) -> str | None:
    """The type of an interface. The kernel does not know the bridges of Open vSwitch."""
    kind = nic.get("type")
    return None if _is_switched(nic) and kind == "bridge" else kind


def _is_switched(nic: Element) -> bool:
    """Whether Open vSwitch connects it."""
    return nic.find("virtualport[@type='openvswitch']") is not None


def _variables(nvram: Element) -> str:
    """Where a guest's UEFI variables are; libvirt makes them from a template where they are not."""
    source = nvram.find("source")
    return ((nvram.text or "").strip() if source is None else source.get("file")) or ""
