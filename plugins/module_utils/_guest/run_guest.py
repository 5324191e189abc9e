# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converge one guest: the host answers, the noun plans, the gate passes the steps on. Free of Ansible."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import os.path
import typing as t
import uuid

from ansible_collections.corral.virt.plugins.module_utils._core.cached_answers import asked, forget
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_system
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record, libvirt_query, xml_host
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import (
    DisplayDefaults,
    FoundGuest,
    GuestSpec,
    OwnedDisk,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import Missing, Prerequisites
from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import Snapshot, SnapshotRecord
from ansible_collections.corral.virt.plugins.module_utils._guest import (
    files_qemu,
    plan_guest,
    plan_guest_steps,
    run_definition,
    run_guests,
    run_prerequisites,
)
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_changes import GuestPlan
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_host_questions import Capacity
from ansible_collections.corral.virt.plugins.module_utils._network import plan_nwfilter
from ansible_collections.corral.virt.plugins.module_utils._power import libvirt_power, run_pacemaker
from ansible_collections.corral.virt.plugins.module_utils._storage import run_removed_disks
from ansible_collections.corral.virt.plugins.module_utils._storage.model_removed_disk import DiskAside
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import (
    Answer,
    Customizing,
    Question,
    SeedDisk,
    SeedSite,
)
from ansible_collections.corral.virt.plugins.module_utils._system import interfaces
from ansible_collections.corral.virt.plugins.module_utils._system import locks as local
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity

_STARTING = "starting guests"  # the name of a lock; names of guests contain no space


def converge(connection: t.Any, wanted: GuestSpec, gate: Gate, limit: Capacity | None = None) -> dict[str, t.Any]:
    """Apply `wanted` and return the result for one guest; pass a result with `awaits` to `waited`.

    A new guest that does not fit into `limit` is refused.
    """
    with contextlib.ExitStack() as locks:
        if is_system(connection.getURI()) and plan_guest.takes_disks(wanted):
            gate.hold(locks, lambda: local.flocked(local.DISKS, fcntl.LOCK_SH))  # nobody deletes one meanwhile
        plan = _planned(wanted, _Host(connection, locks, gate, limit))
        resource = run_pacemaker.resource(connection, plan.uuid)
        plan, again = run_pacemaker.entrusted(plan, wanted, resource, (plan_guest_steps.Undefine,))
        stored = run_definition.Definition(connection, t.cast(str, plan.uuid), plan.found_xml)
        removes = wanted.state == "absent"
        told = run_pacemaker.run(
            gate, resource, plan.steps, lambda step: _do(stored, step, removes=removes), again=again
        )
    return {
        **run_guests.result(wanted.name, plan, told),
        **gate.perform(lambda: {"awaits": {plan.uuid: plan.wait}} if plan.wait else {}, otherwise=dict),
        **({"ssh_host_key": plan.ssh_host_key} if plan.ssh_host_key else {}),
        **({"misplaced_disks": [_move_options(*one) for one in plan.misplaced]} if plan.misplaced else {}),
    }


def _move_options(disk: str, pool: str, thin_pool: str) -> dict[str, str]:
    """The options of `virt_disk_move` for a disk."""
    return {"disk": disk, "pool": pool, **({"thin_pool": thin_pool} if thin_pool else {})}


def waited(connection: t.Any, results: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """The results after every guest with `awaits` has an address or has timed out; the waits run in parallel."""
    if not any("awaits" in one for one in results):
        return results
    # compiled only where it is needed
    from ansible_collections.corral.virt.plugins.module_utils._address import run_address_wait

    return run_address_wait.wait_for(connection, results)


class _WaitedError(Exception):
    """Raised when another run was starting guests: what was asked before is old."""


def _planned(wanted: GuestSpec, host: _Host) -> GuestPlan:
    """The plan for the guest; a host that had to wait is asked anew, as it then has guests that it had not."""
    try:
        return plan_guest.plan(wanted, host)
    except _WaitedError:
        forget(host)
        return plan_guest.plan(wanted, host)


class _Host:
    """The `GuestHost` behind a connection; its locks go into `locks`, which the caller closes after the steps."""

    def __init__(self, connection: t.Any, locks: contextlib.ExitStack, gate: Gate, limit: Capacity | None) -> None:
        self._connection = connection
        self._locks = locks
        self._gate = gate
        self._limit = limit
        self._alone = False  # True while no other run starts guests

    @property
    def uri(self) -> str:
        return str(self._connection.getURI())

    @asked
    def find(self, name: str) -> FoundGuest | None:
        return libvirt_query.find(self._connection, name)

    @asked
    def managed_state(self, uuid: str) -> tuple[str, ...]:
        return libvirt_query.managed_state(self._connection, uuid)

    @asked
    def snapshots(self, uuid: str) -> tuple[Snapshot, ...]:
        from ansible_collections.corral.virt.plugins.module_utils._storage import run_snapshots

        return tuple(one for _depth, one in run_snapshots.tree(self._connection, uuid).ordered)

    @asked
    def saved_xml(self, uuid: str) -> str | None:
        return libvirt_power.saved_xml(libvirt_query.by_uuid(self._connection, uuid))

    def new_uuid(self) -> str:
        return str(uuid.uuid4())

    @asked
    def host_uuid(self) -> str:
        return run_removed_disks.host_uuid(self._connection)

    def identities(self, paths: t.Collection[str]) -> dict[str, FileIdentity | None]:
        from ansible_collections.corral.virt.plugins.module_utils._storage import run_owned_disks

        return run_owned_disks.identities(self._connection, paths)

    @asked
    def capabilities(self) -> dict[str, t.Any]:
        return xml_host.host(libvirt_query.capabilities(self._connection))

    @asked
    def libvirt_version(self) -> int:
        return libvirt_query.libvirt_version(self._connection)

    @asked
    def capacity(self, uuid: str) -> Capacity | None:
        if self._limit is None:
            return None
        if is_system(self.uri) and not self._alone:
            self._wait()
        memory_mib, vcpus = libvirt_query.committed(self._connection, but=uuid)
        return dataclasses.replace(self._limit, memory_used_mib=memory_mib, vcpus_used=vcpus)

    def _wait(self) -> None:
        """Keep other runs from starting guests until this one is done."""
        try:
            self._gate.hold(self._locks, lambda: local.flocked(_STARTING, fcntl.LOCK_EX | fcntl.LOCK_NB))
            self._alone = True
        except BlockingIOError:
            self._gate.hold(self._locks, lambda: local.locked(_STARTING))
            self._alone = True
            raise _WaitedError from None

    @asked
    def links(self) -> tuple[frozenset[str] | None, frozenset[str]]:
        bridges, networks = libvirt_query.links(self._connection)
        named = bridges and bridges | interfaces.other_names(bridges)
        return None if named is None else frozenset(named), frozenset(networks)

    def missing(self, needed: Prerequisites) -> Missing:
        return run_prerequisites.missing(self._connection, needed)

    @asked
    def filters(self) -> tuple[str, ...] | None:
        found = libvirt_query.filters(self._connection)
        return None if found is None else tuple(found)

    @asked
    def bridge_calls(self) -> dict[str, bool] | None:
        return local.bridge_calls(plan_nwfilter.CALLS) if is_system(self.uri) else None

    @asked
    def shared_filesystems(self, paths: t.Collection[str]) -> dict[str, str | None] | None:
        return {path: local.shared_filesystem(path) for path in paths} if is_system(self.uri) else None

    @asked
    def displays(self) -> DisplayDefaults:
        return files_qemu.displays() if is_system(self.uri) else DisplayDefaults()

    def disks(self, questions: t.Mapping[str, Question]) -> dict[str, Answer]:
        if not questions:
            return {}
        from ansible_collections.corral.virt.plugins.module_utils._storage import run_disks

        return run_disks.answers(self._connection, questions, self._locks)

    def seed(self, guest: str, question: SeedDisk | Customizing | None) -> SeedSite | None:
        if question is None:
            return None
        from ansible_collections.corral.virt.plugins.module_utils._seed import run_seeds  # with the libraries of a seed

        return run_seeds.answer(self._connection, guest, question)

    @asked
    def located(self, pool: str, volume: str) -> str | None:
        from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_storage

        return libvirt_storage.path_in(self._connection, pool, volume)

    @asked
    def volumes(self) -> tuple[str, ...]:
        from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_storage

        return tuple(libvirt_storage.paths(self._connection))

    def users(self, paths: t.Collection[str], *, but: str = "") -> dict[str, str]:
        if not paths:
            return {}
        from ansible_collections.corral.virt.plugins.module_utils._storage import run_file_users

        found = run_file_users.users(self._connection, but=but, without=paths)
        return {path: user for path in paths for user in (found.of(path),) if user}

    def own_chains(self, found: FoundGuest) -> list[list[str]]:
        from ansible_collections.corral.virt.plugins.module_utils._storage import run_file_users

        texts = fields_record.of(found).get("snapshots") or ()
        records = filter(None, (SnapshotRecord.of(text, found.uuid) for text in texts))
        copies = [copy for one in records for _path, copy in one.copies if os.path.lexists(copy)]
        return [*run_file_users.own_chains(self._connection, found), *([copy] for copy in copies)]

    @asked
    def unfinished_removals(self) -> tuple[DiskAside, ...]:
        from ansible_collections.corral.virt.plugins.module_utils._storage import run_disposal

        return tuple(run_disposal.unfinished(self._connection))

    def owned_disks(self, paths: t.Collection[str]) -> dict[str, OwnedDisk]:
        if not paths:
            return {}
        from ansible_collections.corral.virt.plugins.module_utils._storage import run_owned_disks

        return run_owned_disks.look(self._connection, paths)


def _do(stored: run_definition.Definition, step: plan_guest_steps.GuestStep, *, removes: bool = False) -> object:
    """Do one step with its doer; `removes`: True if the guest is being removed."""
    connection, uuid = stored.connection, stored.uuid
    if isinstance(step, plan_guest_steps.MAKING):
        from ansible_collections.corral.virt.plugins.module_utils._guest import run_guest_steps

        run_guest_steps.make_file(stored, step)
        return None
    if isinstance(step, (plan_guest_steps.Define, plan_guest_steps.Undefine)):
        return run_definition.do(stored, step)
    if isinstance(step, plan_guest_steps.GrowLogicalVolume):
        from ansible_collections.corral.virt.plugins.module_utils._guest import run_guest_steps

        run_guest_steps.grow(connection, step)
        return None
    if isinstance(step, (plan_guest_steps.DeleteVolume, plan_guest_steps.FinishRemoval)):
        from ansible_collections.corral.virt.plugins.module_utils._guest import run_guest_steps

        return run_guest_steps.do(connection, uuid, step)
    from ansible_collections.corral.virt.plugins.module_utils._guest import libvirt_domain

    before_force = functools.partial(stored.check, step.verb, step.guest) if removes else None
    result = libvirt_domain.do(connection, uuid, step, before_force)
    if isinstance(step, plan_guest_steps.Rename):
        stored.follow()
    return result
