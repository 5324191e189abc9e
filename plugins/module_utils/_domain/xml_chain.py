# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that a guest reads and writes: its disks, and the backing files in its XML."""

from __future__ import annotations

import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain.xml_sources import Located, path_of
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, parse, text


class Link(t.NamedTuple):
    """One file in the chain of one disk."""

    path: str
    target: str | None  # of the disk, where this guest alone writes into the file


def links(xml: str, located: Located) -> list[Link]:
    """All files of a domain document. Only that of a running guest has whole chains."""
    return [link for disk in parse(xml).iterfind("devices/disk") for _element, link in _chain(disk, located)]


def raw_sources(xml: str, located: Located) -> set[str]:
    """Paths of a definition's raw disks, whose first bytes the guest writes."""
    disks = [disk for disk in parse(xml).iterfind("devices/disk") if disk.find("driver[@type='raw']") is not None]
    return {path for disk in disks for path in (_path(disk, located),) if path}


def without_below(xml: str, path: str, located: Located) -> str | None:
    """The document without the backing files of `path`, which libvirt then reads from the file; None if it has none."""
    root = parse(xml)
    below = [
        (element, element.find("backingStore"))
        for disk in root.iterfind("devices/disk")
        for element, link in _chain(disk, located)
        if link.path == path
    ]
    for element, store in below:
        if store is not None:
            element.remove(store)
    return text(root) if any(store is not None for _element, store in below) else None


def _chain(disk: Element, located: Located) -> t.Iterator[tuple[Element, Link]]:
    """Elements of a disk with a source, each with its link: the disk, its backing files, the target of a copy."""
    alone = disk.get("device", "disk") == "disk" and disk.find("readonly") is None and disk.find("shareable") is None
    element, mirror = disk, disk.find("mirror")
    while element is not None:
        path = _path(element, located)
        if path:
            target = disk.find("target").get("dev") if alone and element is disk and mirror is None else None
            yield element, Link(os.path.realpath(path), target)
        element = element.find("backingStore")
    copied = None if mirror is None else _path(mirror, located)
    if copied:
        yield mirror, Link(os.path.realpath(copied), None)


def _path(element: Element, located: Located) -> str | None:
    source = element.find("source")
    return None if source is None else path_of(source, located)
