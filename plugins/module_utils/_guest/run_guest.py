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
import os
import typing as t
import uuid

from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate, Looked
from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_here, is_system
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record, libvirt_query, xml_host
from ansible_collections.corral.virt.plugins.module_utils._domain.model_display import DisplayDefaults
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest, GuestSpec, OwnedDisk
from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import Missing, Prerequisites
from ansible_collections.corral.virt.plugins.module_utils._guest import (
    files_qemu,
    plan_changes,
    plan_guest,
    plan_guest_steps,
    run_guests,
    run_prerequisites,
)
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_host_questions import Capacity
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition, metadata
from ansible_collections.corral.virt.plugins.module_utils._network import plan_nwfilter
from ansible_collections.corral.virt.plugins.module_utils._power import libvirt_power
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_disposal
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import (
    Answer,
    Customizing,
    Question,
    SeedDisk,
    SeedSite,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_removed_disks import DiskAside
from ansible_collections.corral.virt.plugins.module_utils._storage.run_disposal import Disposal, Finishing
from ansible_collections.corral.virt.plugins.module_utils._system import identity, interfaces
from ansible_collections.corral.virt.plugins.module_utils._system import locks as local
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity

__all__ = ["Definition", "converge", "do_irreversible", "do_on_definition", "make_file", "waited"]


# A guest's definition from the plan to the steps: replaced and removed only where it is the one that the plan saw.


@dataclasses.dataclass
class Definition:
    """The stored definition of a guest by UUID, as the plan or the last step left it; xml None: no guest."""

    connection: t.Any
    uuid: str
    xml: str | None
    made: dict[str, FileIdentity] = dataclasses.field(default_factory=dict)  # files that this run has made, by path

    def check(self, verb: str, guest: str, *, must_be_off: bool = False) -> None:
        """Raise Refused if somebody has changed the definition."""
        plan_changes.check_unchanged(verb, guest, self._sight(), must_be_off=must_be_off)

    def _sight(self) -> plan_changes.DefinitionSight:
        seen = libvirt_query.stored(self.connection, self.uuid)
        if seen is None or self.xml is None:
            return plan_changes.DefinitionSight(exists=seen is not None, expected=self.xml is not None)
        same = fields_record.fingerprint(seen.xml) == fields_record.fingerprint(self.xml)
        differs = () if same else fields_record.differing(self.xml, seen.xml) or ("the order of its elements",)
        return plan_changes.DefinitionSight(True, True, seen.active, seen.persistent, differs)

    def look(self, step: plan_guest_steps.GuestStep) -> None:
        """Check the definition before it is replaced."""
        self.check(step.verb, step.guest)

    def look_off(self, step: plan_guest_steps.GuestStep) -> None:
        """Check the definition and that the guest is off, before it is removed."""
        self.check(step.verb, step.guest, must_be_off=True)

    def define(self, step: plan_guest_steps.Define) -> None:
        """Replace the definition, and read it back as libvirt has it."""
        definition.define(self.connection, step.guest, fields_record.identified(step.xml, self.made))
        self.follow()

    def stamp(self, path: str) -> None:
        """Mark a file made for the guest, and keep its identity for the record."""
        found = identity.stamped(path) if is_here(self.connection.getURI()) else None
        if found and found.is_known:
            self.made[path] = found

    def undefine(self, step: plan_guest_steps.Undefine) -> None:
        """Remove the definition."""
        definition.undefine_by(self.connection, self.uuid, step.guest, step.managed_state)

    def follow(self) -> None:
        """Read the definition again after a step of this run has changed it."""
        seen = libvirt_query.stored(self.connection, self.uuid)
        self.xml = seen.xml if seen else None


_ON_DEFINITION: dict[type[plan_guest_steps.GuestStep], Looked] = {
    plan_guest_steps.Define: Looked(Definition.look, Definition.define),
    plan_guest_steps.Undefine: Looked(Definition.look_off, Definition.undefine),
}


def do_on_definition(found: Definition, step: plan_guest_steps.GuestStep) -> object:
    """Do one step on it."""
    return _ON_DEFINITION[type(step)](found, step)


# Files that are made for a guest: its record names each before, and tells it apart from others afterwards.
#
# What an interrupted run left is replaced, but not what somebody has come to use under its name.

Step = t.Union[plan_guest_steps.CreateVolume, plan_guest_steps.WriteSeed, plan_guest_steps.Customize]


def make_file(stored: Definition, step: Step) -> None:
    """Make the file of a step, and record its identity."""
    claim = step.claim
    with contextlib.ExitStack() as stack:
        if claim:
            texts = {"with_file": claim.with_file, "without_file": claim.without_file}
            stack.enter_context(metadata.claimed(stored.connection, stored.uuid, step.guest, **texts))
        _MAKERS[type(step)](_Making(stored, step))
    stored.stamp(step.path)


@dataclasses.dataclass
class _Making:
    stored: Definition
    step: t.Any

    @property
    def connection(self) -> t.Any:
        return self.stored.connection

    @contextlib.contextmanager
    def replace(self) -> t.Iterator[None]:
        """Before a file is created: delete the old one at its path, unless somebody uses it."""
        step = self.step
        if step.replace and os.path.lexists(step.path) and is_here(self.connection.getURI()):
            from ansible_collections.corral.virt.plugins.module_utils._storage import run_disposal

            run_disposal.dispose(
                run_disposal.Disposal(self.connection, step.path, step.guest, self.stored.uuid, verb="replace")
            )
            self.step = dataclasses.replace(step, replace=False)
        yield

    def rewrite(self) -> None:
        """Before a seed is rewritten: refuse if others than its own guest use it."""
        step = self.step
        if step.replace:
            from ansible_collections.corral.virt.plugins.module_utils._storage import run_file_users

            users = run_file_users.users(self.connection, but=self.stored.uuid)
            sight = plan_disposal.DiskSight(users.of(step.path))
            plan_disposal.check_sight(step.path, step.guest, sight, uri=self.connection.getURI(), verb="replace")

    def create(self) -> None:
        """Create the volume with libvirt."""
        from ansible_collections.corral.virt.plugins.module_utils._guest import libvirt_domain

        libvirt_domain.create_volume(self.connection, self.step)

    def seed(self) -> None:
        """Write or apply the seed."""
        from ansible_collections.corral.virt.plugins.module_utils._seed import run_seeds

        run_seeds.do(self.connection, self.step)


_MAKERS: dict[type[plan_guest_steps.GuestStep], Looked] = {
    plan_guest_steps.CreateVolume: Looked(_Making.replace, _Making.create),
    plan_guest_steps.Customize: Looked(_Making.replace, _Making.seed),
    plan_guest_steps.WriteSeed: Looked(_Making.rewrite, _Making.seed),
}


# Steps on a guest that cannot be undone: each looks again, by identity, right before it acts.


def do_irreversible(connection: t.Any, uuid: str, step: plan_guest_steps.GuestStep) -> object:
    """Do one step that cannot be undone on the guest with this UUID."""
    return _DOERS[type(step)](_subject(connection, uuid, step))


def _subject(connection: t.Any, uuid: str, step: plan_guest_steps.GuestStep) -> Disposal | Finishing:
    if isinstance(step, plan_guest_steps.FinishRemoval):
        return Finishing(connection, step.place)
    delete = t.cast(plan_guest_steps.DeleteVolume, step)
    return Disposal(
        connection,
        delete.path,
        delete.guest,
        uuid,
        expected=delete.expected,
        without=delete.others,
        left=delete.left,
        keep_h=delete.keep_h,
        key=delete.key,
    )


_DOERS: dict[type[plan_guest_steps.GuestStep], Looked] = {
    plan_guest_steps.DeleteVolume: Looked(Disposal.look, Disposal.act),
    plan_guest_steps.FinishRemoval: Looked(Finishing.look, Finishing.act),
}


_STARTING = "starting guests"  # the name of a lock; names of guests contain no space


def converge(connection: t.Any, wanted: GuestSpec, gate: Gate, limit: Capacity | None = None) -> dict[str, t.Any]:
    """Apply `wanted` and return the result for one guest; pass a result with `awaits` to `waited`.

    A new guest that does not fit into `limit` is refused.
    """
    with contextlib.ExitStack() as locks:
        if is_system(connection.getURI()) and plan_guest.takes_disks(wanted):
            gate.hold(locks, lambda: local.flocked(local.DISKS, fcntl.LOCK_SH))  # nobody deletes one meanwhile
        plan = plan_guest.plan(wanted, _Host(connection, locks, gate, limit))
        stored = Definition(connection, t.cast(str, plan.uuid), plan.found_xml)
        told = gate.run(plan.steps, lambda step: _do(stored, step, removes=wanted.state == "absent"))
    return {
        **run_guests.result(wanted.name, plan, told),
        **gate.perform(lambda: {"awaits": {plan.uuid: plan.wait}} if plan.wait else {}, otherwise=dict),
        **({"ssh_host_key": plan.ssh_host_key} if plan.ssh_host_key else {}),
    }


def waited(connection: t.Any, results: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """The results after every guest with `awaits` has an address or has timed out; the waits run in parallel."""
    if not any("awaits" in one for one in results):
        return results
    # compiled only where it is needed
    from ansible_collections.corral.virt.plugins.module_utils._address import run_address_wait

    return run_address_wait.wait_for(connection, results)


Q = t.TypeVar("Q", bound=t.Callable[..., t.Any])


def _once(question: Q) -> Q:
    """Cache the answer to each question for one guest: stages ask when they need it."""

    @functools.wraps(question)
    def answer(host: _Host, *arguments: t.Hashable) -> t.Any:
        key = (question.__name__, *arguments)
        if key not in host.answers:
            host.answers[key] = question(host, *arguments)
        return host.answers[key]

    return t.cast(Q, answer)


@functools.lru_cache(maxsize=1)  # the guests of a call are those of one host
def _host_uuid(connection: t.Any) -> str:
    return str(xml_host.host(libvirt_query.capabilities(connection))["uuid"] or "")


class _Host:
    """The `GuestHost` behind a connection; its locks go into `locks`, which the caller closes after the steps."""

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
        return libvirt_query.find(self._connection, name)

    @_once
    def managed_state(self, uuid: str) -> tuple[str, ...]:
        return libvirt_query.managed_state(self._connection, uuid)

    @_once
    def saved_xml(self, uuid: str) -> str | None:
        return libvirt_power.saved_xml(libvirt_query.by_uuid(self._connection, uuid))

    def new_uuid(self) -> str:
        return str(uuid.uuid4())

    @_once
    def host_uuid(self) -> str:
        return _host_uuid(self._connection)

    def identities(self, paths: t.Collection[str]) -> dict[str, FileIdentity | None]:
        from ansible_collections.corral.virt.plugins.module_utils._storage import run_owned_disks

        return run_owned_disks.identities(self._connection, paths)

    @_once
    def capabilities(self) -> dict[str, t.Any]:
        return xml_host.host(libvirt_query.capabilities(self._connection))

    @_once
    def libvirt_version(self) -> int:
        return libvirt_query.libvirt_version(self._connection)

    @_once
    def capacity(self, uuid: str) -> Capacity | None:
        if self._limit is None:
            return None
        if is_system(self.uri):
            self._gate.hold(self._locks, lambda: local.locked(_STARTING))
        memory_mib, vcpus = libvirt_query.committed(self._connection, but=uuid)
        return dataclasses.replace(self._limit, memory_used_mib=memory_mib, vcpus_used=vcpus)

    @_once
    def links(self) -> tuple[set[str] | None, set[str]]:
        bridges, networks = libvirt_query.links(self._connection)
        return bridges and bridges | interfaces.other_names(bridges), networks

    def missing(self, needed: Prerequisites) -> Missing:
        return run_prerequisites.missing(self._connection, needed)

    @_once
    def filters(self) -> list[str] | None:
        return libvirt_query.filters(self._connection)

    @_once
    def bridge_calls(self) -> dict[str, bool] | None:
        return local.bridge_calls(plan_nwfilter.CALLS) if is_system(self.uri) else None

    @_once
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

    @_once
    def located(self, pool: str, volume: str) -> str | None:
        from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_storage

        return libvirt_storage.path_in(self._connection, pool, volume)

    @_once
    def volumes(self) -> list[str]:
        from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_storage

        return [xml_host.volume(xml)["path"] for xml in libvirt_storage.all_volumes(self._connection)]

    def users(self, paths: t.Collection[str], *, but: str = "") -> dict[str, str]:
        if not paths:
            return {}
        from ansible_collections.corral.virt.plugins.module_utils._storage import run_file_users

        found = run_file_users.users(self._connection, but=but, without=paths)
        return {path: user for path in paths for user in (found.of(path),) if user}

    def own_chains(self, found: FoundGuest) -> list[list[str]]:
        from ansible_collections.corral.virt.plugins.module_utils._storage import run_file_users

        return run_file_users.own_chains(self._connection, found)

    @_once
    def unfinished_removals(self) -> list[DiskAside]:
        from ansible_collections.corral.virt.plugins.module_utils._storage import run_disposal

        return run_disposal.unfinished(self._connection)

    def owned_disks(self, paths: t.Collection[str]) -> dict[str, OwnedDisk]:
        if not paths:
            return {}
        from ansible_collections.corral.virt.plugins.module_utils._storage import run_owned_disks

        return run_owned_disks.look(self._connection, paths)


def _do(stored: Definition, step: plan_guest_steps.GuestStep, *, removes: bool = False) -> object:
    """Do one step with its doer; `removes`: True if the guest is being removed."""
    connection, uuid = stored.connection, stored.uuid
    if isinstance(step, plan_guest_steps.MAKING):
        make_file(stored, step)
        return None
    if isinstance(step, (plan_guest_steps.Define, plan_guest_steps.Undefine)):
        return do_on_definition(stored, step)
    if isinstance(step, (plan_guest_steps.DeleteVolume, plan_guest_steps.FinishRemoval)):
        return do_irreversible(connection, uuid, step)
    from ansible_collections.corral.virt.plugins.module_utils._guest import libvirt_domain

    before_force = functools.partial(stored.check, step.verb, step.guest) if removes else None
    result = libvirt_domain.do(connection, uuid, step, before_force)
    if isinstance(step, plan_guest_steps.Rename):
        stored.follow()
    return result
