# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documents of a disk that moves."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain import fields_disk, fields_record
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import OwnedVolume
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, child, drop, make, parse, text


def destination(path: str, form: str) -> str:
    """The disk that a running guest's disk is copied to."""
    disk = parse("<disk/>")
    make(disk, "driver", name="qemu", type=form)
    _place(disk, make(disk, "source"), path)
    return text(disk)


def _place(disk: Element, source: Element, path: str) -> None:
    is_device = path.startswith("/dev/")
    disk.set("type", "block" if is_device else "file")
    source.set("dev" if is_device else "file", path)


def mirror(xml: str, target: str) -> str | None:
    """The file or device that the disk of a running guest is copied to; None: it is not."""
    for disk in parse(xml).iterfind("devices/disk"):
        source = disk.find("mirror/source")
        if disk.find("target").get("dev") == target and source is not None:
            return t.cast("str | None", source.get("file") or source.get("dev"))
    return None


def is_encrypted(xml: str, name: str) -> bool:
    """True if QEMU encrypts the disk of this name: the first bytes of a raw one need not tell."""
    disks = [one for one in parse(xml).iterfind("devices/disk") if fields_disk.name_of(one) == name]
    return any(one.find(place) is not None for one in disks for place in ("encryption", "source/encryption"))


def moved(xml: str, name: str, path: str, form: str, owned: t.Sequence[OwnedVolume] | None) -> str:
    """The definition with the disk of this name at another path, in that format; its record with these disks, unless
    that is None.
    """
    root = parse(xml)
    (disk,) = [one for one in root.iterfind("devices/disk") if fields_disk.name_of(one) == name]
    source, driver = disk.find("source"), child(disk, "driver")
    kept = {key: value for key, value in source.attrib.items() if key in ("startupPolicy", "index")}
    source.attrib.clear()
    source.attrib.update(kept)
    _place(disk, source, path)
    driver.set("type", form)
    if form != "qcow2":  # with which alone libvirt accepts these
        drop((*driver.iterfind("metadata_cache"), *disk.iterfind("backingStore")))
    if owned is not None:
        child(root, "metadata")
        fields_record.RECORD["volumes"].write(root, owned)
    return text(root)


def remembered(xml: str, old: str, made: OwnedVolume) -> str:
    """The record, as libvirt's metadata call takes it, with one disk in place of another."""
    kept = [one for one in fields_record.read(xml).get("volumes") or () if one.path not in (old, made.path)]
    return fields_record.update(xml, {"volumes": (*kept, made)})
