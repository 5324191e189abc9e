# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Move a disk of a guest to another pool of its host: facts, plan, gate, result."""

from __future__ import annotations

import contextlib
import functools
import os
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import changes
from ansible_collections.corral.virt.plugins.module_utils._core.cached_answers import asked, asked_of
from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotMade
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate, Looked
from ansible_collections.corral.virt.plugins.module_utils._core.object_ref import Ref
from ansible_collections.corral.virt.plugins.module_utils._disk_move import (
    libvirt_disk_move,
    plan_disk_move,
    plan_disk_move_steps,
    xml_disk_move,
)
from ansible_collections.corral.virt.plugins.module_utils._disk_move.plan_disk_place import DiskFile
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_disk, libvirt_query, xml_host
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._guest import (
    plan_guest_steps,
    run_definition,
    run_guest_steps,
)
from ansible_collections.corral.virt.plugins.module_utils._host import files_start_block
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import explained
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_disk,
    files_header,
    files_logical,
    files_lvm,
    files_qemu_img,
    libvirt_blockjob,
    libvirt_storage,
    plan_clone_spec,
    plan_pool_files,
    run_disks,
    run_disposal,
    run_file_users,
    run_pool_directory,
    run_removed_disks,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import ThinPool, VolumeGroup
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory
from ansible_collections.corral.virt.plugins.module_utils._system import (
    durable,
    free_space,
    identity,
    locks,
    private,
)
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity, OwnedVolume
from ansible_collections.corral.virt.plugins.module_utils._system.progress import Progress, Tell
from ansible_collections.corral.virt.plugins.module_utils._volume import libvirt_volume
from ansible_collections.corral.virt.plugins.module_utils._volume.model_volume import UNFINISHED, VOLUME_KIND


def progress_file(name: str) -> str:
    """Where a run tells its progress."""
    return os.path.join(private.place(), f"{name}.progress")


def converge(
    connection: t.Any, params: t.Mapping[str, t.Any], gate: Gate, progress: Progress | None = None
) -> dict[str, t.Any]:
    """Have the disk in the pool, and return the result. Its progress is in a file that is named after the guest, or in
    `progress`.
    """
    spec, since = plan_disk_move.checked(params), time.monotonic()
    plan_clone_spec.check_local(connection.getURI())
    told = progress
    with contextlib.ExitStack() as stack:
        if libvirt_query.find(connection, spec.guest):  # else its name may be no name of a file
            gate.hold(stack, lambda: locks.locked(spec.guest, plan_disk_move.another_run(spec.guest)))
            told = told or Progress(progress_file(spec.guest))
            gate.hold(stack, lambda: told)
        host = DiskMoveHost(connection)
        made = plan_disk_move.plan(spec, host)
        gate.run(made.steps, _Work(connection, host.guest(spec.guest), params, told, stack).do)
    took: dict[str, t.Any] = gate.perform(lambda: {"seconds": round(time.monotonic() - since, 1)}, otherwise=dict)
    return {
        **(took if made.steps else {}),
        "name": spec.guest,
        "disk": made.disk,
        "pool": spec.pool,
        "changed": bool(made.steps),
        "steps": [str(step) for step in made.steps],
        "diff": changes.diff(made.changes),
        "notes": list(made.notes),
        "format": made.format,
        "source": made.path,  # Ansible would describe the file of a `path`
        "moved_from": made.before,
        "old_file": made.old_file,
        "size_bytes": made.size_bytes,
    }


class DiskMoveHost:
    """The `MoveHost` behind a connection."""

    content_bytes = asked_of(files_qemu_img.flat_bytes)

    def __init__(self, connection: t.Any) -> None:
        self._connection = connection

    @asked
    def guest(self, name: str) -> FoundGuest | None:
        return libvirt_query.find(self._connection, name)

    @asked
    def pools(self) -> tuple[str, ...]:
        return tuple(one["name"] for one in libvirt_query.pools(self._connection))

    @asked
    def pool(self, name: str) -> PoolDirectory:
        return plan_pool_files.disk_pool(run_pool_directory.pool_of(self._connection, name))

    @asked
    def group(self, pool: str) -> VolumeGroup | None:
        return run_disks.volume_group(self._connection, self.pool(pool))

    @asked
    def thin_pool(self, pool: str, name: str, but: str) -> ThinPool | None:
        return run_disks.thin_pool(self.group(pool), name, but)

    @asked
    def thin_pool_of(self, path: str) -> str | None:
        return files_lvm.thin_pool_of(path) if path.startswith("/dev/") else None

    @asked
    def pool_of(self, path: str) -> str | None:
        return run_pool_directory.pool_with(self._connection, path)

    def free_bytes(self, pool: PoolDirectory) -> int:
        group = self.group(pool.name)
        return group.free_bytes if group else free_space.measure(str(pool.path), None).free_bytes

    def located(self, pool: str, volume: str) -> str | None:
        return libvirt_storage.path_in(self._connection, pool, volume)

    def kept(self, uuid: str) -> tuple[str, ...]:
        return libvirt_query.managed_state(self._connection, uuid)

    def only_backups(self, uuid: str) -> bool:
        return libvirt_query.backup_checkpoints(self._connection, uuid) is not None

    def job(self, uuid: str, target: str) -> str | None:
        return libvirt_disk_move.job(self._connection, uuid, target)

    def user(self, path: str, but: str) -> str | None:
        return self._users(but).of(path)

    @asked
    def _users(self, but: str) -> run_file_users.Users:
        return run_file_users.users(self._connection, but=but)

    @asked
    def file(self, path: str, form: str) -> DiskFile | None:
        is_device = files_disk.is_device(path)
        if not is_device and files_disk.kind(path) != "file":
            return None
        taken, known = self.taken_bytes(path), identity.of_path(path)
        bare = DiskFile(taken, taken, form, None, None, None, False, known, is_device, files_lvm.is_open(path))
        if form == "raw":  # its first bytes are the guest's
            size = files_logical.ready_bytes(path) if is_device else os.path.getsize(path)
            return bare._replace(capacity_bytes=size)
        header = files_header.read(path)
        if header.format != form:
            return bare._replace(format=header.format)
        said = files_qemu_img.info(path, form)
        return bare._replace(
            capacity_bytes=said["virtual-size"],
            backing=said.get("backing-filename"),
            backing_format=said.get("backing-filename-format"),
            data_file=header.data_file,
            encrypted=bool(said.get("encrypted")),
        )

    def exists(self, path: str) -> bool:
        return os.path.lexists(path) or files_lvm.exists(path)

    def mark(self, pool: str, name: str) -> tuple[str, FileIdentity | None] | None:
        if self.pool(pool).type == "logical":
            path = os.path.join(str(self.pool(pool).path), name)
            tagged = plan_disk_move.of_tags(files_lvm.tags(path))
            return (tagged, identity.of_path(path)) if tagged is not None else None
        left = libvirt_volume.unfinished(self._connection, _ref(pool, name))
        if left is None:
            return None
        text, _newline, which = left.partition("\n")
        path = str(libvirt_storage.path_in(self._connection, pool, name))
        found = identity.of_path(path)
        made, taken_bytes = identity.of_path(path + UNFINISHED), free_space.allocated(path) if found else 0
        return text, found if plan_disk_move.is_marked(which, _which(path), made, found, taken_bytes) else None

    def taken_bytes(self, path: str) -> int:
        return free_space.allocated(path) if os.path.isfile(path) else files_logical.size_bytes(path)

    @asked
    def host_uuid(self) -> str:
        return run_removed_disks.host_uuid(self._connection)


def _ref(pool: str, name: str) -> Ref:
    return VOLUME_KIND.ref(name, pool)


def _which(path: str) -> str:
    """Which file has the name now."""
    found = identity.of_path(path)
    return f"{found.inode} {found.born_ns} {found.mark}" if found else ""


_Copy = t.Union[plan_disk_move_steps.CopyOff, plan_disk_move_steps.ConvertOff]


class _Work:
    """The steps of one move."""

    def __init__(
        self,
        connection: t.Any,
        found: FoundGuest | None,
        params: t.Mapping[str, t.Any],
        progress: Progress | None,
        stack: contextlib.ExitStack,
    ) -> None:
        self.connection, self.params = connection, params
        self.tell: Tell = progress or (lambda _phase, _done, _total: None)
        self._unwritten = stack.enter_context(contextlib.ExitStack())  # from the copy to the definition
        uuid, xml = (found.uuid, found.xml) if found else ("", "")
        self.definition = run_definition.Definition(connection, uuid, xml)
        self._copied: _Copy | None = None
        self._before = ""  # how the original was written then

    def do(self, step: plan_guest_steps.GuestStep) -> object:
        """Do one step."""
        if isinstance(step, plan_guest_steps.Define):
            with self._unwritten:
                self._check_copy()
                return run_definition.do(self.definition, step)
        if isinstance(step, plan_guest_steps.GrowLogicalVolume):
            run_guest_steps.grow(self.connection, step)
            return None
        if isinstance(step, plan_guest_steps.GrowRunningDisk):
            domain = libvirt_query.by_uuid(self.connection, self.definition.uuid)
            libvirt_blockjob.grow(domain, step.target, step.size_bytes)
            return None
        if isinstance(step, plan_guest_steps.DeleteVolume):
            return run_guest_steps.do(self.connection, self.definition.uuid, step)
        return _DOERS[type(step)](self, step)

    def is_ours(self, step: plan_disk_move_steps.Begin | plan_disk_move_steps.BeginLogical) -> None:
        """Remove what an interrupted run has left, if it is that and nobody uses it."""
        if step.part:
            run_disposal.replaced(self.connection, step.volume.path, step.guest, self.definition.uuid, step.part)

    def begin(self, step: plan_disk_move_steps.Begin) -> None:
        """Make the file, with its mark before and after."""
        volume, ref = step.volume, _ref(step.volume.pool, step.volume.name)
        libvirt_volume.mark(self.connection, ref, step.mark, xml_host.new_raw)
        try:
            libvirt_storage.create(self.connection, volume.pool, xml_host.new_volume(volume), name=volume.name)
        except NotMade:  # somebody was faster, and the mark is not about theirs
            libvirt_volume.unmark(self.connection, ref)
            raise
        identity.stamped(volume.path)
        libvirt_volume.mark(self.connection, ref, f"{step.mark}\n{_which(volume.path)}", xml_host.new_raw)

    def begin_logical(self, step: plan_disk_move_steps.BeginLogical) -> None:
        """Make the logical volume, which has its mark from its first moment on."""
        volume, what = step.volume, f"disk {step.volume.path} of {step.guest}"
        files_logical.make(step.group, volume.name, volume.capacity_bytes, step.tags, what, step.thin_pool)
        if not step.thin_pool:
            files_logical.zero(volume.path, step.content_bytes, volume.capacity_bytes)
        libvirt_storage.refresh(self.connection, volume.pool)

    def copy_running(self, step: plan_disk_move_steps.CopyRunning) -> None:
        """Copy until the copy follows each write."""
        libvirt_disk_move.copy(
            self.connection,
            step.uuid,
            step.target,
            xml_disk_move.destination(step.to, step.format),
            shallow=step.shallow,
            bandwidth_mib_s=self.params["bandwidth"],
            timeout_s=self.params["job_timeout"],
            progress=lambda done, total: self.tell("copy", done, total),
        )

    def copy_off(self, step: plan_disk_move_steps.CopyOff) -> None:
        """Copy the file while no QEMU process can write to it."""
        self._keep_unwritten(step)
        files_disk.copy(step.path, step.to)
        self.definition.stamp(step.to)

    def convert_off(self, step: plan_disk_move_steps.ConvertOff) -> None:
        """Copy the content while no QEMU process can write to it, and compare."""
        self._keep_unwritten(step)
        done = functools.partial(self._tell_percent, step.size_bytes)
        files_qemu_img.convert_onto(
            step.path, step.to, from_format=step.format, to_format=step.to_format, empty=step.empty, progress=done
        )
        files_qemu_img.compare(step.path, step.to, form=step.format, to_format=step.to_format)
        durable.fsync(step.to)
        self.definition.stamp(step.to)

    def _tell_percent(self, size_bytes: int, percent: float) -> None:
        self.tell("copy", int(size_bytes * percent / 100), size_bytes)

    def _keep_unwritten(self, step: _Copy) -> None:
        """Keep the guest from its disk until its definition names the new one; QEMU locks no devices."""
        self.tell("copy", 0, step.size_bytes)
        if os.path.isfile(step.path):
            taken = files_disk.locked_against_writers(step.path, self._unwritten) == "taken"
        else:
            reason = f"its disk {step.path} is being moved"
            self._unwritten.enter_context(files_start_block.held(self.definition.uuid, reason))
            taken = files_lvm.is_open(step.path)
        plan_disk_move.check_still_off(step, active=self._is_active(), written=taken)
        self._copied, self._before = step, _written(step.path)

    def _is_active(self) -> bool:
        return bool(libvirt_query.by_uuid(self.connection, self.definition.uuid).isActive())

    def _check_copy(self) -> None:
        if self._copied:
            same = _written(self._copied.path) == self._before
            plan_disk_move.check_still_off(self._copied, active=self._is_active(), written=False, same=same)

    def is_copied(self, step: plan_disk_move_steps.Pivot) -> None:
        """Check that the guest's disk is the one that was copied."""
        found = libvirt_query.find_by_uuid(self.connection, step.uuid)
        live = str(found.live_xml or found.xml) if found else ""
        disk = fields_disk.by_name(live).get(step.target, {}) if live else {}
        source = disk.get("source")
        if disk.get("pool"):
            source = libvirt_storage.path_in(self.connection, disk["pool"], disk["volume"])
        copied = xml_disk_move.mirror(live, step.target) if live else None
        marked = DiskMoveHost(self.connection).mark(step.pool, os.path.basename(step.to)) if copied else None
        plan_disk_move.check_pivot(step, source, copied, marked=marked is not None and marked[1] is not None)

    def remember(self, step: plan_disk_move_steps.Remember) -> None:
        """Replace the old file by the new one in the record."""
        domain = libvirt_query.by_uuid(self.connection, step.uuid)
        found = libvirt_query.found(domain)
        made = OwnedVolume(step.to, step.uuid, run_removed_disks.host_uuid(self.connection), identity.stamped(step.to))
        live = xml_disk_move.remembered(found.live_xml, step.path, made) if found.live_xml else None
        with explained("record the disks of", step.guest):
            definition.set_record(domain, xml_disk_move.remembered(found.xml, step.path, made), live)


def _written(path: str) -> str:
    """What changes when a file or device is written."""
    return locks.sectors_written(path) or str(os.stat(path).st_mtime_ns)


_DOERS: dict[type[plan_guest_steps.GuestStep], t.Callable[[t.Any, t.Any], object]] = {
    plan_disk_move_steps.Begin: Looked(_Work.is_ours, _Work.begin),
    plan_disk_move_steps.BeginLogical: Looked(_Work.is_ours, _Work.begin_logical),
    plan_disk_move_steps.CopyRunning: _Work.copy_running,
    plan_disk_move_steps.ConvertOff: _Work.convert_off,
    plan_disk_move_steps.CopyOff: _Work.copy_off,
    plan_disk_move_steps.Pivot: Looked(
        _Work.is_copied, lambda work, step: libvirt_disk_move.pivot(work.connection, step.uuid, step.target)
    ),
    plan_disk_move_steps.Remember: _Work.remember,
    plan_disk_move_steps.Finish: lambda work, step: libvirt_volume.unmark(work.connection, _ref(step.pool, step.name)),
    plan_disk_move_steps.FinishLogical: lambda _work, step: files_logical.untag(step.path, step.tag),
}
