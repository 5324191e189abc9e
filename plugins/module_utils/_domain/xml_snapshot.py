# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read libvirt's document of a snapshot, and write those that take, change and restore one."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import Snapshot, SnapshotDisk
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_sources import Located, path_of
from ansible_collections.corral.virt.plugins.module_utils._xml.names import AGENT_CHANNEL, OURS
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, copied, drop, make, parse, text


class GuestDisk(t.NamedTuple):
    """A disk of a guest, as a snapshot sees it."""

    target: str
    type: str  # file, block, volume, network, ...
    path: str | None  # file or device
    format: str
    written: bool  # the guest writes to it
    shareable: bool = False
    encrypted: bool = False


def disks(xml: str, located: Located) -> list[GuestDisk]:
    """The disks of a definition."""
    return [
        GuestDisk(
            disk.find("target").get("dev"),
            disk.get("type") or "",
            _path(disk, located),
            _format(disk) or "raw",
            disk.get("device", "disk") in ("disk", "lun") and disk.find("readonly") is None,
            disk.find("shareable") is not None,
            disk.find("encryption") is not None or disk.find("source/encryption") is not None,
        )
        for disk in parse(xml).iterfind("devices/disk")
    ]


def has_agent(xml: str) -> bool:
    """True if an agent has connected in the running guest."""
    return any(
        target.get("name") == AGENT_CHANNEL and target.get("state") == "connected"
        for target in parse(xml).iterfind("devices/channel/target")
    )


def snapshot(xml: str, located: Located, *, current: bool = False) -> Snapshot:
    """The snapshot in libvirt's document; `located` returns the path of a volume of a pool."""
    root = parse(xml)
    memory = root.find("memory")
    return Snapshot(
        name=root.findtext("name") or "",
        created_s=int(root.findtext("creationTime") or 0),
        parent=root.findtext("parent/name"),
        current=current,
        description=root.findtext("description") or "",
        state=root.findtext("state") or "shutoff",
        memory="no" if memory is None else memory.get("snapshot") or "no",
        memory_file=None if memory is None else memory.get("file"),
        disks=tuple(_disks(root, located)),
        deleting=root.find(".//snapshotDeleteInProgress") is not None,
        xml=xml,
    )


def _disks(root: Element, located: Located) -> t.Iterator[SnapshotDisk]:
    # as the guest ran then; its stored definition, where libvirt has both, may have had others
    then = {disk.find("target").get("dev"): disk for disk in root.iterfind("domain/devices/disk")}
    reverted = {disk.get("name"): _path(disk, located) for disk in root.iterfind("revertDisks/disk")}
    for disk in root.iterfind("disks/disk"):
        kind, target = disk.get("snapshot") or "no", disk.get("name") or ""
        before = then.get(target)
        yield SnapshotDisk(
            target,
            kind,
            _path(disk, located) if kind == "external" else None,
            _format(disk),
            None if before is None else _path(before, located),
            None if before is None else _format(before),
            reverted.get(target),
        )


def _format(disk: Element) -> str | None:
    driver = disk.find("driver")
    return None if driver is None else t.cast("str | None", driver.get("type"))


def _path(disk: Element, located: Located) -> str | None:
    source = disk.find("source")
    return None if source is None else path_of(source, located)


def taking(
    name: str, description: str, overlays: t.Mapping[str, str | None], *, internal: bool, memory: str | None
) -> str:
    """The document that takes a snapshot: `overlays` by target, None for a disk that is left out; `memory` is a file,
    or empty for memory inside a disk, or None for none.
    """
    root = parse("<domainsnapshot/>")
    make(root, "name").text = name
    if description:
        make(root, "description").text = description
    kept = make(root, "memory", snapshot="no")
    if memory is not None:
        kept.set("snapshot", "external" if memory else "internal")
    if memory:
        kept.set("file", memory)
    disks = make(root, "disks")
    for target, overlay in overlays.items():
        if overlay is None:
            make(disks, "disk", name=target, snapshot="no")
        elif internal:
            make(disks, "disk", name=target, snapshot="internal")
        else:
            disk = make(disks, "disk", name=target, snapshot="external", type="file")
            make(disk, "driver", type="qcow2")
            make(disk, "source", file=overlay)
    return text(root)


def with_files(xml: str, moved: t.Mapping[str, tuple[str, str]], located: Located) -> str:
    """A definition, or a snapshot's document with those of then, whose disks have other files: `moved` maps a path to
    another one with its format. Their chains are left out, for libvirt to read.
    """
    root = parse(xml)
    for disk in [one for tag in (".", "domain", "inactiveDomain") for one in root.iterfind(f"{tag}/devices/disk")]:
        to = moved.get(_path(disk, located) or "")
        if to:
            _set_file(disk, to[0])
            _set_format(disk, to[1])
        elif any(_path(below, located) in moved for below in disk.iterfind(".//backingStore")):
            drop(disk.findall("backingStore"))
    return text(root)


def without_chains(xml: str, merged: t.Collection[str]) -> str | None:
    """A definition without the chains that name one of these files, for libvirt to read them; None if none does."""
    root, found = parse(xml), False
    for disk in root.iterfind("devices/disk"):
        if any(_path(below, lambda _pool, _volume: None) in merged for below in disk.iterfind(".//backingStore")):
            drop(disk.findall("backingStore"))
            found = True
    return text(root) if found else None


def with_disks(xml: str, overlays: t.Mapping[str, str]) -> str:
    """A snapshot's document with other overlays, by target."""
    root = parse(xml)
    for disk in root.iterfind("disks/disk"):
        if disk.get("name") in overlays:
            _set_file(disk, overlays[disk.get("name")])
    return text(root)


def definition_then(snapshot_xml: str, now: str, overlays: t.Mapping[str, str]) -> str:
    """The definition of then, with these overlays by target; name and our record are those of `now`."""
    root, present = parse(snapshot_xml), parse(now)
    then = root.find("inactiveDomain")
    then = copied(root.find("domain") if then is None else then)
    then.tag = "domain"
    then.find("name").text = present.findtext("name")
    for disk in then.iterfind("devices/disk"):
        target = disk.find("target").get("dev")
        if target in overlays:
            _set_file(disk, overlays[target])
            _set_format(disk, "qcow2")
    _keep_record(then, present)
    return text(then)


def _keep_record(then: Element, present: Element) -> None:
    """Replace our elements of the metadata by the present ones: addresses, disks and snapshots do not go back."""
    ours = [f"{{{namespace}}}guest" for namespace in OURS]
    metadata = then.find("metadata")
    if metadata is None:
        metadata = make(then, "metadata")
    drop([one for one in metadata if one.tag in ours])
    for element in [one for tag in ours for one in present.iterfind(f"metadata/{tag}")]:
        metadata.append(copied(element))


def _set_file(disk: Element, path: str) -> None:
    """Let a disk be a file; what libvirt knows of its chain goes."""
    source = disk.find("source")
    kept = {key: value for key, value in source.attrib.items() if key in ("startupPolicy",)}
    source.attrib.clear()
    block = path.startswith("/dev/")
    source.attrib.update({**kept, "dev" if block else "file": path})
    disk.set("type", "block" if block else "file")
    drop(disk.findall("backingStore"))


def _set_format(disk: Element, form: str) -> None:
    driver = disk.find("driver")
    (make(disk, "driver", name="qemu") if driver is None else driver).set("type", form)
