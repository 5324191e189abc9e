# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Read libvirt's document of a snapshot."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import Snapshot, SnapshotDisk
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_sources import Located, path_of
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, parse

__all__ = ["snapshot"]


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
        )


def _format(disk: Element) -> str | None:
    driver = disk.find("driver")
    return None if driver is None else t.cast("str | None", driver.get("type"))


def _path(disk: Element, located: Located) -> str | None:
    source = disk.find("source")
    return None if source is None else path_of(source, located)
