# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What must be on the host before a guest can start. With the standard library alone, as little travels for that."""

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

from ansible_collections.corral.virt.plugins.module_utils._model.prerequisites import Prerequisites

__all__ = ["prerequisites"]

_BOOTED = ("os/kernel", "os/initrd", "os/dtb", "os/loader")
_PLUGGED = ("bridge", "direct")  # into a network device of the host


def prerequisites(xml: str) -> Prerequisites:
    """Of a guest, or of one device of it. Not the file of an NVDIMM: QEMU makes one that is missing."""
    root = ElementTree.fromstring(xml)  # noqa: S314 (libvirt wrote it)
    disks = [one for disk in root.iter("disk") for one in disk.findall("source") if not _is_optional(one)]
    nics = [(_kind(nic), one) for nic in root.iter("interface") for one in nic.findall("source")]
    files = [*(root.findtext(place) for place in _BOOTED), *(one.get("file") for one in root.iter("rom"))]
    files += [one.get("dir") for one in root.iterfind("devices/filesystem/source")]
    files += [one.get("file") or one.get("dev") for one in disks]
    return Prerequisites(
        networks=_named(one.get("network") for kind, one in nics if kind == "network"),
        links=_named(one.get("bridge") or one.get("dev") for kind, one in nics if kind in _PLUGGED),
        files=_named(files),
        volumes=frozenset((one.get("pool", ""), one.get("volume", "")) for one in disks if one.get("pool")),
        templates={one.get("template", ""): _variables(one) for one in root.iterfind("os/nvram[@template]")},
    )


def _named(names: t.Iterable[str | None]) -> frozenset[str]:
    return frozenset(filter(None, names))


def _is_optional(source: ElementTree.Element) -> bool:
    """Whether the guest starts without it."""
    return source.get("startupPolicy") == "optional"


def _kind(nic: ElementTree.Element) -> str | None:
    """The type of an interface. The kernel does not know the bridges of Open vSwitch."""
    kind, switched = nic.get("type"), nic.find("virtualport[@type='openvswitch']") is not None
    return None if switched and kind == "bridge" else kind


def _variables(nvram: ElementTree.Element) -> str:
    """Where a guest's UEFI variables are; libvirt makes them from a template where they are not."""
    source = nvram.find("source")
    return ((nvram.text or "").strip() if source is None else source.get("file")) or ""
