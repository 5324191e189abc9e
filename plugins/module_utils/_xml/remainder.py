# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a definition that options do not express, as a piece of XML that `overlay.merge` takes."""

from __future__ import annotations

import functools
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._xml.names import OURS
from ansible_collections.corral.virt.plugins.module_utils._xml.overlay import (
    IDENTITIES,
    KEYS,
    Children,
    Shape,
    told_apart_first,
)
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, alias_name, copied, drop, make

# Where libvirt puts the sockets of channels, each at the end of a path as the channel is called. Others are the user's.
_SOCKETS = ("/var/lib/libvirt/qemu/channel/", "/run/libvirt/qemu/channel/")
_CALLED = "substring(@path, string-length(@path) - string-length(../target/@name) + 1) = ../target/@name"
# What libvirt chooses anew, and what belongs to one guest or to the run of one: nobody has to say it.
_CHOSEN = (
    "name",
    "uuid",
    "devices/*/alias[not(starts-with(@name, 'ua-'))]",
    "devices/*/address[@type='ccid']",
    "devices/controller[@type='pci']/model[not(@name='ioh3420')]",  # older than what libvirt chooses
    "devices/interface/target[starts-with(@dev, 'vnet') or starts-with(@dev, 'macvtap')]",
    *(
        f"devices/channel[@type='unix']/source[not(*) and starts-with(@path, '{place}') and {_CALLED}]"
        for place in _SOCKETS
    ),
    "devices/serial/target/model",
    "devices/console[../serial][target/@type='serial']",  # the first serial port once more
    "devices/disk/backingStore[not(*)]",
    "devices/audio[@id='1' and not(*) and (@type='none' or @type='spice')]",
    "seclabel[@type='dynamic' and not(baselabel)]",
    "sysinfo/system/entry[@name='uuid']",  # libvirt accepts none but the guest's own
    "sysinfo/system[entry[@name='uuid'] and count(*) = 1]",
)
_EMULATORS = re.compile(r"/usr/(bin|libexec)/(qemu-system-\w+|qemu-kvm|kvm)")
# libvirt chooses it by `os/@firmware`
_OF_FIRMWARE = ("os/loader[not(@stateless)]", "os/nvram[not(text()) and not(*)]")


def _follows_from_target(address: Element) -> bool:
    """True if a disk's bus address is the one that libvirt derives from its target.

    Beside SCSI controllers of different models the address is also the choice of a driver.
    """
    target = address.getparent().find("target")
    if target is None:
        return False
    letters = re.fullmatch(r"(?:hd|sd|fd)([a-z]{1,3})", str(target.get("dev")))
    models = {one.get("model") for one in address.xpath("../../controller[@type='scsi']")}
    if letters is None or target.get("bus") not in _SEATS or (target.get("bus") == "scsi" and len(models) > 1):
        return False
    number = functools.reduce(lambda sum_, letter: sum_ * 26 + ord(letter) - ord("a") + 1, letters.group(1), 0) - 1
    place = [int(address.get(part) or 0) for part in ("controller", "bus", "target", "unit")]
    return place in _SEATS[target.get("bus")](number)


# Controller, bus, target and unit of a disk, by the number of its target; for SCSI, buses are narrow or wide.
_SEATS: t.Mapping[str, t.Callable[[int], list[list[int]]]] = {
    "ide": lambda number: [[number // 4, number % 4 // 2, 0, number % 2]],
    "sata": lambda number: [[number // 6, 0, 0, number % 6]],
    "fdc": lambda number: [[number // 2, 0, 0, number % 2]],
    "scsi": lambda number: [[number // 7, 0, 0, number % 7], [number // 15, 0, 0, number % 15 + (number % 15 >= 7)]],
}


# In this order libvirt gives out places on PCI; ports and bridges, and what has its own place on a board, come before.
_SEATED = (
    *("filesystem", "interface", "sound", "controller", "disk", "hostdev", "memballoon", "rng", "watchdog"),
    *("video", "shmem", "input", "serial", "vsock", "memory", "iommu", "panic"),
)
# What has its own place on a board of that kind: bus, slot, function.
_BOARDS: t.Mapping[str, t.Mapping[str, tuple[int, int, int]]] = {
    "pc": {"ide": (0, 1, 1), "usb": (0, 1, 2), "video": (0, 2, 0)},
    "q35": {"sata": (0, 0x1F, 2), "video": (0, 1, 0)},
}


def _chosen_places(root: Element) -> list[Element]:
    """Addresses that libvirt would choose again; none of a bus on which one differs."""
    kept = root.xpath(
        "devices/*/address[@type='pci'] | devices/controller[@type='pci']/target[not(node or @hotplug or @busNr)]"
    )
    chosen = kept if _follow_on_pci(root) else []
    for kind, part in (("usb", "port"), ("virtio-serial", "port")):
        places = root.findall(f"devices/*/address[@type='{kind}']")
        if [one.get(part) for one in places] == [str(number) for number in range(1, len(places) + 1)]:
            chosen += places
    return chosen


def _follow_on_pci(root: Element) -> bool:
    """True if libvirt would place all devices where they are: one after the other, without a gap."""
    machine = str(root.xpath("string(os/type/@machine)"))
    found = re.search(r"q35|^pc(?=$|-i440fx|-\d)", machine)
    board = found.group() if found else ""
    if not board or len(root.findall("devices/video")) > 1:
        return False
    own = dict(_BOARDS[board])
    ports, others = list[tuple[int, int, int]](), list[tuple[int, int, int]]()
    for one in sorted(root.findall("devices/*[address]"), key=lambda one: (*_SEATED, one.tag).index(one.tag)):
        address = one.find("address[@type='pci']")
        if address is None:
            continue
        kind = str(one.get("type") if one.tag == "controller" else one.tag)
        domain, *place = (int(address.get(part) or "0", 0) for part in ("domain", "bus", "slot", "function"))
        seat = (place[0], place[1], place[2])
        if domain or (kind == "pci" and not _is_numbered_by_place(one, seat)):
            return False
        if own.get(kind) == seat:
            del own[kind]
        else:
            (ports if kind == "pci" else others).append(seat)
    begin = {"pc": 3, "q35": 2}[board] - ("video" in own)
    if board == "pc":
        return not ports and others == [(0, begin + number, 0) for number in range(len(others))]
    on_root = [(0, begin + number // 8, number % 8) for number in range(len(ports))]
    return ports == on_root and others == [(1 + number, 0, 0) for number in range(len(others))]


def _is_numbered_by_place(port: Element, seat: tuple[int, int, int]) -> bool:
    """True if the chassis and port of a controller are those that libvirt chooses."""
    target = port.find("target")
    chosen = {
        "chassis": int(port.get("index") or 0),
        "chassisNr": int(port.get("index") or 0),
        "port": seat[1] * 8 + seat[2],
    }
    told = {} if target is None else {name: int(target.get(name), 0) for name in chosen if target.get(name)}
    return told.items() <= chosen.items()


def stripped(root: Element) -> Element:
    """A copy of a definition without what libvirt chooses."""
    root = copied(root)
    chosen = [element for place in _CHOSEN for element in root.xpath(place)]
    chosen += _chosen_places(root)
    chosen += [one for one in root.findall("devices/disk/address[@type='drive']") if _follows_from_target(one)]
    if root.find("os") is not None and root.find("os").get("firmware"):
        chosen += [element for place in _OF_FIRMWARE for element in root.xpath(place)]
        for nvram in root.findall("os/nvram"):
            nvram.attrib.pop("template", None)
        for loader in root.findall("os/loader[@stateless]"):
            loader.text = None
            for name in set(loader.attrib) - {"stateless"}:
                del loader.attrib[name]
    chosen += [one for one in root.findall("devices/emulator") if _EMULATORS.fullmatch(one.text or "")]
    kept = root.findall("metadata/*")  # what has no namespace, libvirt drops
    chosen += [one for one in kept if "}" not in one.tag or one.tag[1:].partition("}")[0] in OURS]
    drop(chosen)
    for model in root.findall("devices/video/model")[: 1 if len(root.findall("devices/video")) == 1 else 0]:
        model.attrib.pop("primary", None)
    for listen in root.xpath("devices/graphics/@listen"):  # libvirt prints it twice
        listen.getparent().attrib.pop("listen")
    return root


def remainder(found: Element, made: Element, shape: Shape, verbatim: t.Container[Element] = ()) -> Element | None:
    """What `found` has and `made` lacks; None if it lacks nothing. Elements in `verbatim` are included as they are."""
    piece, there = found.makeelement(found.tag, nsmap=found.nsmap), Children(made)
    if found.tag != shape.tag:
        _differs(found, made, piece)
    for part in told_apart_first(found):
        left = (
            copied(part)
            if part in verbatim
            else _remainder_of(part, there, shape, verbatim, several=found.tag in shape.holders)
        )
        if left is not None:
            piece.append(left)
    return piece if len(piece) or piece.attrib or piece.text else None


def _differs(found: Element, made: Element, piece: Element) -> None:
    """Copy attributes and text that differ into `piece`."""
    for name, value in found.attrib.items():
        if made.get(name) != value:
            piece.set(name, value)
    text = (found.text or "").strip()
    if text and (made.text or "").strip() != text:
        piece.text = text


def _remainder_of(
    part: Element, there: Children, shape: Shape, verbatim: t.Container[Element], *, several: bool
) -> Element | None:
    """The remainder of one element; None if there is none."""
    if part.tag not in shape.holders and there.has(part):
        return None
    several = several or part.tag.rpartition("}")[2] in shape.several
    twin = there.twin(part) if several else there.first(part.tag)
    if twin is None:
        return copied(part)
    left = remainder(part, twin, shape, verbatim)
    return _with_identity(left, part) if several and left is not None else left


def _with_identity(left: Element, device: Element) -> Element:
    """The element with what identifies the device."""
    if alias_name(device):
        make(left, "alias", name=f"ua-{alias_name(device)}")
        return left
    if device.tag == "graphics":
        left.attrib.update({name: device.get(name) for name in ("type", "autoport") if device.get(name)})
    elif device.tag == "sysinfo":
        left.set("type", device.get("type"))
    elif device.tag == "controller":
        left.attrib.update({name: device.get(name) for name in ("type", "index")})
    elif device.tag in KEYS:
        left.set(KEYS[device.tag], device.get(KEYS[device.tag]))
    elif device.tag in IDENTITIES:
        tag, attribute = IDENTITIES[device.tag]
        there = left.find(tag)
        (make(left, tag) if there is None else there).set(attribute, device.find(tag).get(attribute))
    return left


def path_of(element: Element) -> str:
    """The XPath of an element in `virsh dumpxml`, without prefixes."""
    parent = element.getparent()
    tag = element.tag.rpartition("}")[2]
    if parent is None:
        return f"/{tag}"
    alike = parent.findall(element.tag)
    return f"{path_of(parent)}/{tag}" + (f"[{alike.index(element) + 1}]" if len(alike) > 1 else "")
