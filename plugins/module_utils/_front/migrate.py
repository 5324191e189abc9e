# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Bring one guest to another host: look at both ends, plan, gate, judge by observation, report."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils import _changes
from ansible_collections.corral.virt.plugins.module_utils._changes import Change
from ansible_collections.corral.virt.plugins.module_utils._errors import Failed, NotFound, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._files import local, ports
from ansible_collections.corral.virt.plugins.module_utils._files.progress import Watch
from ansible_collections.corral.virt.plugins.module_utils._front import carry, send, settle, travel
from ansible_collections.corral.virt.plugins.module_utils._front import ends as looks
from ansible_collections.corral.virt.plugins.module_utils._front.ends import Ends
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition, look, migrate, storage
from ansible_collections.corral.virt.plugins.module_utils._model.domain import Found
from ansible_collections.corral.virt.plugins.module_utils._model.move import DiskMove, Host, Move
from ansible_collections.corral.virt.plugins.module_utils._model.room import reserve_of
from ansible_collections.corral.virt.plugins.module_utils._plan import convergence, meanwhile, preflight
from ansible_collections.corral.virt.plugins.module_utils._plan import migrate as plans
from ansible_collections.corral.virt.plugins.module_utils._plan.migrate import MigrateStep
from ansible_collections.corral.virt.plugins.module_utils._plan.migrate_options import check, check_local, dest_uri, tuning
from ansible_collections.corral.virt.plugins.module_utils._run import Gate
from ansible_collections.corral.virt.plugins.module_utils._xml import record, tied

__all__ = ["converge"]

_MEASURED_S = 1.1  # how much memory a guest writes is measured for a second


def converge(ends: Ends, params: t.Mapping[str, t.Any], gate: Gate, watch: Watch) -> dict[str, t.Any]:
    """Do what the parameters say: afterwards the guest is on `dest`, and nowhere else.

    `watch` hears how far it is; once it is interrupted, the guest stays where it is.
    """
    name = check(params)
    check_local(name, ends.source.getURI())
    if params["state"] == "aborted":  # while the run that is to end has the lock
        return _aborted(ends, params, gate, watch)
    another = f"cannot migrate {name}: another run is moving it from this host right now; wait for that one, or end it with state: aborted"
    with contextlib.ExitStack() as stack:
        gate.hold(stack, lambda: local.locked(name, another))
        gate.hold(stack, lambda: watch)
        return _Run(ends, params, gate, watch).converge()


def _result(params: t.Mapping[str, t.Any], steps: t.Sequence[object], changes: t.Sequence[Change] = ()) -> dict[str, t.Any]:
    return {
        "changed": bool(steps),
        "name": params["name"],
        "dest": params["dest"],
        "steps": [str(step) for step in steps],
        "diff": _changes.diff(changes),
    }


def _aborted(ends: Ends, params: t.Mapping[str, t.Any], gate: Gate, watch: Watch) -> dict[str, t.Any]:
    """No migration of the guest is under way. The run that began it sees it end, and clears away what it had made."""
    found = look.find(ends.source, params["name"])
    if found is None:
        return _result(params, [])
    move = Move(found.name, found.uuid, params["dest"], dest_uri(params))
    steps = []
    if migrate.job_active(ends.source, move.uuid):
        migrate.check_abort(look.by_uuid(ends.source, move.uuid))
        steps.append(MigrateStep(move, "abort", text=f"end the migration of {move.guest}"))
    gate.run(steps, lambda _step: send.abort(ends, move))
    with contextlib.ExitStack() as stack:
        # The run that moved it clears away what it made; where there is none any more, we do.
        mine = gate.hold(stack, lambda: local.locked(move.guest))
        gate.hold(stack, lambda: watch)
        found = look.find_by_uuid(ends.source, move.uuid)
        memory = record.read(found.live_xml or found.xml) if found else {}
        alone = mine is not None or not local.held(move.guest)
        if found is not None and memory.get("moving") == params["dest"] and alone:
            step = MigrateStep(move, "settle", text=f"clear away what the migration of {move.guest} to {move.dest} had made")
            steps.append(step)
            run = _Run(ends, params, gate, watch)
            gate.run([step], lambda _step: run.settle_earlier(found, memory))
    return _result(params, steps, [Change("migration", "under way", "none")] if steps else ())


class _Run:
    """One guest's way, from look to look."""

    def __init__(self, ends: Ends, params: t.Mapping[str, t.Any], gate: Gate, watch: Watch) -> None:
        self.ends, self.params, self.gate, self._watch = ends, params, gate, watch
        self._tell, self._interrupted = watch.tell, watch.interrupted
        self.name: str = params["name"]
        self.notes: list[str] = []
        self.figures: dict[str, t.Any] = {}

    def converge(self) -> dict[str, t.Any]:
        """Afterwards it is on the destination."""
        found, source, dest = look.find(self.ends.source, self.name), looks.host(self.ends.source), looks.host(self.ends.dest)
        if found is None and self.name not in dest.guests:
            raise NotFound(f"cannot migrate {self.name}: it is neither on {source.name} nor on {self.params['dest']}; where is it?")
        if found is None:
            return self._arrived(source)
        if source.uuid == dest.uuid and source.name == dest.name:
            return _result(self.params, [])  # this host is the destination
        before: list[MigrateStep] = []
        memory = record.read(found.live_xml or found.xml)
        if memory.get("moving"):
            before = self._unsettled(found, memory, dest)
            if self.gate.run(before, lambda _step: self.settle_earlier(found, memory)):
                return self._again(before)  # somebody else's work may have come to its end meanwhile
            if before and migrate.job_active(self.ends.source, found.uuid):
                return {**_result(self.params, before), "notes": ["what is to be done after that is known when it has ended"]}
            others = {name: its for name, its in dest.guests.items() if (name, its[0]) != (self.name, found.uuid)}
            dest = dataclasses.replace(dest, guests=others)
        return self._moved(found, source, dest, before)

    def _again(self, before: list[MigrateStep]) -> dict[str, t.Any]:
        result = _Run(self.ends, self.params, self.gate, self._watch).converge()
        return {**result, "changed": True, "steps": [*map(str, before), *result["steps"]]}

    def _moved(self, found: Found, source: Host, dest: Host, before: list[MigrateStep]) -> dict[str, t.Any]:
        domain = look.by_uuid(self.ends.source, found.uuid)
        if found.state == "running":
            migrate.measure_dirtying(domain)
        move = self._move(found, source, dest)
        if any(disk.volume for disk in move.disks):  # their pools were looked at anew
            dest = dataclasses.replace(dest, pools=looks.pools(self.ends.dest))
        guest = looks.guest(self.ends.source, found)
        lacks = looks.cpu_misfit(self.ends.dest, dest, found.live_xml) if found.live_xml else None
        deaf = ports.filtered(move.dest) if preflight.uses_ports(move) else None
        preflight.check(move, guest, source, dest, lacks=lacks, deaf=deaf)
        if found.state == "running" and (dirty := self._dirtying(domain)) is not None:
            self.figures["dirty_rate_mib_s"] = dirty
            self.notes += filter(None, [convergence.can_work(dirty, move.tuning)])
        steps, wanted = plans.steps(move), travel.images(self.ends.source, move.disks)
        self.gate.run(steps, self._do)
        shown, sent = ("target", "path", "how", "why", "bytes_to_move"), self.figures.pop("disks", {})
        disks = [{key: getattr(item, key) for key in shown} for item in move.disks]
        return {
            **_result(self.params, [*before, *steps], [Change("host", source.name, move.dest)]),
            "mode": move.mode,
            "disks": [{**disk, "disk_bytes": sent[disk["target"]]} if disk["target"] in sent else disk for disk in disks],
            "images": wanted,
            "bridges": list(guest.bridges),
            "bytes_to_move": sum(item.bytes_to_move for item in move.disks),
            "notes": self.notes,
            **{key: value for key, value in self.figures.items() if value is not None},
        }

    def _dirtying(self, domain: t.Any) -> int | None:
        """In check mode the second is waited for; else the move does not wait for a figure."""
        self.gate.rehearse(lambda: time.sleep(_MEASURED_S))
        return migrate.dirty_mib_s(self.ends.source, domain)

    def _move(self, found: Found, source: Host, dest: Host) -> Move:
        memory = record.read(found.live_xml or found.xml)
        return self._plain(
            found.uuid,
            source_uuid=source.uuid,
            active=found.active,
            paused=found.state == "paused",
            autostart=found.autostart or bool(memory.get("moving") and memory.get("moving_autostart")),  # off since an earlier run
            disks=travel.disks(self.ends, self.params, found, dest, assumed=bool(self.gate.rehearse(lambda: self.params["assume_images"]))),
            files=() if found.active else tuple(carry.files(found)),
        )

    def _plain(self, uuid: str, **more: t.Any) -> Move:
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

    def _arrived(self, source: Host) -> dict[str, t.Any]:
        """It is on the destination. When a run from here was interrupted after that, do what remained."""
        there = look.find(self.ends.dest, self.name)
        memory = record.read(there.live_xml or there.xml) if there else {}
        if there is None or memory.get("moving_from") != source.uuid:
            return _result(self.params, [])
        goes = [path for path in memory.get("moving_goes") or () if storage.volume_at(self.ends.source, path)]
        free = travel.unused(self.ends.source, goes, there.uuid)
        move = self._plain(there.uuid, autostart=bool(memory.get("moving_autostart")) and not there.autostart)
        resume = there.state == "paused" and not memory.get("moving_paused")
        steps = plans.finish(move, [path for path in goes if path in free], resume=resume, define=tied.is_reserved(there.xml))
        self.gate.run(steps, self._do)
        return _result(self.params, steps, [Change("unfinished migration", "yes", "no")])

    def _unsettled(self, found: Found, memory: t.Mapping[str, t.Any], dest: Host) -> list[MigrateStep]:
        """What an earlier run left to be decided; raises Refused where nobody may decide, or another destination is concerned."""
        there, move = memory["moving"], self._plain(found.uuid)
        if there != self.params["dest"]:
            raise Refused(
                f"cannot migrate {self.name} to {move.dest}: its migration to {there} is under way, or was interrupted; let that one end "
                f"first, or end it and clear away what it left with dest: {there} and state: aborted"
            )
        its = [uuid for uuid, _state in dest.guests.values() if uuid == found.uuid]
        whole = migrate.state_there(self.ends.source, found.uuid) not in ("migrated", "postcopy")
        if not its and whole and not migrate.job_active(self.ends.source, found.uuid):
            return []  # what was made there will be made anew; the preflight says when another guest has its name
        verdict = settle.seen(self.ends, found.uuid, was_paused=bool(memory.get("moving_paused")))
        if verdict.action == "nothing" and not verdict.wait:
            raise Refused(f"cannot migrate {self.name}: seen on both hosts: {verdict.meaning}")
        return [MigrateStep(move, "settle", text=f"settle the migration of {self.name} to {move.dest} that was interrupted")]

    def settle_earlier(self, found: Found, memory: t.Mapping[str, t.Any]) -> None:
        """Bring a migration that an earlier run began to its end, whatever that is."""
        paused = bool(memory.get("moving_paused"))
        move = self._plain(found.uuid, paused=paused, active=found.active, source_uuid=memory.get("moving_from") or "")
        if migrate.job_active(self.ends.source, found.uuid):
            send.watch(self.ends, move, self._tell, self._interrupted)
        verdict = settle.settled(self.ends, move)
        if verdict.action == "nothing":
            raise Failed(f"cannot settle the migration of {self.name} to {move.dest}: seen on both hosts: {verdict.meaning}")
        if verdict.action not in ("done", "resume_dest", "finish_dest"):
            self.notes += settle.clean_up(self.ends, found.uuid)

    def _do(self, step: MigrateStep) -> None:
        move, ends = step.move, self.ends
        disk_move = next((each for each in move.disks if each.path == step.path), None)
        verbs: dict[str, t.Callable[[], None]] = {
            "record": lambda: settle.begin(ends.source, move),
            "no_autostart": lambda: self._guarded(move, lambda: settle.hold_back(ends.source, move.uuid)),
            "make": lambda: self._guarded(move, lambda: carry.make(ends, move.uuid, t.cast(DiskMove, disk_move))),
            "carry": lambda: self._guarded(move, lambda: carry.carry(ends, move.uuid, t.cast(DiskMove, disk_move), self.tell)),
            "file": lambda: self._guarded(move, lambda: carry.carry_file(ends, move.uuid, step.path)),
            "migrate": lambda: self.figures.update(send.send(ends, move, self._tell, self._interrupted)),
            "reserve": lambda: self._guarded(move, lambda: carry.reserve(ends, move)),
            "undefine": lambda: definition.undefine(look.by_uuid(ends.source, move.uuid)),
            "define": lambda: carry.release(ends.dest, move.uuid),
            "resume": lambda: migrate.resume(ends.dest, move.uuid),
            "autostart": lambda: migrate.set_autostart(ends.dest, move.uuid, on=True),
            "remove": lambda: storage.delete(ends.source, step.path),
            "forget": lambda: settle.forget(ends.dest, move.uuid),
        }
        verbs[step.verb]()

    def tell(self, phase: str, done: int, total: int) -> None:
        """How far a copy is; raises Failed when somebody interrupted it."""
        meanwhile.check_wanted(self.name, interrupted=self._interrupted())
        self._tell(phase, done, total)

    def _guarded(self, move: Move, work: t.Callable[[], None]) -> None:
        """Work before the guest is given away: when it fails, nothing of it is left."""
        try:
            work()
        except VirtError:
            self.notes += settle.cleaned_up(self.ends, move.uuid)
            raise
