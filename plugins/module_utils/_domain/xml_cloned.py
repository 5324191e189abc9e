# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The definition of a clone: that of its original without what only one guest can be or have."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.units import derived_mac
from ansible_collections.corral.virt.plugins.module_utils._domain import (
    fields_disk,
    fields_interface,
    xml_host_bindings,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.fields_domain import DOMAIN
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import APART, OriginalDisk
from ansible_collections.corral.virt.plugins.module_utils._xml import row
from ansible_collections.corral.virt.plugins.module_utils._xml.names import LIBOSINFO
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, child, drop, parse, text

_KEPT = {"tags": DOMAIN["tags"], "login_user": DOMAIN["login_user"]}
_SYSTEM = f"{{{LIBOSINFO}}}"  # says which system it is, not which guest
_ELEMENTS = (
    "sysinfo//entry[@name='uuid' or @name='serial']",
    "hwuuid",
    "devices/interface/target[@dev]",
    "devices/interface/filterref/parameter[@name='IP' or @name='MAC']",
    "devices/channel/source[starts-with(@path, '/var/lib/libvirt/qemu/') or starts-with(@path, '/run/libvirt/qemu/')]",
    "devices/pstore/path",
    "os/nvram/source",
)
_TEXTS = ("genid", "os/nvram")  # libvirt makes both anew, the variables of the firmware from their template
_ATTRIBUTES = (
    "os/nvram/@type",
    "os/varstore/@path",
    "devices/graphics/@socket",
    "devices/graphics/listen/@socket",
    # Of Open vSwitch, and of a switch that speaks 802.1Qbg.
    "devices/interface/virtualport/parameters/@interfaceid",
    "devices/interface/virtualport/parameters/@instanceid",
)
_FILES = (
    "devices/*[@type='file' or @type='pipe' or @type='dev']/source/@path",
    "devices/*[@type='unix']/source[not(@mode='connect')]/@path",
    "devices/interface[@type='vhostuser']/source/@path",
    "devices/*/log/@file",
    "devices/filesystem/source/@socket",
    "devices/tpm/backend/source/@path",
    *xml_host_bindings.LOCAL_STATE,
)
_PORTS = "devices/*[@type='tcp' or @type='udp']/source[@mode='bind']/@service"


def document(xml: str, *, name: str, uuid: str) -> str:
    """The definition of the clone; its disks are still those of the original."""
    root = parse(xml)
    child(root, "name").text = name
    child(root, "uuid").text = uuid
    seeds = [one for one in root.findall("devices/disk") if fields_disk.name_of(one) == "seed"]
    drop([*seeds, *_matches(root, _ELEMENTS)])
    for attribute in _matches(root, _ATTRIBUTES):
        attribute.getparent().attrib.pop(attribute.attrname)
    for element in _matches(root, _TEXTS):
        element.text = None
    _forget_records(root)
    _choose_ports(root)
    for device in root.findall("devices/interface"):
        child(device, "mac").set("address", derived_mac(uuid, fields_interface.name_of(device)))
    return text(root)


def own_files(xml: str) -> frozenset[str]:
    """Files, sockets and ports, beside disks, that a guest's QEMU writes: two guests cannot share them."""
    root = parse(xml)
    return frozenset([*map(str, _matches(root, _FILES)), *(f"port {port}" for port in root.xpath(_PORTS))])


def disks(xml: str) -> list[OriginalDisk]:
    """The disks of the original, without its seed."""
    found = parse(xml).findall("devices/disk")
    return [_read(device) for device in found if fields_disk.name_of(device) != "seed"]


def _read(device: Element) -> OriginalDisk:
    values, source = row.read(device, fields_disk.DISK), device.find("source")
    place = {"file": "file", "block": "dev"}.get(device.get("type") or "")
    path = source.get(place) if source is not None and place else None
    kind = values.get("device", "disk")
    obstacle = ""
    if path is None or kind != "disk":
        obstacle = "it is neither a file nor a block device"
    elif device.find(".//encryption") is not None:
        obstacle = "it is encrypted"
    elif source.find("slices") is not None:
        obstacle = "it is only a part of its file"
    return OriginalDisk(
        name=fields_disk.name_of(device),
        target=values.get("target") or "",
        path=path or "",
        format=values.get("format") or "raw",
        shared=bool(values.get("readonly") or values.get("shareable") or kind in ("cdrom", "floppy")),
        obstacle=obstacle,
    )


def _matches(root: Element, places: t.Sequence[str]) -> list[t.Any]:
    return [found for place in places for found in root.xpath(place)]


def _forget_records(root: Element) -> None:
    """Remove what programs record in the guest's metadata, except tags and the login user.

    Tags that keep guests apart go too: a clone is created on the host of its original.
    """
    kept = row.read(root, _KEPT)
    tags = tuple(tag for tag in kept.get("tags", ()) if not tag.startswith(APART))
    for record in root.findall("metadata/*"):
        if not record.tag.startswith(_SYSTEM):
            record.getparent().remove(record)
    row.graft(root, _KEPT, {**kept, "tags": tags})


def _choose_ports(root: Element) -> None:
    """Let libvirt choose ports and numbers that a host has only once."""
    for display in root.xpath("devices/graphics[@port or @tlsPort or @websocket]"):
        for port in ("port", "tlsPort"):
            display.attrib.pop(port, None)
        display.set("autoport", "yes")
        if display.get("websocket"):
            display.set("websocket", "-1")
    for number in root.findall("devices/vsock/cid"):
        number.attrib.pop("address", None)
        number.set("auto", "yes")
