# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the definition of a guest that is restored from a backup."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain import fields_disk, xml_backup_record, xml_cloned
from ansible_collections.corral.virt.plugins.module_utils._domain.fields_record import RECORD
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import OwnedVolume
from ansible_collections.corral.virt.plugins.module_utils._xml import row
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import (
    Element,
    child,
    copied,
    drop,
    make,
    parse,
    resolve,
    text,
)

_NIC = ("mac", "model", "address", "alias", "boot", "acpi")  # of an interface, whatever it is connected to
# What the record of then tells of files and migrations of then.
_OF_THEN = ("volume", "making", "copying", "copy", "snapshot", "moving", "moving-made", "moving-goes")


def definition(
    then: str,
    *,
    name: str,
    uuid: str,
    files: t.Mapping[str, tuple[str, str]],
    seed: str | None,
    nvram: str | None,
    volumes: t.Sequence[OwnedVolume],
    network: str | None = None,
    taken: t.Collection[str] = (),
    stands_on: str | None = None,
) -> str:
    """The definition of a point with restored disks (path and format by target), seed and UEFI variables, and with the
    record of these. With another UUID it has nothing of what only the original can be or have, except MAC addresses, if
    all interfaces go to a `network` where none was then, and where none has them now (`taken`). With the folder of a
    point that it stands on, it pauses if that cannot be read.
    """
    before = parse(then)
    kept = [_mac(nic) if _network(nic) != network else None for nic in before.iterfind("devices/interface")]
    is_copy = before.findtext("uuid") != uuid
    root = parse(xml_cloned.document(then, name=name, uuid=uuid)) if is_copy else before
    seeds = _seeds(parse(then)) if is_copy and seed else []
    root.find("devices").extend([copied(one) for one in seeds])
    for disk in root.iterfind("devices/disk"):
        target = disk.find("target").get("dev")
        if target in files:
            _let_be_file(disk, *files[target])
    if network:
        _connect_all(root, network, [mac if mac not in taken else None for mac in kept])
    if seed:
        for disk in _seeds(root):
            _let_be_file(disk, seed, "raw")
    if nvram:
        _set_variables(root, nvram)
    _record(root, volumes)
    if not stands_on:
        return text(root)
    xml, stops = pausing(text(root), files)
    return _noted(xml, xml_backup_record.BackupNote(stands_on=stands_on, disks=tuple(files), stops=stops), uuid)


def _record(root: t.Any, volumes: t.Sequence[OwnedVolume]) -> None:
    for tag in _OF_THEN:
        drop(root.findall(f"metadata/{resolve('corral:guest')}/{resolve('corral:' + tag)}"))
    child(root, "metadata")
    row.graft(root, {"volumes": RECORD["volumes"]}, {"volumes": tuple(volumes)})


def _noted(xml: str, note: xml_backup_record.BackupNote, uuid: str) -> str:
    root = parse(xml)
    metadata = child(root, "metadata")
    drop(metadata.findall(resolve("corral-backup:guest")))
    told = parse(xml_backup_record.document(note, uuid))
    make(metadata, "corral-backup:guest", **dict(told.attrib))
    return text(root)


def pausing(xml: str, targets: t.Collection[str]) -> tuple[str, tuple[str, ...]]:
    """The definition of a guest that pauses if one of these disks cannot be read, and that names nothing below them;
    and the targets of those that did not pause it before.
    """
    root, stops = parse(xml), list[str]()
    for disk in root.iterfind("devices/disk"):
        target, driver = disk.find("target").get("dev"), disk.find("driver")
        if target in targets:
            drop(disk.findall("backingStore"))
            if driver.get("error_policy") is None and driver.get("rerror_policy") is None:
                driver.set("error_policy", "stop")
                stops.append(target)
    return text(root), tuple(stops)


def reporting(xml: str, targets: t.Collection[str]) -> str:
    """The definition of a guest that gets errors of these disks again, as QEMU does it by default."""
    root = parse(xml)
    for disk in root.iterfind("devices/disk"):
        if disk.find("target").get("dev") in targets and disk.find("driver").get("error_policy") == "stop":
            disk.find("driver").attrib.pop("error_policy")
    return text(root)


def read_only_files(xml: str) -> list[str]:
    """Files of drives that the guest only reads, but its seed: no backup has them."""
    disks = [disk for disk in parse(xml).iterfind("devices/disk") if fields_disk.name_of(disk) != "seed"]
    reads = [disk for disk in disks if disk.find("readonly") is not None or disk.get("device") in ("cdrom", "floppy")]
    return [one.get("file") for disk in reads for one in disk.iterfind("source[@file]")]


def connect(interface: Element, network: str) -> None:
    """Connect an interface to a libvirt network, whatever it was connected to."""
    for part in list(interface):
        if part.tag not in _NIC:
            interface.remove(part)
    interface.attrib.clear()
    interface.set("type", "network")
    make(interface, "source", network=network)
    if interface.find("model") is None:
        make(interface, "model", type="virtio")


def _connect_all(root: Element, network: str, macs: t.Iterable[str | None]) -> None:
    """Connect all interfaces to a network, with these MAC addresses; None: with the one that it has."""
    for nic, mac in zip(root.findall("devices/interface"), macs):
        connect(nic, network)
        if mac:
            child(nic, "mac").set("address", mac)


def macs_on(xml: str, network: str) -> list[str]:
    """The MAC addresses of a guest on a libvirt network."""
    nics = [nic for nic in parse(xml).iterfind("devices/interface") if _network(nic) == network]
    return [mac for nic in nics if (mac := _mac(nic))]


def _mac(interface: Element) -> str | None:
    """The MAC address of an interface; None if it has none."""
    found = interface.find("mac[@address]")
    return None if found is None else found.get("address").lower()


def _network(interface: Element) -> str | None:
    """The libvirt network of an interface."""
    source = interface.find("source[@network]")
    return None if source is None else source.get("network")


def _seeds(root: Element) -> list[Element]:
    return [disk for disk in root.iterfind("devices/disk") if fields_disk.name_of(disk) == "seed"]


def _let_be_file(disk: Element, path: str, form: str) -> None:
    """Let a disk be a file without a backing chain."""
    source = disk.find("source")
    if disk.get("type") != "file":  # what told of a device or a server
        drop(source)
    source.attrib.clear()
    source.set("file", path)
    disk.set("type", "file")
    if disk.get("device") == "lun":
        disk.set("device", "disk")
    drop(disk.findall("backingStore"))
    driver = disk.find("driver")
    (make(disk, "driver", name="qemu") if driver is None else driver).set("type", form)


def _set_variables(root: Element, path: str) -> None:
    source = root.find("os/nvram/source")
    if source is not None:
        source.attrib.clear()
        source.set("file", path)
        root.find("os/nvram").set("type", "file")
    elif root.find("os/nvram") is not None:
        root.find("os/nvram").text = path
