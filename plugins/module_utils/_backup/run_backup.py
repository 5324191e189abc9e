# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Back guests up into a repository: facts, plan, gate, result."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._backup import (
    files_repository,
    libvirt_backup,
    plan_backup,
    plan_backup_steps,
    xml_backup,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.model_backup import (
    CHECKPOINT,
    DEFINITION,
    PART,
    BackupPoint,
    Repository,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup import BackupPlan, BackupSpec, Checkpoint
from ansible_collections.corral.virt.plugins.module_utils._core.cached_answers import asked, asked_of
from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate, Looked
from ansible_collections.corral.virt.plugins.module_utils._disk_move import libvirt_disk_move
from ansible_collections.corral.virt.plugins.module_utils._domain import (
    libvirt_query,
    xml_backup_record,
    xml_host,
    xml_snapshot,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_snapshot import GuestDisk
from ansible_collections.corral.virt.plugins.module_utils._guest import run_guests
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition, states
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import GuestStep, Note
from ansible_collections.corral.virt.plugins.module_utils._snapshot import files_snapshot, plan_snapshot_steps
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_qemu_img,
    libvirt_blockjob,
    libvirt_storage,
    plan_clone_spec,
    run_snapshots,
)
from ansible_collections.corral.virt.plugins.module_utils._system import dm_crypt, free_space, locks, private, timer
from ansible_collections.corral.virt.plugins.module_utils._system.progress import Progress
from ansible_collections.corral.virt.plugins.module_utils._xml.names import BACKED

_THAW_S = 30  # after which systemd thaws a guest whose run has died


def converge(connection: t.Any, params: t.Mapping[str, t.Any], gate: Gate) -> dict[str, t.Any]:
    """Back each guest up, or delete a point, and return one result for all."""
    specs = plan_backup.checked(params)
    plan_clone_spec.check_local(connection.getURI())
    results = run_guests.outcomes(
        specs,
        lambda spec: _of_guest(connection, spec, params, gate),
        lambda spec: {"name": spec.guest},
        at_once=params["at_once"],
    )
    return run_guests.summary(results)


def _of_guest(connection: t.Any, spec: BackupSpec, params: t.Mapping[str, t.Any], gate: Gate) -> dict[str, t.Any]:
    since = time.monotonic()
    with contextlib.ExitStack() as stack:
        tell = None
        if spec.encrypted:  # what is looked at is what is written to
            gate.hold(stack, lambda: files_repository.kept_mounted(spec.repository))
        if libvirt_query.find(connection, spec.guest):  # else its name may be no name of a file
            gate.hold(stack, lambda: locks.locked(spec.guest, plan_snapshot_steps.another_run(f"back up {spec.guest}")))
            progress = Progress(os.path.join(private.place(), f"{spec.guest}.progress"))
            gate.hold(stack, lambda: progress)
            tell = progress
        work = _Work(connection, spec, params, tell)
        mended, first = work.mend(gate)
        made, told = work.converge(gate.after(mended.steps), mended)
        result = run_guests.result(spec.guest, made, [*first, *told])
        repairs = run_guests.result(spec.guest, mended)
        point = work.finished or made.point
        noted: list[str] = gate.perform(lambda: work.note(made.newest), otherwise=list)
        took: dict[str, t.Any] = gate.perform(lambda: {"seconds": round(time.monotonic() - since, 1)}, otherwise=dict)
        return {
            **result,
            **took,
            "notes": [*result["notes"], *noted],
            "changed": result["changed"] or repairs["changed"],
            "steps": [*repairs["steps"], *result["steps"]],
            "point": point.id if point else None,
            "disks": _described(point),
            "stored_bytes": point.stored_bytes if point and work.finished else made.bytes_expected,
            "frozen_s": work.frozen_s,
        }


def note(connection: t.Any, uuid: str, **values: t.Any) -> None:
    """Note fields of `BackupNote` with the guest; the others stay."""
    domain = libvirt_query.by_uuid(connection, uuid)
    noted = xml_backup_record.read(states.record(domain, BACKED), uuid)._replace(**values)
    definition.set_everywhere(domain, xml_backup_record.document(noted, uuid), "corral-backup")


def _described(point: BackupPoint | None) -> list[dict[str, t.Any]]:
    return [
        {"target": disk.target, "reason": disk.reason or None, "parent": disk.parent, "stored_bytes": disk.stored_bytes}
        for disk in (point.disks if point else ())
    ]


class BackupGuestHost:
    """The `BackupHost` behind a connection."""

    unencrypted = asked_of(dm_crypt.unencrypted)
    facts = staticmethod(files_repository.look)

    def __init__(self, connection: t.Any, tell: Progress | None = None) -> None:
        self._connection, self._tell = connection, tell

    @asked
    def guest(self, name: str) -> FoundGuest | None:
        return libvirt_query.find(self._connection, name)

    def located(self, pool: str, volume: str) -> str | None:
        """The path of a volume."""
        return libvirt_storage.path_in(self._connection, pool, volume)

    @asked
    def sha256(self, path: str) -> str:
        try:
            size = os.stat(path).st_size
            return files_repository.digest(path, lambda done: self._tell("check", done, size) if self._tell else None)
        except OSError:
            return ""

    def disks(self, xml: str) -> tuple[GuestDisk, ...]:
        return tuple(xml_snapshot.disks(xml, self.located))

    def kept(self, uuid: str) -> tuple[str, ...]:
        return libvirt_query.managed_state(self._connection, uuid)

    def job(self, uuid: str, target: str) -> str | None:
        return libvirt_disk_move.job(self._connection, uuid, target)

    def free_in(self, directory: str) -> int:
        return free_space.measure(directory, None).free_bytes

    @asked
    def host_uuid(self) -> str:
        return str(xml_host.host(libvirt_query.capabilities(self._connection))["uuid"])

    def now_s(self) -> int:
        return int(time.time())

    @asked
    def repository(self, path: str) -> Repository:
        return files_repository.read(path, str(self.facts(path).marker))

    @asked
    def checkpoints(self, uuid: str) -> list[Checkpoint]:
        return [
            Checkpoint(name, xml_backup.repository_of(xml), xml_backup.sizes(xml), xml_backup.is_whole(xml))
            for name, xml in libvirt_backup.checkpoints(self._connection, uuid)
        ]

    def stands_on(self, uuid: str) -> str | None:
        if libvirt_query.find_by_uuid(self._connection, uuid) is None:
            return None
        noted = states.record(libvirt_query.by_uuid(self._connection, uuid), BACKED)
        return os.path.basename(xml_backup_record.read(noted, uuid).stands_on or "") or None

    def backup_job(self, uuid: str) -> tuple[str, ...] | None:
        xml = libvirt_query.backup_xml(libvirt_query.by_uuid(self._connection, uuid))
        return xml_backup.job_targets(xml) if xml else None

    @asked
    def size_bytes(self, uuid: str, disk: GuestDisk) -> int:
        return libvirt_blockjob.seen_bytes(self._connection, uuid, disk.target)

    @asked
    def file_facts(self, path: str) -> tuple[int, int, int]:
        try:
            found = os.stat(path)
        except OSError:
            return 0, 0, 0
        return found.st_ino, found.st_mtime_ns, found.st_dev

    @asked
    def flat_bytes(self, disk: GuestDisk) -> int:
        return files_qemu_img.flat_bytes(disk.path, disk.format) if disk.path else 0

    def backed_states(self, xml: str, uuid: str) -> tuple[tuple[str, str], ...]:
        found = [
            (path, "tpm.tar" if os.path.isdir(path) else "nvram.fd") for path in run_snapshots.state_files(xml, uuid)
        ]
        seed = xml_backup.seed(xml, self.located)
        return (*found, *([(seed, "seed.iso")] if seed and os.path.isfile(seed) else []))

    @asked
    def token(self) -> str:
        return secrets.token_hex(4)


class _Work:
    """The steps about the backups of one guest."""

    def __init__(
        self, connection: t.Any, spec: BackupSpec, params: t.Mapping[str, t.Any], tell: Progress | None
    ) -> None:
        self.connection, self.spec, self.params, self.tell = connection, spec, params, tell
        self.host = BackupGuestHost(connection)
        self.frozen_s: float | None = None
        self.finished: BackupPoint | None = None
        self._found: FoundGuest | None = None
        self._written: dict[str, tuple[object, ...]] = {}  # sources of a guest that is off, as they were copied

    def mend(self, gate: Gate) -> tuple[BackupPlan, list[object]]:
        """Finish or remove what interrupted runs left."""
        seen = plan_backup.scene(self.spec, self.host)
        self._found = seen.found
        mended = plan_backup.repair(seen)
        done = gate.run(mended.steps, self.do)
        if mended.steps:
            self.host = BackupGuestHost(self.connection)
        return mended, done

    def converge(self, gate: Gate, mended: BackupPlan) -> tuple[BackupPlan, list[object]]:
        """Plan and do; the plan, and what its steps returned."""
        again = [step.name for step in mended.steps if isinstance(step, plan_backup_steps.RedefineCheckpoint)]
        assumed = gate.assumes(lambda: bool(again))
        made = plan_backup.plan(plan_backup.scene(self.spec, self.host, again, assumed=assumed))
        return made, gate.run(made.steps, self.do)

    def note(self, point: str) -> list[str]:
        """Note with the guest that a point has what it has now, and where that is; nothing without one."""
        if self._found is None or not point:
            return []
        try:
            path, host = self.spec.repository, self.host.host_uuid()
            place = {"repository": path, "repository_id": self.host.repository(path).id, "host": host}
            note(self.connection, self._found.uuid, point=point, at_s=self.host.now_s(), **place)
        except VirtError as error:
            return [f"{self.spec.guest} is backed up, but reports do not show it until the next backup: {error}"]
        return []

    def do(self, step: GuestStep) -> object:
        """Do one step."""
        return _DOERS[type(step)](self, step)

    def _current(self) -> Repository:
        return BackupGuestHost(self.connection).repository(self.spec.repository)

    def start_point(self, step: plan_backup_steps.StartPoint) -> None:
        """Create the folder of the point, with what libvirt does not put there."""
        found = libvirt_query.found(libvirt_query.by_uuid(self.connection, step.uuid))
        place = files_repository.begin(self.spec.repository, step.point, {DEFINITION: found.xml})
        for path, name in step.point.states:
            files_snapshot.copy_state(path, os.path.join(place, name))

    def push(self, step: plan_backup_steps.PushDisks) -> Note | None:
        """Let QEMU copy, and wait for its end; if the run fails, the job is aborted."""
        note = None
        with contextlib.ExitStack() as stack:
            if not step.goes_on:
                note = self._begin(step)
            stack.callback(libvirt_backup.abort, self.connection, step.uuid)
            libvirt_backup.wait(
                self.connection, step, timeout_s=self.params["job_timeout"], progress=self._told("copy")
            )
            stack.pop_all()
        if step.point.checkpoint:
            place = files_repository.folder(self.spec.repository, step.point, part=True)
            xml = libvirt_backup.checkpoint_document(self.connection, step.uuid, step.point.checkpoint)
            files_repository.write_text(os.path.join(place, CHECKPOINT), xml)
        return note

    def _begin(self, step: plan_backup_steps.PushDisks) -> Note | None:
        place = files_repository.folder(self.spec.repository, step.point, part=True)
        files = {disk.target: os.path.join(place, disk.file) for disk in step.point.disks}
        since = {disk.target: str(step.since) for disk in step.point.disks if disk.parent}
        name, checkpoint = step.point.checkpoint, None
        if name:
            checkpoint = xml_backup.checkpoint(name, self._current().id, step.bitmaps, step.targets)
        documents = xml_backup.backup(files, since, step.targets), checkpoint
        unit = f"corral-thaw-{step.uuid}"
        program = ("virsh", "--connect", self.connection.getURI(), "domfsthaw", step.uuid)
        self.frozen_s, note = libvirt_backup.begin(
            self.connection,
            step,
            documents,
            lambda: timer.arm(unit, _THAW_S, *program),
            bandwidth_mib_s=self.params["bandwidth"],
        )
        if self.frozen_s is not None:  # an agent that was silent may still freeze, and is thawed then
            timer.disarm(unit)
        return note

    def _told(self, phase: str) -> t.Callable[[int, int], None]:
        return lambda done, total: self.tell(phase, done, total) if self.tell else None

    def copy(self, step: plan_backup_steps.CopyDisk) -> None:
        """Copy a disk of the guest that is off; QEMU's locks keep it from starting meanwhile."""
        place = files_repository.folder(self.spec.repository, step.point, part=True)
        self._written[step.path] = self._seen(step.path)
        files_qemu_img.convert(
            step.path,
            os.path.join(place, f"{step.target}.qcow2"),
            from_format=step.format,
            to_format="qcow2",
            progress=lambda percent: self._told("copy")(int(percent), 100),
        )

    def _seen(self, path: str) -> tuple[object, ...]:
        """What is another if somebody writes to a file or device."""
        return *BackupGuestHost(self.connection).file_facts(path), locks.sectors_written(path)

    def finish(self, step: plan_backup_steps.FinishPoint) -> None:
        """Let the point count; that of a guest that was off only if nobody has written meanwhile."""
        plan_backup.check_unwritten(step, {path: (found, self._seen(path)) for path, found in self._written.items()})
        point = dataclasses.replace(step.point, quiesced=self.frozen_s is not None)
        self.finished = files_repository.finish(self.spec.repository, point, step.flatten, self._told("check"))

    def is_part(self, step: plan_backup_steps.DiscardPart) -> None:
        """Check that no job writes to the folder."""
        place = os.path.join(self.spec.repository, step.uuid, step.ident + PART)
        plan_backup.check_part(step, place, self.host.backup_job(step.uuid))

    def is_own(self, step: plan_backup_steps.DropCheckpoint) -> None:
        """Check that the checkpoint belongs to the repository."""
        plan_backup.check_same_checkpoint(step, BackupGuestHost(self.connection).checkpoints(step.uuid))

    def redefine(self, step: plan_backup_steps.RedefineCheckpoint) -> Note | None:
        """Let libvirt know a checkpoint again."""
        path = os.path.join(self.spec.repository, step.uuid, step.ident, CHECKPOINT)
        definition = libvirt_query.found(libvirt_query.by_uuid(self.connection, step.uuid)).xml
        xml = xml_backup.with_definition(files_repository.read_text(path), definition)
        return libvirt_backup.redefine(self.connection, step.uuid, step.name, xml)

    def is_same(self, step: plan_backup_steps.DeletePoint) -> None:
        """Check that the point is the same, and nothing stands on it."""
        seen = plan_backup.scene(self.spec, BackupGuestHost(self.connection))
        plan_backup.check_same_point(step, [*seen.points, *seen.damaged], seen.pinned)

    def delete(self, step: plan_backup_steps.DeletePoint) -> None:
        """Delete a point."""
        files_repository.delete(self.spec.repository, step.point)


_DOERS: dict[type[GuestStep], t.Callable[[t.Any, t.Any], object]] = {
    plan_backup_steps.CreateRepository: lambda _work, step: files_repository.create(step.path),
    plan_backup_steps.StartPoint: _Work.start_point,
    plan_backup_steps.PushDisks: _Work.push,
    plan_backup_steps.CopyDisk: _Work.copy,
    plan_backup_steps.FinishPoint: _Work.finish,
    plan_backup_steps.DiscardPart: Looked(
        _Work.is_part, lambda work, step: files_repository.discard(work.spec.repository, step.uuid, step.ident)
    ),
    plan_backup_steps.DropCheckpoint: Looked(
        _Work.is_own, lambda work, step: libvirt_backup.drop(work.connection, step)
    ),
    plan_backup_steps.RedefineCheckpoint: _Work.redefine,
    plan_backup_steps.DeletePoint: Looked(_Work.is_same, _Work.delete),
}
