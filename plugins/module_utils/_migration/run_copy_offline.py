# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copy what QEMU does not send: files of disks, UEFI variables and TPM state, and the definition of a guest that is
off.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import os.path
import stat
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_here, is_system
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query, xml_host, xml_host_bindings
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest, Volume
from ansible_collections.corral.virt.plugins.module_utils._host import files_start_block
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition, states
from ansible_collections.corral.virt.plugins.module_utils._migration import (
    files_migration,
    plan_concurrent_changes,
    run_migration_files,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import (
    DiskMove,
    Move,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.run_endpoints import Endpoints
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_disk,
    files_lvm,
    libvirt_storage,
    libvirt_transfer,
    run_directories,
)
from ansible_collections.corral.virt.plugins.module_utils._system import locks
from ansible_collections.corral.virt.plugins.module_utils._system.progress import Tell


class Hold(contextlib.AbstractContextManager["Hold"]):
    """Keeps QEMU processes from writing a guest's files, with QEMU's locks, and the guest from starting, with an entry
    for the hook. Both end with this process.

    `complete` is True if one of the two holds: a filesystem may have no locks, and a host no hook.
    """

    def __init__(self, uri: str, guest: str, uuid: str, paths: t.Iterable[str], reason: str) -> None:
        self._here, self._is_system = is_here(uri), is_system(uri)
        self._guest, self._uuid, self._paths, self._reason = guest, uuid, paths, reason
        self._stack = contextlib.ExitStack()
        self._locks: dict[str, contextlib.ExitStack] = {}
        self.complete = False

    def __enter__(self) -> Hold:
        """Take the locks; raises Failed if a process writes to one of the files."""
        with contextlib.ExitStack() as stack:
            if self._is_system:
                stack.enter_context(files_start_block.held(self._uuid, self._reason))
            files = [path for path in self._paths if self._here and _is_file(path)]
            self._locks = {path: stack.enter_context(contextlib.ExitStack()) for path in files}
            locks = {path: files_disk.locked_against_writers(path, self._locks[path]) for path in files}
            plan_concurrent_changes.check_not_written(
                self._guest, [path for path, lock in locks.items() if lock == "taken"]
            )
            hooked = self._is_system and files_start_block.hooked()
            self.complete = hooked or (bool(files) and "none" not in locks.values())
            self._stack = stack.pop_all()
        return self

    def free(self, path: str) -> None:
        """Release the lock on a file that is to be deleted: the deletion checks for locks."""
        if path in self._locks:
            self._locks[path].close()

    def __exit__(self, *_error: object) -> None:
        self._stack.close()


def _is_file(path: str) -> bool:
    try:
        return os.path.isabs(path) and stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


_TPM = "/var/lib/libvirt/swtpm"


def make(endpoints: Endpoints, uuid: str, disk: DiskMove) -> None:
    """Create an empty disk on the destination, thin, of the right size and on the right base."""
    run_migration_files.create(endpoints, uuid, t.cast(Volume, disk.volume), replace=disk.replace, origin=disk.path)


def copy_disk(endpoints: Endpoints, uuid: str, disk: DiskMove, tell: Tell) -> t.Mapping[str, t.Any]:
    """Copy a disk that nobody writes to, byte for byte, keeping holes; raises Failed if somebody wrote to it meanwhile.

    Returns the volume as it was on the source.
    """
    volume = t.cast(Volume, disk.volume)
    before = _volume(endpoints.source, disk.path)
    # A plain file: what it holds (a qcow2 header, say) travels with its bytes.
    size_bytes = before["physical_bytes"]
    file = dataclasses.replace(
        Volume(volume.pool, volume.name, volume.path, size_bytes, "raw"),
        allocation_bytes=size_bytes if volume.allocation_bytes else None,
    )
    run_migration_files.create(endpoints, uuid, file, replace=disk.replace, origin=disk.path)
    run_migration_files.filled(endpoints, uuid, file.path)
    phase = f"copying {disk.target}"
    in_place = libvirt_transfer.copy(
        endpoints.source,
        disk.path,
        endpoints.dest,
        file.pool,
        file.name,
        lambda done: tell(phase, done, file.capacity_bytes),
        is_device=before.get("device", False),
    )
    plan_concurrent_changes.check_unchanged(disk.path, before, _volume(endpoints.source, disk.path))
    libvirt_storage.refresh(endpoints.dest, file.pool)
    _check_in_place(endpoints, file, in_place=in_place)
    run_migration_files.finished(endpoints, uuid, file)
    return before


def _check_in_place(endpoints: Endpoints, file: Volume, *, in_place: bool) -> None:
    """Raise Failed if the file that was filled no longer has its name."""
    xml = libvirt_storage.volume_at(endpoints.dest, file.path)
    same_size = xml is not None and xml_host.volume(xml)["physical_bytes"] == file.capacity_bytes
    # What was stored in a new logical volume before may be the same; its UUID is compared when all is copied.
    in_place = in_place or file.path.startswith("/dev/")
    plan_concurrent_changes.check_name_kept(file.path, in_place=in_place and same_size)


def check_unwritten(endpoints: Endpoints, copied: t.Mapping[str, t.Mapping[str, t.Any]]) -> None:
    """Raise Failed if somebody wrote to a disk after it was copied."""
    for path, before in copied.items():
        plan_concurrent_changes.check_unchanged(path, before, _volume(endpoints.source, path))


def differing(endpoints: Endpoints, disks: t.Iterable[DiskMove]) -> list[str]:
    """Paths of disks whose copy on the destination has another content; both are read in full."""
    found = []
    for disk in disks:
        volume = t.cast(Volume, disk.volume)
        there = libvirt_storage.volume_at(endpoints.dest, disk.dest_path)
        size = 0 if there is None else xml_host.volume(there)["physical_bytes"]
        mine = locks.digest(disk.path, size)
        if not (mine and libvirt_transfer.digest(endpoints.dest, volume.pool, volume.name) == mine):
            found.append(disk.path)
    return found


def _volume(connection: t.Any, path: str) -> t.Mapping[str, t.Any]:
    """The volume; of a logical one of this machine what the kernel knows, as libvirt lists no thin ones."""
    if path.startswith("/dev/") and is_here(connection.getURI()):
        size_bytes = files_lvm.size_bytes(path)
        told = {"physical_bytes": size_bytes, "modified_s": locks.sectors_written(path), "device": True}
        return plan_concurrent_changes.check_there(path, told if size_bytes else None)
    return _there(path, libvirt_storage.volume_at(connection, path))


def _there(path: str, xml: str | None) -> t.Mapping[str, t.Any]:
    return plan_concurrent_changes.check_there(path, None if xml is None else xml_host.volume(xml))


def files(found: FoundGuest) -> list[str]:
    """Files that a guest that is off has beside its disks: UEFI variables and TPM state."""
    state = [
        os.path.join(folder, name)
        for folder, _below, names in os.walk(os.path.join(_TPM, found.uuid))
        for name in names
    ]
    nvram = [path for path in xml_host_bindings.files(found.xml) if os.path.exists(path)]  # none before its first start
    return [*nvram, *sorted(path for path in state if not path.endswith(".lock"))]


def copy_file(endpoints: Endpoints, uuid: str, path: str) -> None:
    """Copy a file that is in no pool; its directory becomes a pool meanwhile.

    Raises Failed if the path is used or taken on the destination.
    """
    directory, name = os.path.split(path)
    plan_concurrent_changes.check_path_free(
        path, user=run_migration_files.users(endpoints.dest, uuid).get(path), taken=False
    )
    with (
        run_directories.pool_for(endpoints.source, directory) as here,
        run_directories.pool_like(endpoints.dest, directory, endpoints.source, here) as there,
    ):
        run_migration_files.clear(endpoints, uuid, [path])
        plan_concurrent_changes.check_path_free(
            path, user=None, taken=libvirt_storage.volume_in(endpoints.dest, there, name) is not None
        )
        size = _there(path, libvirt_storage.volume_in(endpoints.source, here, name))["physical_bytes"]
        file = Volume(there, name, path, size, "raw")
        run_migration_files.create(endpoints, uuid, file, replace=False)
        run_migration_files.filled(endpoints, uuid, path)
        in_place = libvirt_transfer.copy(endpoints.source, path, endpoints.dest, there, name, lambda _done: None)
        libvirt_storage.refresh(endpoints.dest, there)
        _check_in_place(endpoints, file, in_place=in_place)
        run_migration_files.finished(endpoints, uuid, file)


def reserve(endpoints: Endpoints, move: Move) -> None:
    """Reserve the guest's name and UUID on the destination, so that nobody can start it there; raises Failed if another
    guest has one of them, or if it is no longer off here.
    """
    domain = libvirt_query.by_uuid(endpoints.source, move.uuid)
    portable = xml_host_bindings.with_firmware(definition.portable(domain), dict(move.firmware))
    portable = xml_host_bindings.with_disks(portable, move.renamed)
    document = xml_host_bindings.reserved(portable, xml_host_bindings.arriving_name(move.uuid))
    definition.reserve(endpoints.dest, move.guest, document, files_migration.shared_state(move.uuid))
    if not move.active:
        plan_concurrent_changes.check_off(move.guest, states.of(domain))


def check_reserved(dest: t.Any, uuid: str, name: str) -> FoundGuest:
    """The reserved guest on the destination; raises Failed if somebody replaced its definition."""
    waiting = libvirt_query.find_by_uuid(dest, uuid)
    plan_concurrent_changes.check_reserved(name, reserved=waiting is not None and is_open(waiting))
    return t.cast(FoundGuest, waiting)


def is_open(there: FoundGuest) -> bool:
    """True if the destination's stored definition may be replaced: it is reserved, or there is none."""
    return xml_host_bindings.is_reserved(there.xml) or not there.persistent


def is_reserved(dest: t.Any, uuid: str) -> bool:
    """True if nobody has replaced the reserved definition while the guest arrives."""
    waiting = libvirt_query.find_by_uuid(dest, uuid)
    return waiting is None or is_open(waiting)


def release(dest: t.Any, uuid: str, name: str) -> None:
    """Replace the reserved definition, so that the guest can be started on the destination."""
    waiting = check_reserved(dest, uuid, name)
    if waiting.name != name:  # a run was killed before it had given the guest its name
        definition.rename(dest, uuid, name)
        waiting = check_reserved(dest, uuid, name)
    if not waiting.persistent:
        definition.define(dest, name, definition.portable(libvirt_query.by_uuid(dest, uuid)))
        return
    definition.define(dest, name, xml_host_bindings.released(waiting.xml, waiting.live_xml or ""))
