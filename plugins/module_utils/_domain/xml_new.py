# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The XML of a guest that does not exist yet: the minimum for libvirt, before options are written into it."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._xml.names import AGENT_CHANNEL
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, make, parse, text

# A q35 guest seats each device on a root port of its own: half for those it is made with, half for later.
_SPARE_ROOT_PORTS = 16


def domain(
    *,
    name: str,
    uuid: str,
    virt_type: str,
    arch: str,
    machine: str,
    without: t.Collection[str] = (),
    ports: bool = True,
) -> str:
    """A bare guest: ACPI, an agent channel, a serial console, entropy; no disks, no NICs, no display.

    Devices in `without` are left out, as others bring them, and so are PCI Express ports without `ports`.
    """
    root = parse("<domain/>")
    root.set("type", virt_type)
    make(root, "name").text = name
    make(root, "uuid").text = uuid
    make(root, "metadata")
    make(root, "memory", unit="KiB").text = "0"  # the user says how much
    make(root, "vcpu").text = "0"
    make(make(root, "os"), "type", arch=arch, machine=machine).text = "hvm"
    features = make(root, "features")
    make(features, "acpi")
    make(features, "apic")
    # A host's own model keeps migration to its equals possible; emulation knows no host model.
    make(root, "cpu", mode="maximum" if virt_type == "qemu" else "host-model")
    clock = make(root, "clock", offset="utc")
    make(clock, "timer", name="rtc", tickpolicy="catchup")
    make(clock, "timer", name="pit", tickpolicy="delay")
    make(clock, "timer", name="hpet", present="no")
    _devices(make(root, "devices"), without, _SPARE_ROOT_PORTS if "q35" in machine and ports else 0)
    return text(root)


def _devices(devices: Element, without: t.Collection[str], ports: int) -> None:
    if ports:
        make(devices, "controller", type="pci", model="pcie-root")
        for _port in range(ports):
            make(devices, "controller", type="pci", model="pcie-root-port")
    if "serial" not in without:
        make(make(devices, "serial", type="pty"), "target", port="0")
        make(make(devices, "console", type="pty"), "target", type="serial", port="0")
    if AGENT_CHANNEL not in without:
        make(make(devices, "channel", type="unix"), "target", type="virtio", name=AGENT_CHANNEL)
    if "rng" not in without:
        make(make(devices, "rng", model="virtio"), "backend", model="random").text = "/dev/urandom"


# Options that `suited` selects, and where a piece in libvirt's own words says them.
_SAID = {
    "clock": "clock",
    "features": "features/hyperv",
    "firmware": "os[@firmware]",
    "loader": "os/loader",
    "nvram": "os/nvram",
    "secure_boot": "os/firmware",
    "tpm": "devices/tpm",
}


def said(xml: str | None) -> set[str]:
    """Options for an operating system's needs that a piece of libvirt's XML sets."""
    return {option for option, place in _SAID.items() if parse(xml).find(place) is not None} if xml else set()


def brought(xml: str | None) -> set[str]:
    """The default devices of a bare guest that a piece of libvirt's XML has."""
    devices = parse(xml).findall("devices/*") if xml else ()
    return {(item.find("target").get("name") if item.tag == "channel" else item.tag) or "" for item in devices}
