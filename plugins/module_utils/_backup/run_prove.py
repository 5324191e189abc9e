# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prove that backups can be restored: facts, plan, gate, result."""

from __future__ import annotations

import contextlib
import os
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._backup import (
    files_proof,
    files_repository,
    files_restored,
    libvirt_proof,
    plan_prove,
    run_backup,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.model_backup import BackupPoint, Proof
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_prove import LeftProof, ProofPlan, ProofSpec
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_repository import checked_repository
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_restore import RestoreSpec
from ansible_collections.corral.virt.plugins.module_utils._backup.run_restore import RestoreGuestHost, RestoreWork
from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate, Looked
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._guest import run_guests
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition
from ansible_collections.corral.virt.plugins.module_utils._libvirt.model_state import Doing
from ansible_collections.corral.virt.plugins.module_utils._power import libvirt_wait
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import GuestStep, Patience
from ansible_collections.corral.virt.plugins.module_utils._snapshot import libvirt_snapshot
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_clone_spec
from ansible_collections.corral.virt.plugins.module_utils._system import locks, private
from ansible_collections.corral.virt.plugins.module_utils._system.progress import Progress

_LOOK_S = 1


def converge(connection: t.Any, params: t.Mapping[str, t.Any], gate: Gate) -> dict[str, t.Any]:
    """Remove what an interrupted run has left, prove the chosen backups one after another; one result for all."""
    spec = plan_prove.checked(params)
    plan_clone_spec.check_local(connection.getURI())
    with contextlib.ExitStack() as stack:
        gate.hold(stack, lambda: locks.locked(plan_prove.LOCK, plan_prove.ANOTHER_RUN))
        progress = Progress(os.path.join(private.place(), f"{plan_prove.LOCK}.progress"))
        gate.hold(stack, lambda: progress)
        facts = files_repository.look(spec.repository)
        checked_repository(spec.repository, facts, "cannot prove backups")
        cleared = plan_prove.removals(_left(connection))
        gate.run(cleared, _Work(connection, spec, progress).do)
        known = libvirt_query.of_all(connection, lambda domain: domain.UUIDString())
        chosen = plan_prove.sample(spec, files_repository.read(spec.repository, str(facts.marker)), known)
        removed = [step.uuid for step in cleared]
        results = run_guests.outcomes(
            chosen,
            lambda uuid: _Work(connection, spec, progress).prove(uuid, gate, removed),
            lambda uuid: {"name": uuid},
            at_once=1,
        )
    found = run_guests.summary(results)
    return {
        **found,
        "changed": found["changed"] or bool(cleared),
        "steps": [*map(str, cleared), *found["steps"]],
        "notes": [*found["notes"], *plan_prove.unproven(spec, chosen)],
    }


def _left(connection: t.Any) -> list[LeftProof]:
    return plan_prove.left(libvirt_query.of_all(connection, libvirt_query.found))


class _Host(RestoreGuestHost):
    """The `ProofHost` behind a connection."""

    def memory_free_bytes(self) -> int:
        return libvirt_proof.memory_free_bytes(self._connection)


class _Work:
    """The proof of one backup."""

    def __init__(self, connection: t.Any, spec: ProofSpec, tell: Progress) -> None:
        self.connection, self.spec, self.tell = connection, spec, tell
        self.host = _Host(connection, tell)
        self.seconds, self.why, self.evidence = 0.0, "", ""
        self._point: BackupPoint | None = None
        self._begun = False
        self._started_s = 0.0

    def prove(self, uuid: str, gate: Gate, removed: t.Collection[str]) -> dict[str, t.Any]:
        """Plan and do, and in the end remove what was made; what goes wrong is recorded in the repository, too."""
        seen = plan_prove.scene(self.spec, uuid, self.host)
        self._point, made, told = seen.point, ProofPlan(), list[object]()
        try:
            made = plan_prove.plan(seen, self.spec, removed)
            self.evidence = made.evidence
            told = gate.run(made.steps[: -made.last], self.do)
        except VirtError as error:
            made = plan_prove.failed(made, seen, getattr(error, "done", ()), begun=self._begun)
            self.why = str(error.__cause__ if isinstance(error.__cause__, VirtError) else error)
        for step in made.closing:
            self._close(gate, step)
        result = run_guests.result(seen.point.guest, made, told)
        more = {
            "uuid": uuid,
            "point": seen.point.id,
            "evidence": self.evidence or None,
            "seconds": self.seconds or None,
        }
        failure = {"failed": True, "msg": self.why} if self.why else {}
        return {**result, **more, **failure}

    def _close(self, gate: Gate, step: GuestStep) -> None:
        """Do a step whatever became of the others."""
        try:
            gate.run([step], self.do)
        except VirtError as error:
            self.why = "; ".join(word for word in (self.why, str(error)) if word)

    def do(self, step: GuestStep) -> object:
        """Do one step."""
        if type(step) in _DOERS:
            return _DOERS[type(step)](self, step)
        return RestoreWork(self.connection, RestoreSpec(self.spec.repository, ""), self.tell).do(step)

    def begin(self, step: plan_prove.BeginProof) -> None:
        """Define the guest, and create the directory of its disks."""
        definition.define(self.connection, step.guest, step.xml)
        self._begun = True
        files_proof.create(step.directory)

    def isolate(self, step: plan_prove.Isolate) -> None:
        """Create the network that leads nowhere, and take its bridge down before any guest is on it."""
        libvirt_proof.isolate(self.connection, step)
        files_proof.take_down(step.bridge)
        self._started_s = time.monotonic()  # the next step starts the guest

    def wait(self, step: plan_prove.AwaitEvidence) -> None:
        """Look again and again, as long as the guest runs and its time is not over."""
        patience = Patience(step.timeout_s)
        while True:
            last = self._lacks(step)
            elapsed_s = time.monotonic() - self._started_s
            self.tell(step.waiting, 0, 0, f"started {elapsed_s:.0f} s ago")
            if last is None:
                self.seconds = round(elapsed_s, 1)
                return
            seen = libvirt_wait.observe(self.connection, step.guest, step.uuid)
            patience.sees(elapsed_s, Doing(seen.cpu_s, seen.disk_reads))
            plan_prove.check_waiting(step, seen, elapsed_s, last, over=patience.is_over(elapsed_s))
            time.sleep(_LOOK_S)

    def _lacks(self, step: plan_prove.AwaitEvidence) -> str | None:
        """None if the evidence is there; else what was told instead."""
        if step.evidence == "probe":
            names = {"CORRAL_GUEST": step.guest, "CORRAL_UUID": step.uuid, "CORRAL_OF": step.of}
            return files_proof.probe(step.probe, names)
        if step.evidence == "login":
            return None if plan_prove.has_login(files_proof.console(plan_prove.log_of(step.guest))) else ""
        return None if libvirt_proof.agent_answers(self.connection, step.uuid) else ""

    def remove(self, step: plan_prove.RemoveProof) -> None:
        """Remove all that was made; the definition, whose record tells of the rest, at the end."""
        libvirt_snapshot.stop(self.connection, step.uuid, step.guest)
        libvirt_proof.remove_network(self.connection, step.uuid)
        files_proof.remove(step.directory, plan_prove.log_of(step.guest))
        for path in plan_prove.states_of(step):
            files_restored.discard(path)
        kinds = (*libvirt_query.managed_state(self.connection, step.uuid), "nvram", "tpm")
        definition.undefine_by(self.connection, step.uuid, step.guest, kinds)

    def record(self, _step: plan_prove.RecordProof) -> None:
        """Record in the repository how it went."""
        proof = Proof(int(time.time()), self.host.host_uuid(), self.evidence, self.seconds, self.why)
        point = t.cast(BackupPoint, self._point)
        files_repository.write_proof(self.spec.repository, point, proof)
        if proof.ok and libvirt_query.find_by_uuid(self.connection, point.uuid):  # for reports; else it is elsewhere
            run_backup.note(self.connection, point.uuid, proven_s=proof.ended_s)


_DOERS: dict[type[GuestStep], t.Callable[[t.Any, t.Any], object]] = {
    plan_prove.BeginProof: _Work.begin,
    plan_prove.Isolate: _Work.isolate,
    plan_prove.AwaitEvidence: _Work.wait,
    plan_prove.RemoveProof: Looked(
        lambda work, step: plan_prove.check_left(step, _left(work.connection)), _Work.remove
    ),
    plan_prove.RecordProof: _Work.record,
}
