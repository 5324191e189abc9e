# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Migrate one guest to another host: look at both hosts, plan, gate, judge by observation, report."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import changes as _changes
from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate, Looked
from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_here, is_system
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record, libvirt_query, xml_host_bindings
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import Snapshot
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_sources import sources
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition
from ansible_collections.corral.virt.plugins.module_utils._migration import (
    files_migration,
    libvirt_migrate,
    plan_concurrent_changes,
    plan_convergence,
    plan_migrate,
    plan_outcome,
    plan_preflight,
    plan_snapshot_migration,
    run_copy_offline,
    run_disk_moves,
    run_endpoints,
    run_migration_files,
    run_reconcile,
    run_send_guest,
    run_snapshots,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import (
    DiskMove,
    LeftDisk,
    MigrationHost,
    Move,
    Observation,
    SavedSnapshot,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migrate import MigrateStep
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migration_options import (
    check,
    check_local,
    dest_links,
    dest_uri,
    tuning,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_outcome import Verdict, starts_with_host
from ansible_collections.corral.virt.plugins.module_utils._migration.run_copy_offline import Hold
from ansible_collections.corral.virt.plugins.module_utils._migration.run_destination_prerequisites import lacking
from ansible_collections.corral.virt.plugins.module_utils._migration.run_endpoints import Endpoints
from ansible_collections.corral.virt.plugins.module_utils._power import run_pacemaker
from ansible_collections.corral.virt.plugins.module_utils._storage import run_disposal, run_owned_disks
from ansible_collections.corral.virt.plugins.module_utils._system import identity, locks
from ansible_collections.corral.virt.plugins.module_utils._system.model_free_space import reserve_of
from ansible_collections.corral.virt.plugins.module_utils._system.progress import ProgressWatch

_MEASURED_S = 1.1  # how much memory a guest writes is measured for a second


def converge(endpoints: Endpoints, params: t.Mapping[str, t.Any], gate: Gate, watch: ProgressWatch) -> dict[str, t.Any]:
    """Migrate or abort as requested, and return the result.

    `watch` receives the progress; once it is interrupted, the guest stays where it is.
    """
    name = check(params)
    check_local(name, endpoints.source.getURI())
    if params["state"] == "aborted":  # while the run that is to end has the lock
        return _aborted(endpoints, params, gate, watch)
    with contextlib.ExitStack() as stack:
        gate.hold(stack, lambda: locks.locked(name, plan_concurrent_changes.another_run(name)))
        gate.hold(stack, lambda: watch)
        return _Run(endpoints, params, gate, watch, stack).converge()


def _result(
    params: t.Mapping[str, t.Any],
    steps: t.Sequence[object],
    changes: t.Sequence[Change] = (),
    *,
    notes: t.Sequence[str] = (),
) -> dict[str, t.Any]:
    return {
        "changed": bool(steps),
        "name": params["name"],
        "dest": params["dest"],
        "steps": [str(step) for step in steps],
        "diff": _changes.diff(changes),
        **({"notes": [*notes]} if notes else {}),
    }


def _aborted(endpoints: Endpoints, params: t.Mapping[str, t.Any], gate: Gate, watch: ProgressWatch) -> dict[str, t.Any]:
    """Abort the guest's migration. The run that began it notices, and removes what it had made."""
    found = libvirt_query.find(endpoints.source, params["name"])
    if found is None:
        return _result(params, [])
    move = Move(found.name, found.uuid, params["dest"], dest_uri(params))
    plan_outcome.check_abort_to(move.guest, move.dest, fields_record.of(found).get("moving") or "")
    if _is_arrival(endpoints, found, move.dest):
        with contextlib.ExitStack() as stack:
            gate.hold(stack, lambda: locks.locked(move.guest, plan_concurrent_changes.another_run(move.guest)))
            return _Run(endpoints, params, gate, watch, stack).settled(found)
    run = _Run(endpoints, params, gate, watch, contextlib.ExitStack())
    steps = plan_migrate.aborting(move, job_active=libvirt_migrate.job_active(endpoints.source, move.uuid))
    if steps:
        plan_outcome.check_abort(move.guest, libvirt_migrate.state_there(endpoints.source, move.uuid))
    gate.run(steps, lambda _step: run_send_guest.abort(endpoints, move))
    with contextlib.ExitStack() as stack:
        # The run that moved it clears away what it made; where there is none any more, we do.
        gate.hold(stack, lambda: locks.locked(move.guest))
        gate.hold(stack, lambda: watch)
        recorded = fields_record.of(libvirt_query.find_by_uuid(endpoints.source, move.uuid))
        held = gate.assumes(lambda: locks.held(move.guest))
        gone = bool(params["dest_gone"])
        left = plan_migrate.clearing(move, recorded.get("moving"), held=held, gone=gone)
        if left and gone:
            run_reconcile.check_gone(endpoints, move)
        elif left:
            gate.rehearse(lambda: run_migration_files.check_visible(endpoints.or_none("dest"), recorded))
        gate.after(steps).run(left, lambda step: _clear(run, step, recorded))
    if libvirt_query.find_by_uuid(endpoints.source, move.uuid) is None:
        return _result(params, left, notes=[*run.notes, plan_outcome.too_late(move.guest, move.dest)])
    steps += left
    changes = [Change("migration", "under way", "none")] if steps else ()
    return _result(params, steps, changes, notes=run.notes)


def _clear(run: _Run, step: MigrateStep, recorded: t.Mapping[str, t.Any]) -> None:
    if isinstance(step, plan_migrate.GiveUp):
        run_reconcile.check_gone(run.endpoints, step.move)
        run_reconcile.give_up(run.endpoints.source, step.move.uuid)
    else:
        run.reconcile(step.move.uuid, recorded)


def _is_arrival(endpoints: Endpoints, found: FoundGuest, dest: str) -> bool:
    """True if the guest has come to this host by a migration to `dest` that has not ended."""
    here = run_endpoints.identity(endpoints.source)
    there = endpoints.or_none("dest") if plan_outcome.came_here(fields_record.of(found), dest, here[0]) else None
    return there is not None and here == run_endpoints.identity(there)


@dataclasses.dataclass(frozen=True)
class _Scene:
    """What a run sees before it acts, and again after each reconciliation."""

    seen: Observation
    found: FoundGuest | None  # on the source
    there: FoundGuest | None  # on the destination, when the source has none
    recorded: t.Mapping[str, t.Any]  # what is recorded with it
    source: MigrationHost
    dest: MigrationHost

    @property
    def uuid(self) -> str:
        """The UUID of the guest."""
        return t.cast(FoundGuest, self.found or self.there).uuid


class _Run:
    """The migration of one guest, from observation to result."""

    def __init__(
        self,
        endpoints: Endpoints,
        params: t.Mapping[str, t.Any],
        gate: Gate,
        watch: ProgressWatch,
        holds: contextlib.ExitStack,
    ) -> None:
        self.endpoints, self.params, self.gate, self._holds = endpoints, params, gate, holds
        self._tell, self._interrupted = watch.tell, watch.interrupted
        self._hold: Hold | None = None  # of a guest that is off
        self._copied: dict[str, t.Mapping[str, t.Any]] = {}  # its disks, as they were before they were copied
        self._undefined: str = ""  # its definition on the source, which may have to come back
        self.name: str = params["name"]
        self.notes: list[str] = []
        self.figures: dict[str, t.Any] = {}

    def converge(self, before: t.Sequence[MigrateStep] = ()) -> dict[str, t.Any]:
        """Observe, judge, and finish what an earlier run left; then again, with the steps done `before`."""
        scene = self._look()
        verdict = plan_outcome.judge(scene.seen)
        moving, dest = scene.recorded.get("moving") or "", self.params["dest"]
        plan_outcome.check(verdict, self.name, source=scene.source.name, dest=dest, moving=moving)
        task = plan_outcome.task(scene.seen, verdict, noted=self._noted(scene))
        if task != "leave" and not before:
            self._have_pacemaker_look_away(scene.uuid)
        if task != "reconcile":
            return self._finished(task, scene, verdict, before)
        if before:
            plan_outcome.check_reconciled(verdict, self.name, dest, still=True)
        first = [plan_migrate.Reconcile(self._bare_move(scene.uuid))]
        return self.gate.perform(
            lambda: self._reconciled(scene, first), otherwise=lambda: self._foretold(scene, verdict, first)
        )

    def _have_pacemaker_look_away(self, uuid: str) -> None:
        """If it runs the guest: afterwards it looks where the guest is."""
        resource = run_pacemaker.resource(self.endpoints.source, uuid)
        if resource:
            run_pacemaker.hold(resource, self.gate, self._holds)
            self.notes.append(f"Pacemaker does nothing with {resource.name} meanwhile, and looks for it then")

    def _reconciled(self, scene: _Scene, first: t.Sequence[MigrateStep]) -> dict[str, t.Any]:
        self.gate.run(first, lambda _step: self.reconcile(scene.uuid, scene.recorded))
        return self.converge(first)

    def _noted(self, scene: _Scene) -> bool:
        """True if an interrupted migration has left a note with snapshots that the source may lack."""
        return scene.seen.begun == "here" and bool(run_snapshots.noted(scene.uuid))

    def _look(self) -> _Scene:
        """A consistent look at both hosts: an earlier migration may end between two questions."""
        scene = self._ask()
        while scene.found and plan_outcome.has_left(scene.seen):
            scene = self._ask()
        return scene

    def _ask(self) -> _Scene:
        endpoints, name = self.endpoints, self.name
        found, source, dest = (
            libvirt_query.find(endpoints.source, name),
            run_endpoints.host(endpoints.source),
            run_endpoints.host(endpoints.dest),
        )
        dest = dataclasses.replace(
            dest, links=dest_links(self.params, dest.links), maintenance=self.params["dest_maintenance"]
        )
        there = libvirt_query.find(endpoints.dest, name) if found is None and name in dest.guests else None
        recorded, guest = fields_record.of(found or there), found or there
        begun = plan_outcome.begun(recorded, here=found is not None, source_uuid=source.uuid, dest=self.params["dest"])
        if guest and begun == "here":
            seen = run_reconcile.observe(
                endpoints, guest.uuid, was_paused=bool(recorded.get("moving_paused")), again=True
            )
        else:
            seen = Observation(
                found.state if found else "absent", dest.guests.get(name, ("", "absent"))[1], begun=begun
            )
        one = found is not None and plan_outcome.is_one_host(source, dest)
        return _Scene(dataclasses.replace(seen, same_host=one), found, there, recorded, source, dest)

    def _finished(
        self, task: str, scene: _Scene, verdict: Verdict, before: t.Sequence[MigrateStep]
    ) -> dict[str, t.Any]:
        """Take the remaining steps, and return the result with all steps."""
        if task == "move":
            return self._moved(scene, before)
        steps = self._left(scene, verdict) if task == "finish" else []
        self.gate.after(before).run(steps, self._do)
        changes = [Change("unfinished migration", "yes", "no")] if task == "finish" else ()
        return _result(self.params, [*before, *steps], changes)

    def _foretold(self, scene: _Scene, verdict: Verdict, before: t.Sequence[MigrateStep]) -> dict[str, t.Any]:
        """The result in check mode, which ends before the first step whose outcome decides the next ones."""
        if plan_outcome.foreseen(verdict):
            return self._moved(scene, before)
        return {**_result(self.params, before), "notes": ["further steps are known when it has ended"]}

    def _moved(self, scene: _Scene, before: t.Sequence[MigrateStep]) -> dict[str, t.Any]:
        found, source, dest = t.cast(FoundGuest, scene.found), scene.source, scene.dest
        if scene.seen.begun == "here":
            dest = plan_outcome.without_copies(dest, self.name, found.uuid)
        domain = libvirt_query.by_uuid(self.endpoints.source, found.uuid)
        if found.state == "running":
            libvirt_migrate.measure_dirtying(domain)
        snapshots = run_snapshots.known(self.endpoints.source, found.uuid, moving=scene.seen.begun == "here")
        move = self._move(found, scene.recorded, source, dest, snapshots)
        if any(disk.volume for disk in move.disks):  # their pools were looked at anew
            dest = dataclasses.replace(dest, pools=run_endpoints.pools(self.endpoints.dest))
        move, bridges = self._checked(move, found, source, dest, plan_snapshot_migration.parsed(snapshots))
        if found.state == "running" and (dirty := self._dirtying(domain)) is not None:
            self.figures["dirty_rate_mib_s"] = dirty
            self.notes += filter(None, [plan_convergence.can_work(dirty, move.tuning)])
        files = {}
        if is_here(self.endpoints.source.getURI()):
            files = {disk.path: identity.of_path(disk.path) for disk in move.disks if disk.volume}
        if not move.active:
            self.gate.hold(self._holds, lambda: self._held(move))
        steps, wanted = plan_migrate.steps(move, files), run_disk_moves.images(self.endpoints.source, move.disks)
        self.gate.after(before).run(steps, self._do)
        shown, sent = ("target", "path", "dest_path", "how", "why", "bytes_to_move"), self.figures.pop("disks", {})
        disks = [{key: getattr(item, key) for key in shown} for item in move.disks]
        return {
            **_result(self.params, [*before, *steps], [Change("host", source.name, move.dest)]),
            "mode": move.mode,
            "disks": [
                {**disk, "disk_bytes": sent[disk["target"]]} if disk["target"] in sent else disk for disk in disks
            ],
            "images": wanted,
            "bridges": list(bridges),
            "bytes_to_move": sum(item.bytes_to_move for item in move.disks),
            "notes": self.notes,
            **{key: value for key, value in self.figures.items() if value is not None},
        }

    def _checked(
        self,
        move: Move,
        found: FoundGuest,
        source: MigrationHost,
        dest: MigrationHost,
        snapshots: t.Sequence[Snapshot],
    ) -> tuple[Move, tuple[str, ...]]:
        """The move with the firmware paths on the destination, and the guest's bridges; raises Refused with all
        preflight failures.
        """
        guest = run_endpoints.guest(self.endpoints.source, found, snapshots)
        lacks = run_endpoints.cpu_incompatibility(self.endpoints.dest, dest, found.live_xml) if found.live_xml else None
        filtered = files_migration.filtered_ports(move.dest) if plan_preflight.uses_ports(move) else None
        missing = lacking(self.endpoints.source, self.endpoints.dest, dest, found, move.files)
        resource = run_pacemaker.resource(self.endpoints.source, found.uuid)
        outsider = run_endpoints.outsider(resource.name, move, dest.name) if resource else None
        taken = run_migration_files.taken_variables(self.endpoints.dest, found) if found.active else {}
        plan_preflight.check(
            move,
            guest,
            source,
            dest,
            lacks=lacks,
            ports_filtered=filtered,
            outsider=outsider,
            missing=[*missing.problems, *plan_preflight.taken_variables(taken, move.dest)],
        )
        move = dataclasses.replace(move, firmware=tuple(missing.firmware.items()))
        self.notes += plan_preflight.notes(move, missing.left, hooked=missing.hooked)
        return move, guest.bridges

    def _held(self, move: Move) -> Hold:
        """The hold that keeps others from starting the guest or writing to its disks, as far as possible."""
        paths, reason = [*(disk.path for disk in move.disks), *move.files], f"it is being migrated to {move.dest}"
        hold = self._hold = Hold(self.endpoints.source.getURI(), move.guest, move.uuid, paths, reason)
        return hold

    def _dirtying(self, domain: t.Any) -> int | None:
        """The rate at which the guest writes memory, in MiB/s; only check mode waits for the measurement."""
        self.gate.rehearse(lambda: time.sleep(_MEASURED_S))
        return libvirt_migrate.dirty_mib_s(self.endpoints.source, domain)

    def _move(
        self,
        found: FoundGuest,
        recorded: t.Mapping[str, t.Any],
        source: MigrationHost,
        dest: MigrationHost,
        snapshots: t.Sequence[SavedSnapshot],
    ) -> Move:
        own = is_here(self.endpoints.source.getURI()) and found.active
        variables, kept = run_disk_moves.variables(self.endpoints, found) if own else ((), ())
        assumed = self.gate.assumes(lambda: bool(self.params["assume_images"]))
        disks, refused = run_disk_moves.disks(
            self.endpoints, self.params, found, dest, assumed=assumed, snapshots=snapshots
        )
        self.notes += run_snapshots.notes(self.endpoints.source, found.name, snapshots)
        return self._bare_move(
            found.uuid,
            source_uuid=source.uuid,
            seen=_identity(found),
            active=found.active,
            paused=found.state == "paused",
            autostart=starts_with_host(recorded, autostart=found.autostart),
            disks=disks,
            refused=tuple(refused),
            files=() if found.active else tuple(run_copy_offline.files(found)),
            variables=variables,
            kept=kept,
            snapshots=tuple(one.name for one in snapshots),
            snapshots_seen=plan_snapshot_migration.fingerprint(snapshots),
            backups=run_endpoints.backups(self.endpoints.source, found.uuid),
        )

    def _bare_move(self, uuid: str, **more: t.Any) -> Move:
        params = self.params
        return Move(
            guest=params["name"],
            uuid=uuid,
            dest=params["dest"],
            dest_uri=dest_uri(params),
            reserve_bytes=reserve_of(params["reserve"]),
            tuning=tuning(params),
            keep_source_storage=params["keep_source_storage"],
            **more,
        )

    def _left(self, scene: _Scene, verdict: Verdict) -> list[MigrateStep]:
        """Steps that a run interrupted after the guest's arrival did not take."""
        there, recorded = t.cast(FoundGuest, scene.there), scene.recorded
        recorded_disks = {disk.path: disk for disk in map(LeftDisk.parse, recorded.get("moving_goes") or ())}
        left = run_owned_disks.look(self.endpoints.source, recorded_disks)
        goes = [path for path, disk in left.items() if not disk.gone]
        free = run_disk_moves.unused(self.endpoints.source, goes, there.uuid)
        move = self._bare_move(there.uuid, autostart=bool(recorded.get("moving_autostart")) and not there.autostart)
        reserved = run_copy_offline.is_open(there)
        disks = [recorded_disks[path] for path in goes if path in free]
        aside = {
            one.note.path: (one.place, one.note.identity)
            for one in run_disposal.unfinished(self.endpoints.source, recorded_disks)
            if one.note and one.note.guest_uuid == there.uuid
        }
        return plan_migrate.finishing(move, disks, verdict.action, reserved=reserved, aside=aside)

    def settled(self, found: FoundGuest) -> dict[str, t.Any]:
        """The result for a guest that has come to this host, and whose migration its source cannot end any more."""
        recorded = fields_record.of(found)
        reserved, runs = run_copy_offline.is_open(found), libvirt_migrate.runs_whole(self.endpoints.dest, found.uuid)
        plan_outcome.check_settles(found, runs=runs, ran=bool(recorded.get("moving_let_run")), reserved=reserved)
        move = self._bare_move(found.uuid, autostart=bool(recorded.get("moving_autostart")) and not found.autostart)
        steps = plan_migrate.finish(move, (), define=reserved)
        self.gate.run(steps, self._do)
        left = [LeftDisk.parse(text).path for text in recorded.get("moving_goes") or ()]
        notes = [f"left on the host that it came from: {', '.join(left)}"] if left else []
        return _result(self.params, steps, [Change("unfinished migration", "yes", "no")], notes=notes)

    def reconcile(self, uuid: str, recorded: t.Mapping[str, t.Any]) -> None:
        """Bring a migration that an earlier run began to its end."""
        move = self._bare_move(uuid, paused=bool(recorded.get("moving_paused")))
        self.notes += run_send_guest.resolve(self.endpoints, move, self._tell, self._interrupted)

    def _do(self, step: MigrateStep) -> None:
        _DOERS[type(step)](self, self.endpoints, step.move, step)

    def send(self, move: Move) -> None:
        """Let libvirt migrate the guest, and keep its figures."""
        self.figures.update(run_send_guest.send(self.endpoints, move, self._tell, self._interrupted))

    def tell(self, phase: str, done: int, total: int) -> None:
        """Report the progress of a copy; raises Failed if the migration was interrupted."""
        plan_concurrent_changes.check_wanted(self.name, interrupted=self._interrupted())
        self._tell(phase, done, total)

    def guarded(self, move: Move, work: t.Callable[[], object]) -> None:
        """Do work before the handover if the guest is as planned; if it fails, remove what was made."""
        try:
            found = libvirt_query.find_by_uuid(self.endpoints.source, move.uuid)
            plan_concurrent_changes.check_definition(move.guest, move.seen, _identity(found) if found else None)
            work()
        except VirtError:
            self.notes += run_reconcile.try_withdraw(self.endpoints, move)
            raise

    def copy_disk(self, move: Move, disk: DiskMove) -> None:
        """Copy a disk that nobody writes to."""
        self._copied[disk.path] = run_copy_offline.copy_disk(self.endpoints, move.uuid, disk, self.tell)

    def check_before_undefine(self, move: Move) -> None:
        """Raise Failed if the guest, one of its disks, or a copy has changed since it was copied."""

        def look() -> None:
            self.check_copies(move)
            run_copy_offline.check_reserved(self.endpoints.dest, move.uuid, move.guest)

        self.guarded(move, look)

    def check_copies(self, move: Move) -> None:
        """Raise Failed if a disk was written to after it was copied, or its copy is not the one that was made."""
        run_copy_offline.check_unwritten(self.endpoints, self._copied)
        run_migration_files.check_copied(self.endpoints, move.uuid, move.guest)

    def undefine(self, move: Move) -> None:
        """Undefine the guest on the source, and keep its definition until it is defined on the destination."""
        domain = libvirt_query.by_uuid(self.endpoints.source, move.uuid)
        self._undefined = libvirt_query.found(domain).xml
        stores = xml_host_bindings.files(self._undefined)
        used = run_disk_moves.users(self.endpoints.source, stores, move.uuid)
        definition.undefine_moved(domain, keeps_state=not self._is_held(), keeps_variables=bool(used))
        self.notes += plan_concurrent_changes.shared_variables(used)

    def _is_held(self) -> bool:
        return self._hold is not None and self._hold.complete

    def check_before_define(self, move: Move) -> None:
        """Raise Failed, with the guest back on the source, if nothing was held and somebody wrote to a disk."""
        run_copy_offline.check_reserved(self.endpoints.dest, move.uuid, move.guest)
        if self._is_held() or not self._undefined:
            return
        self.notes.append(plan_concurrent_changes.unheld(move.guest))
        copied = [disk for disk in move.disks if disk.path in self._copied]
        try:
            plan_concurrent_changes.check_same_content(move.guest, run_copy_offline.differing(self.endpoints, copied))
        except VirtError:
            definition.define(self.endpoints.source, move.guest, self._undefined)
            self.notes += run_reconcile.try_withdraw(self.endpoints, move)
            raise

    def check_before_remove(self, move: Move) -> None:
        """Raise Failed if the guest on the destination does not have the disks that were made for it there."""
        there = libvirt_query.find_by_uuid(self.endpoints.dest, move.uuid)
        plan_concurrent_changes.check_is_there(move.guest, there=there is not None)
        run_migration_files.check_arrived(self.endpoints.dest, t.cast(FoundGuest, there))

    def settle(self, move: Move) -> None:
        """Clear the record of a finished migration, and a hook entry that a killed run may have left."""
        if self._hold is None and is_system(self.endpoints.source.getURI()):
            with Hold(self.endpoints.source.getURI(), move.guest, move.uuid, (), "its migration is being finished"):
                pass
        files_migration.remove_note(move.uuid)
        run_reconcile.settle(self.endpoints.dest, move.uuid)

    def remove(self, move: Move, step: plan_migrate.RemoveDisk) -> None:
        """Delete a disk or UEFI variables on the source, if it is still the file that was migrated."""
        if self._hold:
            self._hold.free(step.path)
        there = libvirt_query.find_by_uuid(self.endpoints.dest, move.uuid)
        plan_concurrent_changes.check_is_there(move.guest, there=there is not None)  # else this may be the last copy
        arrived = t.cast(FoundGuest, there)
        pooled = step.path not in xml_host_bindings.files(arrived.live_xml or arrived.xml)
        source = self.endpoints.source
        run_disposal.dispose(
            run_disposal.Disposal(source, step.path, move.guest, move.uuid, step.identity, pooled=pooled)
        )


def _identity(found: FoundGuest) -> str:
    """The guest's stored definition (its fingerprint), and the files that it has open if it runs."""
    opened = sources(found.live_xml, "{}/{}".format) if found.live_xml else ()
    return " ".join([fields_record.fingerprint(found.xml), *sorted(opened)])


def _guarded(work: t.Callable[..., object]) -> t.Callable[..., None]:
    """A doer that runs `work` as `_Run.guarded` does."""
    return lambda run, endpoints, move, step: run.guarded(move, lambda: work(run, endpoints, move, step))


def _as_planned(run: _Run, _endpoints: Endpoints, move: Move, _step: MigrateStep) -> None:
    """Check the copies before the handover: QEMU on the destination opens whatever has the names of the disks."""
    run.guarded(move, lambda: run.check_copies(move))


_DOERS: dict[type[MigrateStep], t.Callable[[_Run, Endpoints, Move, t.Any], object]] = {
    plan_migrate.Record: lambda _run, endpoints, move, _step: run_reconcile.begin(endpoints.source, move),
    plan_migrate.DisableAutostart: _guarded(
        lambda _run, endpoints, move, _step: run_reconcile.disable_autostart(endpoints.source, move.uuid)
    ),
    plan_migrate.MakeDisk: _guarded(
        lambda _run, endpoints, move, step: run_copy_offline.make(endpoints, move.uuid, step.disk)
    ),
    plan_migrate.CopyDisk: _guarded(lambda run, _endpoints, move, step: run.copy_disk(move, step.disk)),
    plan_migrate.CopyFile: _guarded(
        lambda _run, endpoints, move, step: run_copy_offline.copy_file(endpoints, move.uuid, step.path)
    ),
    plan_migrate.Migrate: Looked(_as_planned, lambda run, _ends, move, _step: run.send(move)),
    plan_migrate.Reserve: _guarded(lambda _run, endpoints, move, _step: run_copy_offline.reserve(endpoints, move)),
    plan_migrate.CarrySnapshots: _guarded(lambda _run, endpoints, move, _step: run_snapshots.carry(endpoints, move)),
    plan_migrate.ForgetSnapshots: Looked(
        lambda run, endpoints, move, _step: run.guarded(move, lambda: run_snapshots.check_as_planned(endpoints, move)),
        lambda run, endpoints, move, _step: run.guarded(move, lambda: run_snapshots.forget(endpoints, move)),
    ),
    plan_migrate.ForgetBackupCheckpoints: Looked(
        lambda run, endpoints, move, _step: run.guarded(move, lambda: run_snapshots.check_backups(endpoints, move)),
        lambda run, endpoints, move, _step: run.guarded(move, lambda: run_snapshots.forget_backups(endpoints, move)),
    ),
    plan_migrate.UndefineOnSource: Looked(
        lambda run, _endpoints, move, _step: run.check_before_undefine(move),
        lambda run, _endpoints, move, _step: run.undefine(move),
    ),
    plan_migrate.DefineOnDest: Looked(
        lambda run, _endpoints, move, _step: run.check_before_define(move),
        lambda _run, endpoints, move, _step: run_copy_offline.release(endpoints.dest, move.uuid, move.guest),
    ),
    plan_migrate.ResumeOnDest: lambda _run, endpoints, move, _step: run_reconcile.resume_guest(
        endpoints.dest, move.uuid
    ),
    plan_migrate.SetAutostartOnDest: lambda _run, endpoints, move, _step: definition.set_autostart(
        libvirt_query.by_uuid(endpoints.dest, move.uuid), on=True
    ),
    plan_migrate.RemoveDisk: Looked(
        lambda run, _endpoints, move, _step: run.check_before_remove(move),
        lambda run, _endpoints, move, step: run.remove(move, step),
    ),
    plan_migrate.FinishRemoval: Looked(
        lambda run, _endpoints, move, _step: run.check_before_remove(move),
        lambda _run, endpoints, _move, step: run_disposal.finish(endpoints.source, step.place, step.identity),
    ),
    plan_migrate.Forget: lambda run, _endpoints, move, _step: run.settle(move),
}
