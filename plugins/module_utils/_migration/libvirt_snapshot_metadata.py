# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What libvirt keeps of a guest's snapshots: read with secrets, defined elsewhere, forgotten. No file is touched."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Unsupported
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import SavedSnapshot


def saved(domain: t.Any) -> tuple[SavedSnapshot, ...]:
    """The snapshots of a guest, parents first."""
    with contextlib.suppress(Unsupported), explained("read the snapshots of guest", domain.name()):
        return tuple(
            SavedSnapshot(
                one.getName(), one.getXMLDesc(libvirt.VIR_DOMAIN_SNAPSHOT_XML_SECURE), current=bool(one.isCurrent())
            )
            for one in domain.listAllSnapshots(libvirt.VIR_DOMAIN_SNAPSHOT_LIST_TOPOLOGICAL)
        )
    return ()


def define(domain: t.Any, snapshots: t.Iterable[SavedSnapshot]) -> None:
    """Define snapshots, parents first, whose files exist, or will."""
    for one in snapshots:
        flags = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE
        with explained(f"define snapshot {one.name} of guest", domain.name()):
            domain.snapshotCreateXML(one.xml, flags | (libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_CURRENT * one.current))


def forget_checkpoints(domain: t.Any, names: t.Collection[str]) -> None:
    """Remove libvirt's metadata of checkpoints, children first; bitmaps stay in the disks."""
    with explained("remove the metadata of the checkpoints of guest", domain.name()):
        for one in reversed(domain.listAllCheckpoints(libvirt.VIR_DOMAIN_CHECKPOINT_LIST_TOPOLOGICAL)):
            if one.getName() in names:
                one.delete(libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY)


def forget(domain: t.Any) -> None:
    """Remove libvirt's metadata of all snapshots, children first."""
    with explained("remove the metadata of the snapshots of guest", domain.name()):
        for one in reversed(domain.listAllSnapshots(libvirt.VIR_DOMAIN_SNAPSHOT_LIST_TOPOLOGICAL)):
            one.delete(libvirt.VIR_DOMAIN_SNAPSHOT_DELETE_METADATA_ONLY)
