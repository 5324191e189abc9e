# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Converge one guest: the host answers, the noun plans, the gate passes the steps on. Free of Ansible."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import typing as t
import uuid

from ansible_collections.corral.virt.plugins.module_utils._files import interfaces, local, qemu
from ansible_collections.corral.virt.plugins.module_utils._front import definitions, many, prerequisites
from ansible_collections.corral.virt.plugins.module_utils._front.definitions import Definition
from ansible_collections.corral.virt.plugins.module_utils._libvirt import power, query
from ansible_collections.corral.virt.plugins.module_utils._model.disk_identity import FileIdentity
from ansible_collections.corral.virt.plugins.module_utils._model.display import DisplayDefaults
from ansible_collections.corral.virt.plugins.module_utils._model.domain import FoundGuest, GuestSpec, OwnedDisk
from ansible_collections.corral.virt.plugins.module_utils._model.prerequisites import Missing, Prerequisites
from ansible_collections.corral.virt.plugins.module_utils._model.uri import is_system
from ansible_collections.corral.virt.plugins.module_utils._noun import guest
from ansible_collections.corral.virt.plugins.module_utils._plan import nwfilter, steps
from ansible_collections.corral.virt.plugins.module_utils._plan.capacity import Capacity
from ansible_collections.corral.virt.plugins.module_utils._plan.disk_facts import (
    Answer,
    Customizing,
    Question,
    SeedDisk,
    SeedSite,
)
from ansible_collections.corral.virt.plugins.module_utils._plan.removed import DiskAside
from ansible_collections.corral.virt.plugins.module_utils._run import Gate
from ansible_collections.corral.virt.plugins.module_utils._xml import host_xml

__all__ = ["converge", "waited"]

_STARTING = "starting guests"  # the name of a lock; names of guests contain no space


def converge(connection: t.Any, wanted: GuestSpec, gate: Gate, limit: Capacity | None = None) -> dict[str, t.Any]:
    """Apply `wanted` and return the result for one guest; pass a result with `awaits` to `waited`.

    A new guest that does not fit into `limit` is refused.
    """
    with contextlib.ExitStack() as locks:
        if is_system(connection.getURI()) and guest.takes_disks(wanted):
            gate.hold(locks, lambda: local.flocked(local.DISKS, fcntl.LOCK_SH))  # nobody deletes one meanwhile
        plan = guest.plan(wanted, _Host(connection, locks, gate, limit))
        stored = Definition(connection, t.cast(str, plan.uuid), plan.found_xml)
        told = gate.run(plan.steps, lambda step: _do(stored, step, removes=wanted.state == "absent"))
    return {
        **many.result(wanted.name, plan, told),
        **gate.perform(lambda: {"awaits": {plan.uuid: plan.wait}} if plan.wait else {}, otherwise=dict),
        **({"ssh_host_key": plan.ssh_host_key} if plan.ssh_host_key else {}),
    }


def waited(connection: t.Any, results: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """The results after every guest with `awaits` has an address or has timed out; the waits run in parallel."""
    if not any("awaits" in one for one in results):
        return results
    # compiled only where it is needed
    from ansible_collections.corral.virt.plugins.module_utils._front import address_wait

    return address_wait.wait_for(connection, results)


Q = t.TypeVar("Q", bound=t.Callable[..., t.Any])


def _once(question: Q) -> Q:
    """Ask each question once: stages ask what they need when they need it, and the answer holds until they are done."""

    @functools.wraps(question)
    def answer(host: _Host, *arguments: t.Hashable) -> t.Any:
        key = (question.__name__, *arguments)
        if key not in host.answers:
            host.answers[key] = question(host, *arguments)
        return host.answers[key]

    return t.cast(Q, answer)


@functools.lru_cache(maxsize=1)  # the guests of a call are those of one host
def _host_uuid(connection: t.Any) -> str:
    return str(host_xml.host(query.capabilities(connection))["uuid"] or "")


class _Host:
    """A connection as the `Host` of a guest; what it locks is in `locks`, which the caller closes after the steps."""

    def __init__(self, connection: t.Any, locks: contextlib.ExitStack, gate: Gate, limit: Capacity | None) -> None:
        self._connection = connection
        self._locks = locks
        self._gate = gate
        self._limit = limit
        self.answers: dict[tuple[t.Hashable, ...], t.Any] = {}

    @property
    def uri(self) -> str:
        return str(self._connection.getURI())

    @_once
    def find(self, name: str) -> FoundGuest | None:
        return query.find(self._connection, name)

    @_once
    def managed_state(self, uuid: str) -> tuple[str, ...]:
        return query.managed_state(self._connection, uuid)

    @_once
    def saved_xml(self, uuid: str) -> str | None:
        return power.saved_xml(query.by_uuid(self._connection, uuid))

    def new_uuid(self) -> str:
        return str(uuid.uuid4())

    @_once
    def host_uuid(self) -> str:
        return _host_uuid(self._connection)

    def identities(self, paths: t.Collection[str]) -> dict[str, FileIdentity | None]:
        from ansible_collections.corral.virt.plugins.module_utils._front import owned_disks

        return owned_disks.identities(self._connection, paths)

    @_once
    def capabilities(self) -> dict[str, t.Any]:
        return host_xml.host(query.capabilities(self._connection))

    @_once
    def libvirt_version(self) -> int:
        return query.libvirt_version(self._connection)

    @_once
    def capacity(self, uuid: str) -> Capacity | None:
        if self._limit is None:
            return None
        if is_system(self.uri):
            self._gate.hold(self._locks, lambda: local.locked(_STARTING))
        memory_mib, vcpus = query.committed(self._connection, but=uuid)
        return dataclasses.replace(self._limit, memory_used_mib=memory_mib, vcpus_used=vcpus)

    @_once
    def links(self) -> tuple[set[str] | None, set[str]]:
        bridges, networks = query.links(self._connection)
        return bridges and bridges | interfaces.other_names(bridges), networks

    def missing(self, needed: Prerequisites) -> Missing:
        return prerequisites.missing(self._connection, needed)

    @_once
    def filters(self) -> list[str] | None:
        return query.filters(self._connection)

    @_once
    def bridge_calls(self) -> dict[str, bool] | None:
        return local.bridge_calls(nwfilter.CALLS) if is_system(self.uri) else None

    @_once
    def displays(self) -> DisplayDefaults:
        return qemu.displays() if is_system(self.uri) else DisplayDefaults()

    def disks(self, questions: t.Mapping[str, Question]) -> dict[str, Answer]:
        if not questions:
            return {}
        from ansible_collections.corral.virt.plugins.module_utils._front import disks

        return disks.answers(self._connection, questions, self._locks)

    def seed(self, guest: str, question: SeedDisk | Customizing | None) -> SeedSite | None:
        if question is None:
            return None
        from ansible_collections.corral.virt.plugins.module_utils._front import seeds  # with the libraries of a seed

        return seeds.answer(self._connection, guest, question)

    @_once
    def located(self, pool: str, volume: str) -> str | None:
        from ansible_collections.corral.virt.plugins.module_utils._libvirt import storage

        return storage.path_in(self._connection, pool, volume)

    @_once
    def volumes(self) -> list[str]:
        from ansible_collections.corral.virt.plugins.module_utils._libvirt import storage

        return [host_xml.volume(xml)["path"] for xml in storage.all_volumes(self._connection)]

    def users(self, paths: t.Collection[str], *, but: str = "") -> dict[str, str]:
        if not paths:
            return {}
        from ansible_collections.corral.virt.plugins.module_utils._front import file_users

        found = file_users.users(self._connection, but=but, without=paths)
        return {path: user for path in paths for user in (found.of(path),) if user}

    def own_chains(self, found: FoundGuest) -> list[list[str]]:
        from ansible_collections.corral.virt.plugins.module_utils._front import file_users

        return file_users.own_chains(self._connection, found)

    @_once
    def unfinished_removals(self) -> list[DiskAside]:
        from ansible_collections.corral.virt.plugins.module_utils._front import disposal

        return disposal.unfinished(self._connection)

    def owned_disks(self, paths: t.Collection[str]) -> dict[str, OwnedDisk]:
        if not paths:
            return {}
        from ansible_collections.corral.virt.plugins.module_utils._front import owned_disks

        return owned_disks.look(self._connection, paths)


def _do(stored: Definition, step: steps.GuestStep, *, removes: bool = False) -> object:
    """Pass a step to its doer; `removes`: the guest is not to be there afterwards."""
    connection, uuid = stored.connection, stored.uuid
    if isinstance(step, steps.MAKING):
        from ansible_collections.corral.virt.plugins.module_utils._front import guest_files

        guest_files.make(stored, step)
        return None
    if isinstance(step, (steps.Define, steps.Undefine)):
        return definitions.do(stored, step)
    if isinstance(step, (steps.DeleteVolume, steps.FinishRemoval)):
        from ansible_collections.corral.virt.plugins.module_utils._front import irreversible

        return irreversible.do(connection, uuid, step)
    from ansible_collections.corral.virt.plugins.module_utils._libvirt import domain as doers

    before_force = functools.partial(stored.check, step.verb, step.guest) if removes else None
    result = doers.do(connection, uuid, step, before_force)
    if isinstance(step, steps.Rename):
        stored.follow()
    return result
