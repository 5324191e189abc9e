# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take, delete and revert to snapshots of many guests: facts, plan, gate, result."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.cached_answers import asked
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate, Looked
from ansible_collections.corral.virt.plugins.module_utils._disk_move import run_disk_move
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record, libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import Snapshot, SnapshotRecord, Tree
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_snapshot import (
    GuestDisk,
    disks,
    snapshot,
    with_disks,
    with_files,
    without_chains,
)
from ansible_collections.corral.virt.plugins.module_utils._guest import (
    plan_guest_steps,
    run_definition,
    run_guest_steps,
    run_guests,
)
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import explained
from ansible_collections.corral.virt.plugins.module_utils._power import run_pacemaker
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import Note
from ansible_collections.corral.virt.plugins.module_utils._snapshot import (
    files_snapshot,
    libvirt_snapshot,
    plan_delete,
    plan_revert,
    plan_snapshot,
    plan_snapshot_steps,
    plan_take,
)
from ansible_collections.corral.virt.plugins.module_utils._snapshot.plan_snapshot import (
    ChainLink,
    SnapshotPlan,
    SnapshotSpec,
)
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_disk,
    files_header,
    files_qemu_img,
    plan_clone_spec,
    run_disposal,
    run_file_users,
    run_removed_disks,
    run_snapshots,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.model_removed_disk import DiskAside
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import holder
from ansible_collections.corral.virt.plugins.module_utils._system import free_space, identity, locks, timer
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity, OwnedVolume
from ansible_collections.corral.virt.plugins.module_utils._system.progress import Progress
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

_THAW_S, _START_S = 30, 60  # after which systemd thaws or starts a guest whose run has died
_PLANS: dict[str, t.Callable[[plan_snapshot.Scene], SnapshotPlan]] = {
    "present": plan_take.plan,
    "absent": plan_delete.plan,
    "reverted": plan_revert.plan,
}


def converge(connection: t.Any, params: t.Mapping[str, t.Any], gate: Gate) -> dict[str, t.Any]:
    """Bring the snapshot of each guest to its state, and return one result for all."""
    specs = plan_snapshot.checked(params, int(time.time()))
    plan_clone_spec.check_local(connection.getURI())
    results = run_guests.outcomes(
        specs,
        lambda spec: _of_guest(connection, spec, params, gate),
        lambda spec: {"name": spec.guest, "snapshot": spec.name},
        at_once=params["at_once"],
    )
    return run_guests.summary(results)


def _of_guest(connection: t.Any, spec: SnapshotSpec, params: t.Mapping[str, t.Any], gate: Gate) -> dict[str, t.Any]:
    with contextlib.ExitStack() as stack:
        tell = None
        if libvirt_query.find(connection, spec.guest):  # else its name may be no name of a file
            another_run = plan_snapshot_steps.another_run(f"work on snapshots of {spec.guest}")
            gate.hold(stack, lambda: locks.locked(spec.guest, another_run))
            progress = Progress(run_disk_move.progress_file(spec.guest))
            gate.hold(stack, lambda: progress)
            tell = progress
        work = _Work(connection, spec, params, tell)
        made, told = work.converge(gate)
        result = {
            **run_guests.result(spec.guest, made, told),
            "snapshot": made.name,
            "thrown_away": [{"path": path, "size_bytes": taken} for path, taken in made.thrown_away],
            "kept": list(made.kept),
            "frozen_s": work.frozen_s,
            "pruned": [],
        }
        if spec.keep and spec.scheduled:
            _prune(work, gate.after(made.steps), result)
    return result


def _prune(work: _Work, gate: Gate, result: dict[str, t.Any]) -> None:
    """Delete the scheduled snapshots whose time is over, the oldest first."""
    spec = work.spec
    for name in plan_snapshot.time_is_over(spec, work.scheduled()):
        one = _Work(work.connection, dataclasses.replace(spec, name=name, state="absent"), work.params, work.tell)
        try:
            made, told = one.converge(gate)
        except VirtError as error:
            result["notes"].append(str(error))
            continue
        more = run_guests.result(spec.guest, made, told)
        gate = gate.after(made.steps)
        result["pruned"].append(name)
        result["steps"] += more["steps"]
        result["notes"] += more["notes"]
        result["changed"] = result["changed"] or more["changed"]


class GuestSnapshotHost(run_disk_move.DiskMoveHost):
    """The `SnapshotHost` behind a connection."""

    state_files = staticmethod(run_snapshots.state_files)

    @asked
    def tree(self, uuid: str) -> Tree:
        return run_snapshots.tree(self._connection, uuid, secrets=True)

    @asked
    def disks(self, xml: str) -> tuple[GuestDisk, ...]:
        return tuple(disks(xml, self.located))

    @asked
    def chain(self, path: str, form: str) -> tuple[ChainLink, ...]:
        found = [ChainLink(path, form)]
        while found[-1].format == "qcow2":
            below = self._below(found[-1].path)
            if below is None or below.path in [one.path for one in found]:
                break
            found.append(below)
        return tuple(found)

    @asked
    def _below(self, path: str) -> ChainLink | None:
        """The backing file of a qcow2: chains of snapshots share most files."""
        base = next(iter(files_header.bases(path)), None)
        return ChainLink(base, files_header.backing_format(path) or "raw") if base else None

    def other_user(self, path: str, but: str, without: tuple[str, ...]) -> str | None:
        return self._others(but, without).of(path)

    @asked
    def _others(self, but: str, without: tuple[str, ...]) -> run_file_users.Users:
        return run_file_users.users(self._connection, but=but, without=without)

    def identity(self, path: str) -> FileIdentity | None:
        return identity.of_path(path)

    def is_pooled(self, directory: str) -> bool:
        held = holder(run_removed_disks.pools(self._connection), directory)
        return held is not None and held.active

    def free_in(self, directory: str) -> int:
        return free_space.measure(directory, None).free_bytes

    @asked
    def unfinished_removals(self) -> tuple[DiskAside, ...]:
        return tuple(run_disposal.unfinished(self._connection))

    def memory_bytes(self, xml: str) -> int:
        return int(parse(xml).findtext("memory") or 0) * 1024

    def has_bitmaps(self, path: str) -> bool:
        told = files_qemu_img.info(path, "qcow2").get("format-specific", {}).get("data", {})
        return bool(told.get("bitmaps"))

    @asked
    def version(self) -> int:
        return libvirt_query.libvirt_version(self._connection)

    @asked
    def token(self) -> str:
        return secrets.token_hex(4)

    @asked
    def now_s(self) -> int:
        return int(time.time())


class _Work:
    """The steps about one snapshot of one guest."""

    def __init__(
        self, connection: t.Any, spec: SnapshotSpec, params: t.Mapping[str, t.Any], tell: Progress | None
    ) -> None:
        self.connection, self.spec, self.params, self.tell = connection, spec, params, tell
        self.host = GuestSnapshotHost(connection)
        self.frozen_s: float | None = None
        self._armed = False  # systemd starts the guest, unless it is told otherwise
        self._reverted = False  # the guest runs or is off, as it was asked for; what follows only removes files
        self._unwritten = contextlib.ExitStack()  # from a merge to the definition
        self._merged: dict[str, int] = {}  # overlays of a guest that is off, and when they were written
        self._found: FoundGuest | None = None
        self._definition: run_definition.Definition | None = None

    def converge(self, gate: Gate) -> tuple[SnapshotPlan, list[object]]:
        """Plan and do; the plan, and what its steps returned."""
        scene = plan_snapshot.scene(self.spec, self.host)
        made = _PLANS[self.spec.state](scene)
        self._found = found = scene.found
        self._definition = run_definition.Definition(self.connection, found.uuid, found.xml)
        resource, again = run_pacemaker.resource(self.connection, found.uuid), self._running_again(found)
        stops = self.spec.state == "reverted" and bool(made.steps)
        if stops:
            starts = (plan_snapshot_steps.StartAgain, plan_snapshot_steps.Revert) if self.spec.run else None
            steps = run_pacemaker.as_left(found.name, resource, made.steps, starts=starts)
            made = dataclasses.replace(made, steps=steps)
        with self._unwritten:
            return made, run_pacemaker.run(gate, resource, made.steps, self.do, stops=stops, within=again)

    def _disarm(self) -> None:
        """Let systemd not start the guest any more: it is as it was asked for."""
        if self._armed:
            timer.disarm(_unit("start", t.cast(FoundGuest, self._found).uuid))
        self._armed = False

    def is_reverted(self, _step: object = None) -> None:
        """From now on nothing of this run starts the guest: removing files may take long, or fail."""
        self._reverted = True
        self._disarm()

    def start_again(self, step: plan_snapshot_steps.StartAgain) -> None:
        """Start the guest on the content of then."""
        libvirt_snapshot.start(self.connection, step.uuid, step.guest)
        self.is_reverted()

    def scheduled(self) -> list[Snapshot]:
        """The snapshots that were named by their time, with the one that this run takes."""
        scene = plan_snapshot.scene(self.spec, GuestSnapshotHost(self.connection))
        names = {entry.name for entry in scene.entries if entry.scheduled}
        found = [one for one in scene.tree.by_name.values() if one.name in names]
        new = [] if self.spec.name in scene.tree.by_name else [Snapshot(self.spec.name, scene.host.now_s())]
        return [*found, *new]

    @contextlib.contextmanager
    def _running_again(self, found: FoundGuest) -> t.Iterator[None]:
        """If a revert fails half-way, the guest that ran before runs again; the error says so."""
        try:
            yield
            self._disarm()
        except VirtError as error:
            if not found.active or self.spec.state != "reverted" or self._reverted:
                raise
            domain = libvirt_query.by_uuid(self.connection, found.uuid)
            if domain.isActive():
                self._disarm()
                raise
            libvirt_snapshot.start(self.connection, found.uuid, found.name)
            self._disarm()
            before = libvirt_query.found(domain).xml == found.xml
            content = "its content of before" if before else f"the content of snapshot {self.spec.name}"
            raise Failed(f"{error}; {found.name} runs again, on {content}", getattr(error, "done", ())) from error

    def do(self, step: plan_guest_steps.GuestStep) -> object:
        """Do one step."""
        if isinstance(step, plan_guest_steps.Define):
            return self.define(step)
        if isinstance(step, (plan_guest_steps.DeleteVolume, plan_guest_steps.FinishRemoval)):
            return run_guest_steps.do(self.connection, t.cast(FoundGuest, self._found).uuid, step)
        return _DOERS[type(step)](self, step)

    def define(self, step: plan_guest_steps.Define) -> object:
        """Replace the definition of a guest that is off, and whose merged disks nobody has written since."""
        active = bool(libvirt_query.by_uuid(self.connection, step.uuid).isActive())
        same = all(os.stat(path).st_mtime_ns == written for path, written in self._merged.items())
        plan_delete.check_still_off(step, active=active, same=same)
        done = run_definition.do(t.cast(run_definition.Definition, self._definition), step)
        self._unwritten.close()
        return done

    def record(self, step: plan_snapshot_steps.RecordSnapshot) -> None:
        """Store the entry, and the files that are made by now as disks of the guest."""
        entries = [text for text in self._entries(step) if self._named(text, step) != step.name]
        host = self.host.host_uuid()
        made = [OwnedVolume(path, step.uuid, host, identity.stamped(path)) for path in step.made]
        self._store(step, [*entries, step.entry.text()], made=made)

    def forget(self, step: plan_snapshot_steps.ForgetSnapshot) -> None:
        """Remove the entry, and the disks that are gone."""
        entries = [text for text in self._entries(step) if self._named(text, step) != step.name]
        self._store(step, entries, gone=step.gone)

    def _named(self, text: str, step: plan_snapshot_steps.SnapshotStep) -> str | None:
        entry = SnapshotRecord.of(text, step.uuid)
        return entry.name if entry else None

    def _entries(self, step: plan_snapshot_steps.SnapshotStep) -> t.Sequence[str]:
        found = libvirt_query.found(libvirt_query.by_uuid(self.connection, step.uuid))
        return fields_record.read(found.xml).get("snapshots") or ()

    def _store(
        self,
        step: plan_snapshot_steps.SnapshotStep,
        entries: t.Sequence[str],
        *,
        made: t.Sequence[OwnedVolume] = (),
        gone: t.Collection[str] = (),
    ) -> None:
        domain = libvirt_query.by_uuid(self.connection, step.uuid)
        found, replaced = libvirt_query.found(domain), {*gone, *(one.path for one in made)}

        def updated(xml: str) -> str:
            kept = [one for one in fields_record.read(xml).get("volumes") or () if one.path not in replaced]
            return fields_record.update(xml, {"snapshots": tuple(entries), "volumes": (*kept, *made)})

        with explained("record the snapshots of", step.guest):
            definition.set_record(domain, updated(found.xml), updated(found.live_xml) if found.live_xml else None)

    def take(self, step: plan_snapshot_steps.TakeSnapshot) -> Note | None:
        """Take it, and have the guest thawed whatever becomes of this process."""
        unit = _unit("thaw", step.uuid)
        program = ("virsh", "--connect", self.connection.getURI(), "domfsthaw", step.uuid)
        self.frozen_s, note = libvirt_snapshot.take(self.connection, step, lambda: timer.arm(unit, _THAW_S, *program))
        if self.frozen_s is not None:  # an agent that was silent may still freeze, and is thawed then
            timer.disarm(unit)
        return note

    def can_merge(self, step: plan_snapshot_steps.Merge | plan_snapshot_steps.MergeOff) -> None:
        """Check that the chain is still as planned."""
        found, now = (
            libvirt_query.found(libvirt_query.by_uuid(self.connection, step.uuid)),
            GuestSnapshotHost(self.connection),
        )
        tops = {disk.target: disk for disk in now.disks(found.live_xml or found.xml)}
        disk = tops.get(step.target)
        chain = now.chain(disk.path, disk.format) if disk and disk.path else ()
        plan_delete.check_merge(step, [one.path for one in chain], active=found.active)

    def merge(self, step: plan_snapshot_steps.Merge) -> None:
        """Merge a disk of the running guest."""
        libvirt_snapshot.merge(
            self.connection,
            step,
            bandwidth_mib_s=self.params["bandwidth"],
            timeout_s=self.params["job_timeout"],
            progress=self._told,
        )

    def _told(self, done: int, total: int) -> None:
        if self.tell:
            self.tell("merge", done, total)

    def merge_off(self, step: plan_snapshot_steps.MergeOff) -> None:
        """Merge a disk of the guest that is off; nobody can write to it until it is defined."""
        files_qemu_img.commit(
            step.overlay, step.base, lambda percent: self._told(int(step.size_bytes * percent / 100), step.size_bytes)
        )
        if step.above:
            files_qemu_img.repoint(step.above, step.base, step.base_format)
            return
        lock = files_disk.locked_against_writers(step.overlay, self._unwritten)
        self._merged[step.overlay] = os.stat(step.overlay).st_mtime_ns
        plan_delete.check_still_off(step, active=False, same=lock != "taken")

    def forget_chains(self, step: plan_snapshot_steps.ForgetChains) -> None:
        """Let the stored definition name no file that is merged; libvirt has changed it since it was read."""
        stored = libvirt_query.found(libvirt_query.by_uuid(self.connection, step.uuid)).xml
        xml = without_chains(stored, step.merged)
        if xml:
            definition = run_definition.Definition(self.connection, step.uuid, stored)
            now = fields_record.fingerprint(stored)
            run_definition.do(definition, plan_guest_steps.Define(step.guest, xml, "its disks", step.uuid, now))

    def redefine(self, step: plan_snapshot_steps.Redefine) -> None:
        """Let a snapshot name other files."""
        xml, current = libvirt_snapshot.document(self.connection, step.uuid, step.name)
        moved = {path: (to, form) for path, to, form in step.moved}
        changed = with_disks(with_files(xml, moved, self.host.located), dict(step.overlays))
        libvirt_snapshot.redefine(self.connection, step.uuid, step.name, changed, current=current)

    def snapshot(self, step: plan_snapshot_steps.SnapshotStep) -> Snapshot:
        """The snapshot, as libvirt knows it now."""
        return snapshot(libvirt_snapshot.document(self.connection, step.uuid, step.name)[0], self.host.located)

    def written(self, uuid: str) -> tuple[str, ...]:
        """The files that the guest writes to now."""
        found = libvirt_query.found(libvirt_query.by_uuid(self.connection, uuid))
        tops = self.host.disks(found.live_xml or found.xml)
        return tuple(str(disk.path) for disk in tops if disk.written and disk.path)

    def power_off(self, step: plan_snapshot_steps.PowerOff) -> None:
        """Switch the guest off; systemd starts it if this process dies."""
        self._arm(step.uuid)
        libvirt_snapshot.stop(self.connection, step.uuid, step.guest)

    def _arm(self, uuid: str) -> None:
        """Let systemd start the guest that is about to be off, if this process dies."""
        program = ("virsh", "--connect", self.connection.getURI(), "start", uuid)
        timer.arm(_unit("start", uuid), _START_S, *program)
        self._armed = True

    def can_revert(self, step: plan_snapshot_steps.Revert) -> None:
        """Check snapshot and files."""
        plan_revert.check_present(step, self.written(step.uuid), created_s=self.snapshot(step).created_s)

    def revert(self, step: plan_snapshot_steps.Revert) -> None:
        """Go back with libvirt, which removes what was written since, and the guest's record of now."""
        domain = libvirt_query.by_uuid(self.connection, step.uuid)
        before = libvirt_query.found(domain)
        try:
            files_snapshot.keep((*step.thrown_away, *step.spared))
            if before.active:
                self._arm(step.uuid)
            libvirt_snapshot.revert(self.connection, step)
            self.is_reverted()
        finally:
            files_snapshot.unkeep(step.thrown_away)  # of a file that is still there
            files_snapshot.give_back(step.spared)
        with explained("record the snapshots of", step.guest):
            text = fields_record.document(parse(before.xml))
            definition.set_record(domain, text, text if domain.isActive() else None)
        entries = filter(None, (SnapshotRecord.of(text, step.uuid) for text in self._entries(step)))
        entry = next((one for one in entries if one.name == step.name), None)
        if entry and step.thrown_away:  # libvirt has made the files that the guest writes to now
            new = tuple(path for path in self.written(step.uuid) if path not in entry.files)
            named = dataclasses.replace(entry, files=(*entry.files, *new))
            self.record(plan_snapshot_steps.RecordSnapshot(step.guest, step.uuid, step.name, named, new))


def _unit(what: str, uuid: str) -> str:
    return f"corral-{what}-{uuid}"


_DOERS: dict[type[plan_guest_steps.GuestStep], t.Callable[[t.Any, t.Any], object]] = {
    plan_snapshot_steps.RecordSnapshot: _Work.record,
    plan_snapshot_steps.ForgetSnapshot: _Work.forget,
    plan_snapshot_steps.CopyState: lambda _work, step: files_snapshot.copy_state(step.path, step.to),
    plan_snapshot_steps.TakeSnapshot: _Work.take,
    plan_snapshot_steps.Merge: Looked(_Work.can_merge, _Work.merge),
    plan_snapshot_steps.MergeOff: Looked(_Work.can_merge, _Work.merge_off),
    plan_snapshot_steps.ForgetChains: _Work.forget_chains,
    plan_snapshot_steps.Redefine: _Work.redefine,
    plan_snapshot_steps.DropSnapshot: Looked(
        lambda work, step: libvirt_snapshot.check_created(step, work.snapshot(step).created_s),
        lambda work, step: libvirt_snapshot.drop(work.connection, step),
    ),
    plan_snapshot_steps.CreateOverlay: lambda _work, step: files_snapshot.create_overlay(
        step.path, step.base, step.base_format
    ),
    plan_snapshot_steps.DropName: lambda _work, step: files_snapshot.unkeep([(step.path, step.name)]),
    plan_snapshot_steps.GiveBack: lambda _work, step: files_snapshot.give_back([(step.path, step.name)]),
    plan_snapshot_steps.PowerOff: Looked(
        lambda work, step: plan_revert.check_present(step, work.written(step.uuid)), _Work.power_off
    ),
    plan_snapshot_steps.PutBack: lambda _work, step: files_snapshot.put_back(step.copy, step.path),
    plan_snapshot_steps.Revert: Looked(_Work.can_revert, _Work.revert),
    plan_snapshot_steps.StartAgain: _Work.start_again,
    plan_snapshot_steps.StayOff: _Work.is_reverted,
}
