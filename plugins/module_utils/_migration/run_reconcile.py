# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reconcile what a migration left on two hosts: observe, judge, act.

Also writes the record of what the migration made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.cached_answers import asked
from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Looked
from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_here
from ansible_collections.corral.virt.plugins.module_utils._domain import (
    fields_record,
    libvirt_query,
    xml_host,
    xml_host_bindings,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_sources import sources
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition
from ansible_collections.corral.virt.plugins.module_utils._migration import (
    files_migration,
    libvirt_migrate,
    plan_concurrent_changes,
    plan_outcome,
    run_copy_offline,
    run_disk_moves,
    run_migration_files,
    run_snapshots,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import Made, Move, Observation
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_outcome import (
    DONE_BY,
    Verdict,
    check_copy,
    following,
    judge,
    outcome,
    record_of_move,
    superseded,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.run_endpoints import Endpoints
from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_storage
from ansible_collections.corral.virt.plugins.module_utils._system import durable, identity, locks

_PATIENCE_S = 45  # libvirt notices after 30 s that its other end is gone, and ends a migration that is complete
_LOOK_S = 0.5
_DEFINITIONS = ("/etc/libvirt/qemu", "/etc/libvirt/qemu/autostart")


def begin(source: t.Any, move: Move) -> None:
    """Record the move before anything is made: its destination, and what is deleted after arrival.

    What is made is recorded when it has been made.
    """
    found = (
        {disk.path: identity.of_path(disk.path) for disk in move.disks if disk.volume}
        if is_here(source.getURI())
        else {}
    )
    guest = libvirt_query.by_uuid(source, move.uuid)
    others: dict[str, t.Any] = {}
    if not fields_record.of(libvirt_query.found(guest)).get("moving"):
        others = {"moving_made": (), "moving_let_run": ""}
        files_migration.remove_note(move.uuid)  # of a migration whose end this host never saw
    run_migration_files.remember(guest, {**others, **record_of_move(move, found)})


def disable_autostart(source: t.Any, uuid: str) -> None:
    """Keep the source from starting the guest by itself, even after a power cut; the setting is recorded."""
    definition.set_autostart(libvirt_query.by_uuid(source, uuid), on=False)
    for directory in _DEFINITIONS:
        with contextlib.suppress(OSError):  # another libvirt than the system's
            durable.fsync(directory)


def _forget_migration(source: t.Any, uuid: str) -> None:
    """Restore autostart and clear the record of a guest that stays on the source."""
    if fields_record.of(libvirt_query.find_by_uuid(source, uuid)).get("moving_autostart"):
        definition.set_autostart(libvirt_query.by_uuid(source, uuid), on=True)
    forget(source, uuid)


def check_gone(endpoints: Endpoints, move: Move) -> None:
    """Raise Refused unless the destination is silent, and the source has all of the guest."""
    answers = endpoints.or_none("dest") is not None
    plan_outcome.check_gone(
        move.guest, move.dest, libvirt_migrate.state_there(endpoints.source, move.uuid), answers=answers
    )


def give_up(source: t.Any, uuid: str) -> None:
    """Forget the migration of a guest that stays on the source; what the destination has of it is lost."""
    run_snapshots.put_back(source, uuid)
    files_migration.remove_note(uuid)
    _forget_migration(source, uuid)


def try_clean_up(endpoints: Endpoints, uuid: str) -> list[str]:
    """`clean_up` after a failure; its own failure becomes a note, as the first reason is reported."""
    try:
        return clean_up(endpoints, uuid)
    except VirtError as error:
        return [f"what it left was not cleaned up: {error}; run again"]


def try_withdraw(endpoints: Endpoints, move: Move) -> list[str]:
    """`try_clean_up` before the handover, also removing the reservation on the destination."""
    with contextlib.suppress(VirtError):  # the next run finds it
        there = libvirt_query.find_by_uuid(endpoints.dest, move.uuid)
        if there and not there.active and xml_host_bindings.is_reserved(there.xml):
            libvirt_migrate.discard(endpoints.dest, move.uuid, files_migration.shared_state(move.uuid))
    return try_clean_up(endpoints, move.uuid)


_FORGOTTEN: dict[str, t.Any] = {"moving": "", "moving_made": (), "moving_goes": ()}


def forget(connection: t.Any, uuid: str) -> None:
    """Clear the record of the migration."""
    run_migration_files.remember(libvirt_query.by_uuid(connection, uuid), _FORGOTTEN)


def settle(dest: t.Any, uuid: str) -> None:
    """Clear the record of the migration, and let the guest own the disks that were made for it on the destination."""
    domain = libvirt_query.by_uuid(dest, uuid)
    there = libvirt_query.found(domain)
    recorded, located = fields_record.of(there), functools.partial(libvirt_storage.path_in, dest)
    made = [Made.parse(text) for text in recorded.get("moving_made") or ()]
    named = [
        *sources(there.live_xml or there.xml, located, below=True),
        *(path for xml in run_snapshots.documents(domain) for path in sources(xml, located, below=True)),
        *(one.path for one in made),  # what is below a disk that is off
    ]
    host = xml_host.host(libvirt_query.capabilities(dest))["uuid"]
    volumes = fields_record.arrived(
        recorded.get("volumes") or (),
        named,
        guest=uuid,
        source=recorded.get("moving_from") or "",
        host=host,
        moved={one.origin: one.path for one in made if one.origin},
        volumes_there={one.path: one.volume for one in made if one.volume},
    )
    run_migration_files.remember(domain, {**_FORGOTTEN, "volumes": volumes})


def observe(endpoints: Endpoints, uuid: str, *, was_paused: bool, again: bool = False) -> Observation:
    """The states of this guest on both hosts; other guests of its name do not count."""
    hosts = _Ends(endpoints, endpoints.or_none("source"), endpoints.or_none("dest"), uuid)
    here = libvirt_migrate.state_there(hosts.source, uuid)
    there = libvirt_migrate.state_there(hosts.dest, uuid, reserved=xml_host_bindings.is_reserved)
    return plan_outcome.observation(here, there, hosts, was_paused=was_paused, again=again)


@dataclasses.dataclass(frozen=True)
class _Ends:
    """The `GuestEnds` of one look: its connections, None if a host cannot be reached."""

    endpoints: Endpoints
    source: t.Any
    dest: t.Any
    uuid: str

    @asked
    def is_suspended_by_owner(self) -> bool:
        guest = libvirt_query.find_by_uuid(self.source, self.uuid)
        if guest is None or fields_record.of(guest).get("moving_suspends"):
            return False
        return bool(libvirt_migrate.paused_by_owner(libvirt_query.by_uuid(self.source, self.uuid)))

    @asked
    def is_superseded(self) -> bool:
        recorded = fields_record.of(libvirt_query.find_by_uuid(self.dest, self.uuid))
        paths = [Made.parse(text).source_path for text in recorded.get("moving_made") or ()]
        # Devices tell no time.
        written = [None if path.startswith("/dev/") else locks.written_s(path) for path in paths]
        return superseded(float(recorded.get("moving_let_run") or 0), written)

    @asked
    def has_job(self) -> bool:
        return libvirt_migrate.job_active(self.source, self.uuid)

    @asked
    def has_all_memory(self) -> bool:
        return libvirt_migrate.has_all_memory(self.dest, self.uuid)

    @asked
    def takes_disks_back(self) -> bool:
        guest = libvirt_query.find_by_uuid(self.endpoints.source, self.uuid)
        return bool(guest and run_disk_moves.taken_back(self.endpoints, guest))


def resume_guest(dest: t.Any, uuid: str) -> None:
    """Resume the guest on the destination, on the disks made for it, and record when: the source's copy is old from
    then on.
    """
    there = libvirt_query.found(libvirt_query.by_uuid(dest, uuid))
    run_migration_files.check_arrived(dest, there)
    if fields_record.of(there).get("moving_seen"):  # earlier versions reserved nothing
        plan_concurrent_changes.check_reserved(there.name, reserved=run_copy_offline.is_open(there))
    libvirt_migrate.resume(dest, uuid)
    run_migration_files.remember(libvirt_query.by_uuid(dest, uuid), {"moving_let_run": f"{time.time():.3f}"})


def reconcile(endpoints: Endpoints, move: Move, *, again: bool = False) -> Verdict:
    """Observe both hosts, judge, act, and observe again until no action follows; returns the final verdict.

    `again`: True if another run sent the guest.
    """
    began = time.monotonic()
    seen_s: dict[Verdict, float] = {}  # when what calls for an action was seen first
    acted: list[Verdict] = []
    while True:
        verdict = judge(observe(endpoints, move.uuid, was_paused=move.paused, again=again or bool(acted)))
        now = time.monotonic()
        since = seen_s.setdefault(verdict, now) if verdict.action in DONE_BY else began
        action = following(verdict, acted, late=now - since >= _PATIENCE_S)
        if not action:
            return outcome(acted, verdict)
        if action == "wait":
            time.sleep(_LOOK_S)
            continue
        _act(endpoints, move, action)
        acted.append(verdict)


def _act(endpoints: Endpoints, move: Move, action: str) -> None:
    uuid, kept = move.uuid, files_migration.shared_state(move.uuid)
    doers: dict[str, t.Callable[[], object]] = {
        "resume_dest": lambda: resume_guest(endpoints.dest, uuid),
        "finish_dest": lambda: run_copy_offline.release(endpoints.dest, uuid, move.guest),
        "clean_dest": Looked(
            lambda: _check_copy_there(endpoints, move), lambda: libvirt_migrate.discard(endpoints.dest, uuid, kept)
        ),
        "clean_source": Looked(
            lambda: _check_copy_here(endpoints, move), lambda: libvirt_migrate.discard(endpoints.source, uuid, kept)
        ),
        "resume_source": lambda: libvirt_migrate.resume(endpoints.source, uuid),
    }
    doers[action]()


def _check_copy_there(endpoints: Endpoints, move: Move) -> None:
    """Raise Failed unless the guest's definition on the destination comes from this migration."""
    there, here = (libvirt_query.find_by_uuid(end, move.uuid) for end in (endpoints.dest, endpoints.source))
    if there and there.persistent and not xml_host_bindings.is_reserved(there.xml):
        came_from, comes_from = (fields_record.of(found).get("moving_from") for found in (there, here))
        check_copy(move.guest, move.dest, same=bool(comes_from) and came_from == comes_from)


def _check_copy_here(endpoints: Endpoints, move: Move) -> None:
    """Raise Failed unless the guest's definition on the source is the one that was sent."""
    here = libvirt_query.find_by_uuid(endpoints.source, move.uuid)
    planned = fields_record.of(here).get("moving_seen")
    if here and planned:  # earlier versions did not record it
        check_copy(move.guest, "the source", same=fields_record.fingerprint(here.xml) == planned)


def clean_up(endpoints: Endpoints, uuid: str) -> list[str]:
    """Remove the images made on the destination for a guest that stayed, and the record.

    Returns which files stay, and why.
    """
    dest, source = endpoints.or_none("dest"), endpoints.or_none("source")
    if source is None or libvirt_migrate.state_there(source, uuid) == "absent":
        return []  # the record stays, and the next run does it
    run_snapshots.put_back(source, uuid)
    if dest is None:
        return []  # the same
    strange = run_migration_files.clear(endpoints, uuid)
    files_migration.remove_note(uuid)
    _forget_migration(source, uuid)
    return strange
