# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carry the snapshots of a guest to another host, and put them back where it stays."""

from __future__ import annotations

import functools
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_sources import of_snapshot, sources
from ansible_collections.corral.virt.plugins.module_utils._migration import (
    files_migration,
    libvirt_migrate,
    plan_snapshot_migration,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import Move, SavedSnapshot
from ansible_collections.corral.virt.plugins.module_utils._migration.run_endpoints import Endpoints
from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_storage
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import explained


def known(source: t.Any, uuid: str, *, moving: bool) -> tuple[SavedSnapshot, ...]:
    """The snapshots of a guest, with those that an interrupted migration took from the source (`moving`)."""
    there = libvirt_migrate.saved_snapshots(libvirt_query.by_uuid(source, uuid))
    return plan_snapshot_migration.all_of(noted(uuid), there) if moving else there


def noted(uuid: str) -> tuple[SavedSnapshot, ...]:
    """The snapshots in the note of a migration; raises Failed if it cannot be read."""
    try:
        return files_migration.read_note(uuid)
    except (OSError, ValueError) as error:
        path = files_migration.note_path(uuid)
        raise Failed(
            f"cannot read the snapshots in {path}: {error}; restore it, or remove it if `virsh snapshot-list` shows "
            "all snapshots of the guest"
        ) from error


def is_gone(path: str) -> bool:
    """True if a file that a snapshot names no longer exists; a volume on the network has no path."""
    return os.path.isabs(path) and not os.path.lexists(path)


def notes(source: t.Any, guest: str, saved: t.Sequence[SavedSnapshot]) -> list[str]:
    """Notes on files of snapshots that are gone."""
    located = functools.partial(libvirt_storage.path_in, source)
    paths = [path for one in saved for xml in of_snapshot(one.xml) for path in sources(xml, located)]
    return plan_snapshot_migration.notes(guest, [path for path in dict.fromkeys(paths) if is_gone(path)])


def carry(endpoints: Endpoints, move: Move) -> None:
    """Note the snapshots, and define them on the destination, where the guest's place is reserved."""
    saved = check_as_planned(endpoints, move)
    path = files_migration.note_path(move.uuid)
    with explained(f"write {path}", path):
        files_migration.write_note(move.uuid, saved)
    there = libvirt_query.by_uuid(endpoints.dest, move.uuid)
    here, dest = (libvirt_query.libvirt_version(one) for one in (endpoints.source, endpoints.dest))
    libvirt_migrate.define_snapshots(there, plan_snapshot_migration.readable(saved, dest, written_by=here))
    plan_snapshot_migration.check_defined(move.guest, move.dest, saved, libvirt_migrate.saved_snapshots(there))


def check_as_planned(endpoints: Endpoints, move: Move) -> tuple[SavedSnapshot, ...]:
    """The snapshots of the guest; raises Failed if they were changed since they were read."""
    saved = libvirt_migrate.saved_snapshots(libvirt_query.by_uuid(endpoints.source, move.uuid))
    plan_snapshot_migration.check_as_planned(move, saved)
    return saved


def forget(endpoints: Endpoints, move: Move) -> None:
    """Remove the metadata of all snapshots from the source."""
    libvirt_migrate.forget_snapshots(libvirt_query.by_uuid(endpoints.source, move.uuid))


def check_backups(endpoints: Endpoints, move: Move) -> None:
    """Raise Failed if the checkpoints of backups were changed since they were read."""
    plan_snapshot_migration.check_backups(move, libvirt_query.backup_checkpoints(endpoints.source, move.uuid) or ())


def forget_backups(endpoints: Endpoints, move: Move) -> None:
    """Remove the metadata of the checkpoints of backups from the source."""
    libvirt_migrate.forget_checkpoints(libvirt_query.by_uuid(endpoints.source, move.uuid), move.backups)


def documents(domain: t.Any) -> t.Iterator[str]:
    """Definitions with the files that a guest's snapshots name as disks."""
    for one in libvirt_migrate.saved_snapshots(domain):
        yield from of_snapshot(one.xml)


def put_back(source: t.Any, uuid: str) -> None:
    """Define the snapshots in the note again, on the source, if they are missing there."""
    if saved := noted(uuid):
        domain = libvirt_query.by_uuid(source, uuid)
        gone = plan_snapshot_migration.missing(saved, libvirt_migrate.saved_snapshots(domain))
        libvirt_migrate.define_snapshots(domain, gone)
