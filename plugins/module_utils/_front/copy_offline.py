# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What a guest takes along beside what QEMU sends: files of its disks, its UEFI variables and TPM state, its
definition when it is off.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._files.progress import Tell
from ansible_collections.corral.virt.plugins.module_utils._front import directories, migration_files
from ansible_collections.corral.virt.plugins.module_utils._front.endpoints import Endpoints
from ansible_collections.corral.virt.plugins.module_utils._libvirt import (
    definition,
    migrate,
    query,
    states,
    storage,
    transfer,
)
from ansible_collections.corral.virt.plugins.module_utils._model.domain import FoundGuest, Volume
from ansible_collections.corral.virt.plugins.module_utils._model.move import DiskMove, Move
from ansible_collections.corral.virt.plugins.module_utils._plan import concurrent_changes
from ansible_collections.corral.virt.plugins.module_utils._xml import host_bindings, host_xml

__all__ = ["copy_disk", "copy_file", "files", "make", "release", "reserve"]

_TPM = "/var/lib/libvirt/swtpm"


def make(endpoints: Endpoints, uuid: str, disk: DiskMove) -> None:
    """An empty disk on the destination, thin, of the right size and on the right base."""
    migration_files.create(endpoints, uuid, t.cast(Volume, disk.volume), replace=disk.replace)


def copy_disk(endpoints: Endpoints, uuid: str, disk: DiskMove, tell: Tell) -> None:
    """Copy a disk that nobody writes to, byte for byte, holes kept; raises Failed when somebody did write meanwhile."""
    volume = t.cast(Volume, disk.volume)
    before = _volume(endpoints.source, disk.path)
    # A plain file: what it holds (a qcow2 header, say) travels with its bytes.
    file = Volume(volume.pool, volume.name, volume.path, before["physical_bytes"], "raw")
    migration_files.create(endpoints, uuid, file, replace=disk.replace)
    migration_files.opened(endpoints, uuid, file.path)
    phase = f"copying {disk.target}"
    transfer.copy(
        endpoints.source,
        disk.path,
        endpoints.dest,
        file.pool,
        file.name,
        lambda done: tell(phase, done, file.capacity_bytes),
    )
    concurrent_changes.check_unchanged(disk.path, before, _volume(endpoints.source, disk.path))
    storage.refresh(endpoints.dest, file.pool)
    migration_files.finished(endpoints, uuid, file)


def _volume(connection: t.Any, path: str) -> t.Mapping[str, t.Any]:
    return _there(path, storage.volume_at(connection, path))


def _there(path: str, xml: str | None) -> t.Mapping[str, t.Any]:
    return concurrent_changes.check_there(path, None if xml is None else host_xml.volume(xml))


def files(found: FoundGuest) -> list[str]:
    """What a guest that is off keeps beside its disks."""
    state = [
        os.path.join(folder, name)
        for folder, _below, names in os.walk(os.path.join(_TPM, found.uuid))
        for name in names
    ]
    nvram = [path for path in host_bindings.files(found.xml) if os.path.exists(path)]  # none before its first start
    return [*nvram, *sorted(path for path in state if not path.endswith(".lock"))]


def copy_file(endpoints: Endpoints, uuid: str, path: str) -> None:
    """Copy a file that is in no pool: for that moment, its directory is one.

    Raises Failed for a path that somebody else uses there.
    """
    directory, name = os.path.split(path)
    concurrent_changes.check_path_free(path, user=migration_files.users(endpoints.dest, uuid).get(path), taken=False)
    with (
        directories.pool_for(endpoints.source, directory) as here,
        directories.pool_like(endpoints.dest, directory, endpoints.source, here) as there,
    ):
        migration_files.clear(endpoints, uuid, [path])
        concurrent_changes.check_path_free(
            path, user=None, taken=storage.volume_in(endpoints.dest, there, name) is not None
        )
        size = _there(path, storage.volume_in(endpoints.source, here, name))["physical_bytes"]
        file = Volume(there, name, path, size, "raw")
        migration_files.create(endpoints, uuid, file, replace=False)
        migration_files.opened(endpoints, uuid, path)
        transfer.copy(endpoints.source, path, endpoints.dest, there, name, lambda _done: None)
        storage.refresh(endpoints.dest, there)
        migration_files.finished(endpoints, uuid, file)


def reserve(endpoints: Endpoints, move: Move) -> None:
    """Define the guest on the destination so that nobody can start it; raises Failed when it is no longer off here."""
    domain = query.by_uuid(endpoints.source, move.uuid)
    definition.define(endpoints.dest, move.guest, host_bindings.reserved(definition.portable(domain)))
    try:
        concurrent_changes.check_off(move.guest, states.of(domain))
    except VirtError:
        migrate.discard(endpoints.dest, move.uuid)
        raise


def release(dest: t.Any, uuid: str) -> None:
    """Let it be started there."""
    waiting = query.found(query.by_uuid(dest, uuid))
    definition.define(dest, waiting.name, host_bindings.released(waiting.xml))
