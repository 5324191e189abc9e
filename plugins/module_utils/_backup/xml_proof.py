# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The definition of a guest that is restored only to prove a backup: it reaches nothing outside."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._backup.xml_restored import connect
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_disk
from ansible_collections.corral.virt.plugins.module_utils._xml.names import AGENT_CHANNEL, sealed
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import (
    Element,
    child,
    drop,
    make,
    parse,
    resolve,
    text,
)

# Devices that reach nothing outside of the guest, once what follows has seen to their sources. All others are left out.
_KEPT = (
    *("emulator", "disk", "controller", "interface", "serial", "parallel", "console", "channel", "input", "hub"),
    *("video", "memballoon", "rng", "watchdog", "panic", "iommu", "tpm", "memory", "crypto"),
)
# Left out without a note: nobody looks at this guest or listens to it.
_UNNOTED = ("graphics", "audio", "sound", "redirdev", "redirfilter")
# Of the host: a share of what its own guests need, or names of its labels, and QEMU's own command line.
_OF_THE_HOST = ("cputune", "numatune", "blkiotune", "memoryBacking", "resource", "seclabel")
_LOCAL = {"tpm": ("emulator",), "rng": ("random", "builtin")}  # backends that connect to nothing


class Isolated(t.NamedTuple):
    """The definition, what was left out of it, and how the guest can give evidence."""

    xml: str
    notes: tuple[str, ...]
    has_agent: bool
    has_console: bool


def isolated(xml: str, *, name: str, kept: t.Collection[str], log: str) -> Isolated:
    """The definition with all interfaces on the network `name`, its first console logged to `log`, and of its disks
    only those with `kept` files, and those that it only reads.
    """
    root = parse(xml)
    notes = [*_without_own_namespaces(root)]
    for tag in _OF_THE_HOST:
        drop(root.findall(tag))
    for vcpu in root.findall("vcpu"):
        vcpu.attrib.pop("cpuset", None)
    devices = root.find("devices")
    for device in list(devices):
        why = _obstacle(device, kept)
        if why is not None:
            devices.remove(device)
            notes += [f"{why} is left out"] if why else []
    for interface in devices.findall("interface"):
        connect(interface, name)
    for disk in devices.findall("disk"):
        _empty(disk, kept)
    drop(devices.findall("video/model/acceleration"))
    has_console = _log(devices, log)
    has_agent = devices.find(f"channel/target[@name='{AGENT_CHANNEL}']") is not None
    return Isolated(text(root), tuple(notes), has_agent, has_console)


def _without_own_namespaces(root: Element) -> t.Iterator[str]:
    """Remove what QEMU is told past libvirt, which may be anything."""
    for element in [one for one in root if isinstance(one.tag, str) and one.tag.startswith("{")]:
        root.remove(element)
        yield f"{element.tag.rpartition('}')[2]}, which libvirt passes to QEMU unseen, is left out"


def _obstacle(device: Element, kept: t.Collection[str]) -> str | None:
    """What a device is that must be left out; empty if nobody misses it; None if it stays."""
    tag, kind = str(device.tag), device.get("type") or device.get("mode") or ""
    what = f"{tag}{f' ({kind})' if kind else ''}"
    if tag in _UNNOTED:
        return ""
    if tag == "disk":
        return _of_disk(device, kept)
    if tag == "channel":
        return _of_channel(device, kind)
    if tag in _LOCAL:
        backend = device.find("backend")
        kind = "" if backend is None else backend.get("type") or backend.get("model") or ""
        return None if kind in _LOCAL[tag] else f"{tag} ({kind})"
    if tag == "memory" and device.find("source/path") is not None:
        return f"memory in {device.findtext('source/path')}"
    if tag == "input" and kind in ("passthrough", "evdev"):
        return what
    return None if tag in _KEPT else what


def _of_channel(channel: Element, kind: str) -> str | None:
    """Only that of the guest agent stays, to a socket that libvirt makes."""
    if kind in ("spicevmc", "spiceport"):
        return ""
    if kind != "unix" or channel.find(f"target[@name='{AGENT_CHANNEL}']") is None:
        return f"channel ({kind})"
    drop(channel.findall("source"))
    return None


def _of_disk(disk: Element, kept: t.Collection[str]) -> str | None:
    source, target = disk.find("source"), disk.find("target").get("dev")
    if _file(disk) in kept or source is None or disk.get("device") in ("cdrom", "floppy"):
        return None
    if disk.find("readonly") is not None and disk.get("type") == "file":
        return None
    return f"disk {target} ({fields_disk.name_of(disk)}), which is not in the backup,"


def _file(disk: Element) -> str:
    source = disk.find("source")
    return "" if source is None else source.get("file") or ""


def _empty(disk: Element, kept: t.Collection[str]) -> None:
    """Take the medium out of a drive, unless it was restored: others may change it, or it may not be there."""
    if disk.get("device") not in ("cdrom", "floppy") or _file(disk) in kept:
        return
    drop([*disk.findall("source"), *disk.findall("backingStore")])
    disk.set("type", "file")


def _log(devices: Element, path: str) -> bool:
    """Let serial ports and consoles connect to nothing, and the first be logged to a file; False if there is none."""
    for console in devices.findall("console"):
        target = console.find("target")
        if target is None or target.get("type") in (None, "serial"):
            devices.remove(console)  # libvirt makes it anew from the serial port
    ports = [*devices.findall("serial"), *devices.findall("console"), *devices.findall("parallel")]
    for port in ports:
        for part in ("source", "protocol", "log"):
            drop(port.findall(part))
        port.set("type", "pty" if port.tag != "parallel" else "null")
    first = next((port for port in ports if port.tag != "parallel"), None)
    if first is not None:
        make(first, "log", file=path, append="off")
    return first is not None


def network(name: str, uuid: str, bridge: str) -> str:
    """A network that leads nowhere: without forwarding, addresses, DHCP and DNS."""
    root = parse("<network><dns enable='no'/></network>")
    child(root, "name").text = name
    child(root, "uuid").text = uuid
    make(root, "bridge", name=bridge, stp="off", delay="0")
    return text(root)


def with_record(xml: str, *, of: str, directory: str) -> str:
    """The definition with a record that it is a proof of the guest with UUID `of`, with its disks in a directory."""
    root = parse(xml)
    record = make(child(child(root, "metadata"), "corral:guest"), "corral:proof", of=of)
    record.text = directory
    record.set("seal", _seal(root.findtext("uuid"), directory))
    return text(root)


def directory_of(xml: str) -> str | None:
    """The directory with the disks of a guest that was made to prove a backup; None if it was not, as a copy of such
    a definition.
    """
    root = parse(xml)
    record = root.find(f"metadata/{resolve('corral:guest')}/{resolve('corral:proof')}")
    if record is None or record.get("seal") != _seal(root.findtext("uuid"), record.text or ""):
        return None
    return str(record.text)


def _seal(uuid: str, directory: str) -> str:
    return sealed(f"{uuid} {directory}")
