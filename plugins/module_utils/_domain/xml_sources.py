# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files and devices of a guest's disks, with the backing files in its XML."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, make, parse, text

_NVRAM = "/var/lib/libvirt/qemu/nvram"
Located = t.Callable[[str, str], t.Optional[str]]  # pool, volume -> path
Resolved = t.Callable[[str], str]  # a path as its machine resolves it


def sources(xml: str, located: Located, *, below: bool = False) -> list[str]:
    """Paths of all files and devices of a definition's disks.

    With `below`, also of their backing files, which only the XML of a running guest names.
    """
    found = parse(xml).iterfind(f"devices/disk{'//' if below else '/'}source")
    return list(dict.fromkeys(filter(None, (path_of(source, located) for source in found))))


def elements(root: Element) -> list[Element]:
    """The sources of disks that a guest cannot start without."""
    return [one for one in root.iterfind("devices/disk/source") if one.get("startupPolicy") != "optional"]


def files(xml: str) -> list[str]:
    """Paths of a guest's files beside its disks: for booting, and as memory."""
    places = ("os/kernel", "os/initrd", "os/dtb", "os/loader", "devices/memory/source/path")
    root = parse(xml)
    return [one.text for place in places for one in root.iterfind(place) if one.text] + variables(root)


def variables(root: Element) -> list[str]:
    """Paths of a guest's UEFI variables, by default in libvirt's own directory."""
    nvram, source = root.findtext("os/nvram"), root.find("os/nvram/source")
    if source is not None:
        nvram = source.get("file")
    elif not nvram and root.find("os") is not None and root.find("os").get("firmware") == "efi":
        nvram = f"{_NVRAM}/{root.findtext('name')}_VARS.fd"
    return [nvram] if nvram else []


def of_snapshot(xml: str) -> list[str]:
    """The definitions in a snapshot's XML, and one with the snapshot's own files as disks."""
    root = parse(xml)
    kept = [one for tag in ("domain", "inactiveDomain") for one in root.findall(tag)]
    return [*map(text, kept), text(_holder(root.findall("disks/disk"), root.findall("memory[@file]")))]


def of_backup(xml: str) -> str:
    """A definition with the files that a backup job writes as disks."""
    disks = parse(xml).findall("disks/disk")
    for written in [one for disk in disks for tag in ("target", "scratch") for one in disk.findall(tag)]:
        written.tag = "source"
    return text(_holder(disks, []))


def _holder(disks: t.Sequence[Element], memory: t.Sequence[Element]) -> Element:
    """A definition with these disks, and one more for each file with memory."""
    root = parse("<domain><devices/></domain>")
    devices = root.find("devices")
    devices.extend(disks)
    for one in memory:
        make(make(devices, "disk"), "source", file=one.get("file"))
    return root


def path_of(source: Element, located: Located) -> str | None:
    """The file or device that a disk's source names, directly or as a volume."""
    if source.get("pool"):
        return located(source.get("pool"), source.get("volume"))
    return t.cast("str | None", source.get("file") or source.get("dev"))


class Link(t.NamedTuple):
    """One file in the chain of one disk."""

    path: str
    target: str | None  # of the disk, where this guest alone writes into the file


def links(xml: str, located: Located, resolved: Resolved) -> list[Link]:
    """All files of a domain document. Only that of a running guest has whole chains."""
    disks = parse(xml).iterfind("devices/disk")
    return [link for disk in disks for _element, link in _chain(disk, located, resolved)]


def raw_sources(xml: str, located: Located) -> set[str]:
    """Paths of a definition's raw disks, whose first bytes the guest writes."""
    disks = [disk for disk in parse(xml).iterfind("devices/disk") if disk.find("driver[@type='raw']") is not None]
    return {path for disk in disks for path in (_path(disk, located),) if path}


def without_below(xml: str, path: str, located: Located, resolved: Resolved) -> str | None:
    """The document without the backing files of `path`, which libvirt then reads from the file; None if it has none."""
    root = parse(xml)
    below = [
        (element, element.find("backingStore"))
        for disk in root.iterfind("devices/disk")
        for element, link in _chain(disk, located, resolved)
        if link.path == path
    ]
    for element, store in below:
        if store is not None:
            element.remove(store)
    return text(root) if any(store is not None for _element, store in below) else None


def _chain(disk: Element, located: Located, resolved: Resolved) -> t.Iterator[tuple[Element, Link]]:
    """Elements of a disk with a source, each with its link: the disk, its backing files, the target of a copy."""
    alone = disk.get("device", "disk") == "disk" and disk.find("readonly") is None and disk.find("shareable") is None
    element, mirror = disk, disk.find("mirror")
    while element is not None:
        path = _path(element, located)
        if path:
            target = disk.find("target").get("dev") if alone and element is disk and mirror is None else None
            yield element, Link(resolved(path), target)
        element = element.find("backingStore")
    copied = None if mirror is None else _path(mirror, located)
    if copied:
        yield mirror, Link(resolved(copied), None)


def _path(element: Element, located: Located) -> str | None:
    source = element.find("source")
    return None if source is None else path_of(source, located)
