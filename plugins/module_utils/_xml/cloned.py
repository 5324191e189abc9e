# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The definition of a copy of a guest: that of its original without what only one guest can be or have."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._units import derived_mac
from ansible_collections.corral.virt.plugins.module_utils._xml import disk, interface, row
from ansible_collections.corral.virt.plugins.module_utils._xml.domain import DOMAIN
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, child, parse, text

__all__ = ["document", "own_files"]

_TAGS = {"tags": DOMAIN["tags"]}
_LIBOSINFO = "{http://libosinfo.org/xmlns/libvirt/domain/1.0}"  # says which system it is, not which guest
_ELEMENTS = (
    "sysinfo/system/entry[@name='uuid' or @name='serial']",
    "devices/interface/target[@dev]",
    "devices/channel/source[starts-with(@path, '/var/lib/libvirt/qemu/') or starts-with(@path, '/run/libvirt/qemu/')]",
    "os/nvram/source",
)
_TEXTS = ("genid", "os/nvram")  # libvirt makes both anew, the variables of the firmware from their template
_ATTRIBUTES = (
    "os/nvram/@type",
    "devices/graphics/@socket",
    "devices/graphics/listen/@socket",
    "devices/interface/virtualport/parameters/@interfaceid",  # of Open vSwitch
)
_FILES = (
    "devices/*[@type='file' or @type='pipe']/source/@path",
    "devices/*[@type='unix' or @type='vhostuser']/source[not(@mode='connect' or @mode='client')]/@path",
    "devices/*/log/@file",
    "devices/filesystem/source/@socket",
    "devices/tpm/backend/source/@path",
)


def document(xml: str, *, name: str, uuid: str) -> str:
    """The definition of the copy; its disks are still those of the original."""
    root = parse(xml)
    child(root, "name").text = name
    child(root, "uuid").text = uuid
    seeds = [one for one in root.findall("devices/disk") if disk.name_of(one) == "seed"]
    for element in [*seeds, *_all(root, _ELEMENTS)]:
        element.getparent().remove(element)
    for attribute in _all(root, _ATTRIBUTES):
        attribute.getparent().attrib.pop(attribute.attrname)
    for element in _all(root, _TEXTS):
        element.text = None
    _forget_records(root)
    _choose_ports(root)
    for device in root.findall("devices/interface"):
        child(device, "mac").set("address", derived_mac(uuid, interface.name_of(device)))
    return text(root)


def own_files(xml: str) -> frozenset[str]:
    """Paths of files and sockets that a guest's QEMU makes or writes, beside its disks: two guests cannot have the
    same.
    """
    return frozenset(map(str, _all(parse(xml), _FILES)))


def _all(root: Element, places: t.Sequence[str]) -> list[t.Any]:
    return [found for place in places for found in root.xpath(place)]


def _forget_records(root: Element) -> None:
    """What programs keep with a guest is of that guest; but tags are what a user says of it."""
    tags = row.read(root, _TAGS)
    for record in root.findall("metadata/*"):
        if not record.tag.startswith(_LIBOSINFO):
            record.getparent().remove(record)
    row.graft(root, _TAGS, tags)


def _choose_ports(root: Element) -> None:
    """Numbers of which a host has each once are left to libvirt."""
    for display in root.xpath("devices/graphics[@port or @tlsPort or @websocket]"):
        for port in ("port", "tlsPort"):
            display.attrib.pop(port, None)
        display.set("autoport", "yes")
        if display.get("websocket"):
            display.set("websocket", "-1")
    for number in root.findall("devices/vsock/cid"):
        number.attrib.pop("address", None)
        number.set("auto", "yes")
