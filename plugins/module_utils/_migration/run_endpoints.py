# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Both ends of a migration: their connections, and the facts about hosts and guest for a preflight; read-only."""

from __future__ import annotations

import os.path
import typing as t
import urllib.parse

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._domain import (
    fields_record,
    libvirt_query,
    xml_backup_record,
    xml_host,
    xml_host_bindings,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import Snapshot, SnapshotRecord
from ansible_collections.corral.virt.plugins.module_utils._host import files_corosync
from ansible_collections.corral.virt.plugins.module_utils._libvirt import states
from ansible_collections.corral.virt.plugins.module_utils._migration import (
    files_migration,
    libvirt_migrate,
    plan_preflight,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import (
    MigratingGuest,
    MigrationHost,
    Move,
    Pool,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import LOGICAL, no_disks
from ansible_collections.corral.virt.plugins.module_utils._xml import stdlib_reader


class Endpoints:
    """Both connections, reopened if one broke.

    `verified` are the bases on destinations that this run has read, which several guests of a run share.
    """

    def __init__(
        self,
        source_uri: str,
        dest_uri: str,
        open_uri: t.Callable[[str], t.Any],
        verified: set[tuple[t.Any, ...]] | None = None,
    ) -> None:
        self.verified: set[tuple[t.Any, ...]] = set() if verified is None else verified
        self._uris = {"source": source_uri, "dest": dest_uri}
        self._open, self._known = open_uri, t.cast("dict[str, t.Any]", {})

    def _get(self, end: str) -> t.Any:
        if end not in self._known or not self._known[end].isAlive():
            self._known[end] = self._open(self._uris[end])
        return self._known[end]

    @property
    def source(self) -> t.Any:
        """The connection to the source; raises Failed if it cannot be reached."""
        return self._get("source")

    @property
    def dest(self) -> t.Any:
        """The connection to the destination; raises Failed if it cannot be reached."""
        return self._get("dest")

    def broken(self, end: str) -> bool:
        """True if the connection to `source` or `dest` broke since it was last used."""
        return end in self._known and not self._known[end].isAlive()

    def or_none(self, end: str) -> t.Any:
        """The connection to `source` or `dest`; None if it cannot be reached."""
        try:
            return self._get(end)
        except Failed:
            return None


def host(connection: t.Any) -> MigrationHost:
    """The facts about one host for a preflight."""
    known = xml_host.host(libvirt_query.capabilities(connection))
    return MigrationHost(
        name=libvirt_query.node(connection)["hostname"],
        uuid=known["uuid"],
        arch=known["arch"],
        cpu_xml=known["cpu_xml"],
        machines=tuple(known["machines"].get(known["arch"]) or ()),
        virt_types=tuple(known["virt_types"].get(known["arch"]) or ()),
        emulators=tuple(known["emulators"]),
        guests=dict(libvirt_query.of_all(connection, lambda item: (item.name(), (item.UUIDString(), states.of(item))))),
        pools=pools(connection),
        unusable_pools={name: why for name, why in _unusable(connection) if why},
        **libvirt_migrate.endpoint_facts(connection),
    )


def identity(connection: t.Any) -> tuple[str, str]:
    """UUID and name of the host: cloned machines can have the same UUID."""
    return xml_host.host(libvirt_query.capabilities(connection))["uuid"], libvirt_query.node(connection)["hostname"]


def pools(connection: t.Any) -> tuple[Pool, ...]:
    """Active pools that are directories or volume groups, with their free space as of libvirt's last refresh."""
    return tuple(
        Pool(
            pool["name"],
            os.path.normpath(its["path"]),
            pool["available_bytes"],
            pool["capacity_bytes"],
            logical=its["type"] == LOGICAL,
        )
        for pool, its in _known(connection)
        if not no_disks(its["type"], active=pool["active"])
    )


def _unusable(connection: t.Any) -> t.Iterator[tuple[str, str]]:
    for pool, its in _known(connection):
        yield pool["name"], no_disks(its["type"], active=pool["active"])


def _known(connection: t.Any) -> list[tuple[dict[str, t.Any], dict[str, t.Any]]]:
    return [(pool, xml_host.pool(pool["xml"])) for pool in libvirt_query.pools(connection)]


def guest(connection: t.Any, found: FoundGuest, snapshots: t.Sequence[Snapshot] = ()) -> MigratingGuest:
    """The facts about the guest for a preflight."""
    xml = found.live_xml or found.xml
    job = (
        libvirt_migrate.guest_job(libvirt_query.by_uuid(connection, found.uuid), stdlib_reader.targets(xml))
        if found.active
        else ""
    )
    kept = libvirt_query.managed_state(connection, found.uuid)
    return MigratingGuest(
        name=found.name,
        uuid=found.uuid,
        state=found.state,
        managed_state=kept,
        backups=backups(connection, found.uuid) if "checkpoints" in kept else (),
        snapshots=tuple(snapshots),
        snapshot_records=snapshot_records(found),
        job=job,
        held=xml_backup_record.held(found.xml),
        local_state=tuple((path, files_migration.shared_by(path)) for path in xml_host_bindings.local_state(xml)),
        **xml_host_bindings.needs(xml),
    )


def backups(connection: t.Any, uuid: str) -> tuple[str, ...]:
    """Names of the guest's checkpoints, if all of them are of our backups."""
    return libvirt_query.backup_checkpoints(connection, uuid) or ()


def snapshot_records(found: FoundGuest) -> tuple[SnapshotRecord, ...]:
    """What the guest's record tells of its snapshots."""
    texts = fields_record.of(found).get("snapshots") or ()
    return tuple(filter(None, (SnapshotRecord.of(text, found.uuid) for text in texts)))


def outsider(resource: str, move: Move, hostname: str) -> str | None:
    """Why Pacemaker's guest must not go to the destination, which libvirt calls `hostname`; None if it may."""
    known_as = {move.dest, hostname, urllib.parse.urlsplit(move.dest_uri).hostname or ""}
    return plan_preflight.outsider(resource, move.dest, known_as, files_corosync.members())


def cpu_incompatibility(dest: t.Any, its: MigrationHost, xml: str) -> str | None:
    """Why the destination cannot provide the guest's CPU, or None."""
    cpu, machine, virt_type = xml_host_bindings.cpu(xml)
    return cpu and libvirt_migrate.cpu_incompatibility(
        dest, arch=its.arch, machine=machine, virt_type=virt_type, cpu=cpu
    )
