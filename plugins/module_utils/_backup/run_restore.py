# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restore a guest from a repository: facts, plan, gate, result."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
import typing as t
import uuid as uuids

from ansible_collections.corral.virt.plugins.module_utils._backup import (
    files_repository,
    files_restored,
    libvirt_backup,
    plan_backup_steps,
    plan_instant_restore,
    plan_repository,
    plan_restore,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.model_backup import Pin, Repository, needed
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_restore import (
    RestoreNetwork,
    RestorePlan,
    RestoreScene,
    RestoreSpec,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.run_backup import BackupGuestHost, note
from ansible_collections.corral.virt.plugins.module_utils._backup.xml_restored import macs_on, pausing, reporting
from ansible_collections.corral.virt.plugins.module_utils._core.cached_answers import asked, asked_of
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, NotFound, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate, Looked
from ansible_collections.corral.virt.plugins.module_utils._disk_move import run_disk_move
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record, libvirt_query, xml_host
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._guest import (
    plan_guest_steps,
    run_definition,
    run_guest_steps,
    run_guests,
)
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import explained
from ansible_collections.corral.virt.plugins.module_utils._power import run_pacemaker
from ansible_collections.corral.virt.plugins.module_utils._snapshot import libvirt_snapshot, plan_snapshot_steps
from ansible_collections.corral.virt.plugins.module_utils._snapshot.run_snapshot import GuestSnapshotHost
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_disk,
    files_qemu_img,
    libvirt_blockjob,
    libvirt_storage,
    plan_clone_spec,
    run_disposal,
    run_pool_directory,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory
from ansible_collections.corral.virt.plugins.module_utils._system import identity, locks, timer
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import OwnedVolume
from ansible_collections.corral.virt.plugins.module_utils._system.progress import Progress


def converge(connection: t.Any, params: t.Mapping[str, t.Any], gate: Gate) -> dict[str, t.Any]:
    """Restore the guest."""
    since = time.monotonic()
    spec = plan_restore.checked(params)
    plan_clone_spec.check_local(connection.getURI())
    with contextlib.ExitStack() as stack:
        name = plan_restore.scene(spec, RestoreGuestHost(connection)).name
        gate.hold(stack, lambda: locks.locked(name, plan_snapshot_steps.another_run(f"restore {name}")))
        progress = Progress(run_disk_move.progress_file(spec.name or spec.guest))
        gate.hold(stack, lambda: progress)
        work = RestoreWork(connection, spec, progress, timeout_s=params["job_timeout"])
        made, told = work.converge(gate)
    took: dict[str, t.Any] = gate.perform(lambda: {"seconds": round(time.monotonic() - since, 1)}, otherwise=dict)
    runs = {} if work.running_at is None else {"running_after_s": round(work.running_at - since, 1)}
    more = {"uuid": made.uuid, "point": made.point, "kept": list(made.kept), **runs}
    more["needs"] = [one._asdict() for one in made.needs]
    return {**run_guests.result(made.name, made, told), **more, **took}


class RestoreGuestHost(BackupGuestHost, GuestSnapshotHost):
    """The `RestoreHost` behind a connection."""

    text = asked_of(files_repository.read_text)
    is_unfinished = staticmethod(files_restored.is_unfinished)
    flat_size_bytes = asked_of(files_qemu_img.flat_bytes)

    @asked
    def guest_with(self, uuid: str) -> FoundGuest | None:
        return libvirt_query.find_by_uuid(self._connection, uuid)

    @asked
    def pool(self, name: str) -> PoolDirectory:
        return run_pool_directory.pool_of(self._connection, name)

    @asked
    def network(self, name: str) -> RestoreNetwork | None:
        with contextlib.suppress(NotFound), explained("read network", name):
            found = self._connection.networkLookupByName(name)
            guests = libvirt_query.of_all(self._connection, libvirt_query.found)
            return RestoreNetwork(
                bool(found.isActive()),
                xml_host.network(found.XMLDesc())["forward"],
                [mac for one in guests for xml in (one.xml, one.live_xml) if xml for mac in macs_on(xml, name)],
            )
        return None

    @asked
    def new_uuid(self) -> str:
        return str(uuids.uuid4())


class RestoreWork:
    """The steps of one restore."""

    def __init__(self, connection: t.Any, spec: RestoreSpec, tell: Progress, *, timeout_s: int = 0) -> None:
        self.connection, self.spec, self.tell, self.timeout_s = connection, spec, tell, timeout_s
        self.running_at: float | None = None
        self.host = RestoreGuestHost(connection, tell)
        self._uuid = ""

    def converge(self, gate: Gate) -> tuple[RestorePlan, list[object]]:
        """Plan and do; the plan, and what its steps returned."""
        made = plan_restore.plan(plan_restore.scene(self.spec, self.host))
        self._uuid = made.uuid
        resource = run_pacemaker.resource(self.connection, made.uuid)
        if made.steps:
            runs = self.spec.run or self.spec.instant
            starts = (plan_backup_steps.StartRestored, plan_backup_steps.ResumeRestored) if runs else None
            made = dataclasses.replace(
                made, steps=run_pacemaker.as_left(made.name, resource, made.steps, starts=starts)
            )
        return made, run_pacemaker.run(gate, resource, made.steps, self.do, stops=bool(made.steps))

    def do(self, step: plan_guest_steps.GuestStep) -> object:
        """Do one step."""
        if isinstance(step, plan_guest_steps.Define):
            found = libvirt_query.stored(self.connection, step.uuid)
            return run_definition.do(
                run_definition.Definition(self.connection, step.uuid, found.xml if found else None), step
            )
        if isinstance(step, (plan_guest_steps.DeleteVolume, plan_guest_steps.FinishRemoval)):
            return run_guest_steps.do(self.connection, self._uuid, step)
        return _DOERS[type(step)](self, step)

    def is_left(self, step: plan_backup_steps.RestoreDisk) -> None:
        """Remove what an interrupted run has left, if it is that and nobody uses it."""
        if step.leftover:
            run_disposal.replaced(self.connection, step.path, step.guest, step.uuid, step.leftover)

    def restore(self, step: plan_backup_steps.RestoreDisk) -> None:
        """Write a disk to a new file."""
        source = plan_repository.link_path(self.spec.repository, step.point, f"{step.target}.qcow2")
        if step.instant:
            files_restored.overlay(source, step.path)
            return
        size = step.size_bytes

        def told(percent: float) -> None:
            self.tell("copy", int(size * percent / 100), size)

        files_restored.disk(source, step.path, step.format, told)

    def define(self, step: plan_backup_steps.DefineRestored) -> None:
        """Define the guest, with the identities of its files in its record."""
        found = libvirt_query.find_by_uuid(self.connection, step.uuid)
        plan_restore.check_absent(step, found or libvirt_query.find(self.connection, step.guest))
        made = {path: known for path in step.paths if (known := identity.of_path(path))}
        for path in step.settled:  # before: a mark that stayed would let a later restore replace the guest's own files
            files_restored.settle(path)
        try:
            definition.define(self.connection, step.guest, fields_record.identified(step.xml, made))
        except VirtError:
            with contextlib.suppress(VirtError):  # libvirt does not tell: the guest may be defined
                for path in () if libvirt_query.find_by_uuid(self.connection, step.uuid) else step.settled:
                    files_restored.mark(path)
            raise
        self._refresh(step.paths)

    def _refresh(self, paths: t.Iterable[str]) -> None:
        """Let libvirt see new files."""
        for pool in {run_pool_directory.pool_with(self.connection, path) for path in paths} - {None}:
            libvirt_storage.refresh(self.connection, str(pool))

    @contextlib.contextmanager
    def is_replaceable(self, step: plan_backup_steps.PutInPlace) -> t.Iterator[None]:
        """Check that the guest is off and its disks are those of the plan; it cannot start meanwhile."""
        with contextlib.ExitStack() as stack:
            present = [disk.path for disk in step.disks if disk.expected]
            taken = [path for path in present if files_disk.locked_against_writers(path, stack) == "taken"]
            found = {disk.path: identity.of_path(disk.path) for disk in step.disks}
            active = bool(libvirt_query.by_uuid(self.connection, step.uuid).isActive())
            plan_restore.check_present(step, active=active, found=found, written=taken)
            yield

    def put_in_place(self, step: plan_backup_steps.PutInPlace) -> None:
        """Record both files of each disk as the guest's, and give them their names."""
        host = self.host.host_uuid()
        files = {disk.path: identity.of_path(disk.restored) for disk in step.disks}
        files.update({disk.aside: disk.expected for disk in step.disks if disk.expected})
        self._record(step, [OwnedVolume(path, step.uuid, host, known) for path, known in files.items()])
        files_restored.swap(step.disks)

    def _record(self, step: plan_backup_steps.PutInPlace, made: t.Sequence[OwnedVolume]) -> None:
        domain, replaced = libvirt_query.by_uuid(self.connection, step.uuid), {one.path for one in made}
        xml = libvirt_query.found(domain).xml
        kept = [one for one in fields_record.read(xml).get("volumes") or () if one.path not in replaced]
        with explained("record the disks of", step.guest):
            definition.set_record(domain, fields_record.update(xml, {"volumes": (*kept, *made)}), None)

    def are_own(self, step: plan_backup_steps.ForgetCheckpoints) -> None:
        """Check that the checkpoints belong to the repository."""
        plan_restore.check_checkpoints(step, RestoreGuestHost(self.connection).checkpoints(step.uuid))

    def start(self, step: plan_backup_steps.StartRestored) -> None:
        """Start the guest."""
        libvirt_snapshot.start(self.connection, step.uuid, step.guest)
        self.running_at = time.monotonic()

    def resume(self, step: plan_backup_steps.ResumeRestored) -> None:
        """Resume the guest."""
        with explained("resume", step.guest):
            libvirt_query.by_uuid(self.connection, step.uuid).resume()

    def keep(self, step: plan_backup_steps.KeepPoint) -> None:
        """Note in the repository that the guest runs on the point, and let QEMU read that."""
        points = needed(self._repository().points, step.point.id)
        pin = Pin(step.guest, step.uuid, self.host.host_uuid(), self.host.now_s())
        files_repository.lend(self.spec.repository, points, pin)

    def _repository(self) -> Repository:
        return RestoreGuestHost(self.connection).repository(self.spec.repository)

    def pause_on_errors(self, step: plan_backup_steps.PauseOnErrors) -> None:
        """Note with the guest that it stands on the point, and let it pause if a disk cannot be read."""
        note(self.connection, step.uuid, stands_on=step.folder, disks=step.targets, stops=step.stops)
        found = libvirt_query.found(libvirt_query.by_uuid(self.connection, step.uuid))
        definition.define(self.connection, step.guest, pausing(found.xml, step.targets)[0])

    def relink(self, step: plan_backup_steps.RelinkDisk) -> None:
        """Let a disk of a guest that is off stand on its point again."""
        source = plan_repository.link_path(self.spec.repository, step.point, f"{step.target}.qcow2")
        files_qemu_img.repoint(step.path, source, "qcow2")

    def verify(self, step: plan_backup_steps.VerifyPoint) -> None:
        """Check the files of the point."""
        with self._readable(step):
            seen = RestoreScene(self.spec, self._repository(), step.point, self.host, None)
            found = plan_repository.damages_of(seen, step.point, [disk.target for disk in seen.disks])
        plan_instant_restore.check_verified(step, found, self.spec.repository)

    def pull(self, step: plan_backup_steps.PullDisk) -> None:
        """Copy what the disk reads from the repository into it."""
        with self._readable(step):
            libvirt_blockjob.pull(
                self.connection,
                step.uuid,
                step.target,
                timeout_s=self.timeout_s,
                progress=lambda done, total: self.tell("copy", done, total),
                armed=timer.armed,
            )

    @contextlib.contextmanager
    def _readable(self, step: plan_backup_steps.VerifyPoint | plan_backup_steps.PullDisk) -> t.Iterator[None]:
        try:
            yield
        except Failed as error:
            raise Failed(f"{error}; {plan_instant_restore.going_on(step, self.spec.repository)}") from error

    def stands_alone(self, step: plan_backup_steps.ReleasePoint) -> None:
        """Check that no disk stands on a file of the repository."""
        host = RestoreGuestHost(self.connection)
        found = libvirt_query.found(libvirt_query.by_uuid(self.connection, step.uuid))
        chains = {
            str(disk.path): host.chain(str(disk.path), disk.format) for disk in host.disks(found.xml) if disk.path
        }
        plan_instant_restore.check_released(
            step, {path: [link.path for link in links[1:]] for path, links in chains.items()}
        )

    def release(self, step: plan_backup_steps.ReleasePoint) -> None:
        """Note with the guest and in the repository that it needs the point no more."""
        host = RestoreGuestHost(self.connection)
        found = libvirt_query.found(libvirt_query.by_uuid(self.connection, step.uuid))
        definition.define(self.connection, step.guest, reporting(found.xml, step.stops))
        files_repository.unpin(step.folder, step.uuid)
        repository = host.repository(self.spec.repository)
        held = [ident for ident, pins in repository.pins.items() if pins]
        then = os.path.basename(os.path.dirname(step.folder))
        files_repository.take_back(self.spec.repository, plan_instant_restore.closable(repository, then, held))
        note(self.connection, step.uuid, stands_on=None, disks=(), stops=())


_DOERS: dict[type[plan_guest_steps.GuestStep], t.Callable[[t.Any, t.Any], object]] = {
    plan_backup_steps.RestoreDisk: Looked(RestoreWork.is_left, RestoreWork.restore),
    plan_backup_steps.RestoreState: lambda work, step: files_restored.state(
        plan_repository.link_path(work.spec.repository, step.point, step.file), step.path
    ),
    plan_backup_steps.DefineRestored: RestoreWork.define,
    plan_backup_steps.ForgetCheckpoints: Looked(
        RestoreWork.are_own, lambda work, step: libvirt_backup.forget_checkpoints(work.connection, step)
    ),
    plan_backup_steps.PutInPlace: Looked(RestoreWork.is_replaceable, RestoreWork.put_in_place),
    plan_backup_steps.StartRestored: RestoreWork.start,
    plan_backup_steps.ResumeRestored: RestoreWork.resume,
    plan_backup_steps.KeepPoint: RestoreWork.keep,
    plan_backup_steps.PauseOnErrors: RestoreWork.pause_on_errors,
    plan_backup_steps.RelinkDisk: RestoreWork.relink,
    plan_backup_steps.VerifyPoint: RestoreWork.verify,
    plan_backup_steps.PullDisk: RestoreWork.pull,
    plan_backup_steps.ReleasePoint: Looked(RestoreWork.stands_alone, RestoreWork.release),
}
