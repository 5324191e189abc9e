# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the disks of one guest are transferred: collects what both hosts have of each, for the plan."""

from __future__ import annotations

import contextlib
import functools
import os.path
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.cached_answers import asked, asked_of, forget
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, NotFound, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.units import image_of_content
from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_here
from ansible_collections.corral.virt.plugins.module_utils._domain import (
    fields_disk,
    fields_record,
    libvirt_query,
    xml_host,
    xml_host_bindings,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_sources import sources
from ansible_collections.corral.virt.plugins.module_utils._guest import files_qemu
from ansible_collections.corral.virt.plugins.module_utils._image.files_image import read_manifest
from ansible_collections.corral.virt.plugins.module_utils._libvirt import statistics
from ansible_collections.corral.virt.plugins.module_utils._migration import (
    files_migration,
    plan_disk_move_stages,
    plan_same_storage,
    plan_snapshot_migration,
    run_migration_files,
    run_snapshots,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import (
    DiskMove,
    LeftDisk,
    MigrationHost,
    Pool,
    SavedSnapshot,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_disk_moves import (
    deletable,
    is_own_volume,
    relabelling,
    ways,
    with_sources,
    wrong_pools,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migrating_disk import (
    MigratingDisk,
    VolumeFile,
    as_requested,
    unknown_disks,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.run_endpoints import Endpoints, snapshot_records
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_header,
    files_lvm,
    libvirt_storage,
    libvirt_transfer,
    run_directories,
    run_file_users,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.files_image_lock import manifest_name
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import LOGICAL
from ansible_collections.corral.virt.plugins.module_utils._system import identity
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

_CEPH = "/etc/ceph"
_FIRST_LOOK_S = 0.5
_FILE = (
    "format",
    "capacity_bytes",
    "allocation_bytes",
    "physical_bytes",
    "backing_path",
    "backing_format",
    "modified_s",
    "changed_ns",
)


def disks(
    endpoints: Endpoints,
    params: t.Mapping[str, t.Any],
    found: FoundGuest,
    dest: MigrationHost,
    *,
    assumed: bool,
    snapshots: t.Sequence[SavedSnapshot] = (),
) -> tuple[tuple[DiskMove, ...], list[str]]:
    """How each disk, and each file of the `snapshots`, is transferred, and why disks cannot be; with `assumed`, images
    that can be imported are there.
    """
    document = found.live_xml or found.xml
    recorded = fields_record.read(document)
    # Only what a run to this very host made there, and nobody else since, may be replaced.
    ours, _strange = run_migration_files.ours(
        endpoints.dest, found.uuid, recorded if recorded.get("moving") == params["dest"] else {}
    )
    hosts, pools = _Hosts(endpoints), {pool.path: pool for pool in dest.pools}
    entries = fields_disk.media(parse(document))
    raw = {item["target"] for item in entries if item.get("format") == "raw"}
    requested = as_requested(entries, params, assumed=assumed)
    by_name: dict[str | None, Pool] = {pool.name: pool for pool in dest.pools}
    looked = [
        plan_disk_move_stages.DiskMoveFacts(one, one.target in raw, pools, ours, found.active, by_name.get(one.into))
        for one in requested
    ]
    located = functools.partial(libvirt_storage.path_in, endpoints.source)
    records = snapshot_records(found)
    kept = plan_snapshot_migration.disks(snapshots, requested, params["storage"], located, records)
    kept = [one for one in kept if not run_snapshots.is_gone(one.disk.path)]
    looked += [plan_disk_move_stages.DiskMoveFacts(one.disk, one.raw, pools, ours, found.active) for one in kept]
    seen = plan_snapshot_migration.each_once([hosts.disk(facts) for facts in looked])
    waiting = set(sources(found.xml, located)) - set(sources(document, located))
    pools_asked = [params["pool"], *params["disk_pool"].values()]
    wrong = [*unknown_disks(entries, params), *wrong_pools(dest, params["dest"], pools_asked)]
    moves, problems = ways(seen, active=found.active, waiting=waiting, wrong=wrong)
    own = [*_owned(endpoints.source, recorded, found.uuid, moves), *(one.disk.path for one in kept if one.own)]
    free = _free(endpoints.source, moves, seen, own, found.uuid)
    return with_sources(moves, free, {one.path: one.shared_on for one in seen if one.shared_on}), problems


def _free(
    source: t.Any, moves: t.Iterable[DiskMove], seen: t.Sequence[MigratingDisk], own: t.Collection[str], uuid: str
) -> set[str]:
    """Paths of the disks to delete on the source when the guest has left it."""
    fixed = {one.path for one in seen if one.fixed} | {file.path for one in seen for file in one.chain}
    return unused(source, deletable(moves, fixed=fixed, owned=own), uuid)


def _owned(source: t.Any, recorded: t.Mapping[str, t.Any], uuid: str, moves: t.Iterable[DiskMove]) -> t.Iterator[str]:
    """Paths of files in the guest's record, and of the logical volumes that were made for the guest."""
    entries = recorded.get("volumes") or ()
    yield from (one.path for one in entries if not one.path.startswith("/dev/"))
    for move in moves if is_here(source.getURI()) else ():
        if move.volume and move.path.startswith("/dev/"):
            volume = identity.of_path(move.path)
            if is_own_volume(move.path, entries, uuid, volume, files_lvm.tags(move.path)):
                yield move.path


def unused(source: t.Any, paths: t.Iterable[str], uuid: str) -> set[str]:
    """The paths of a guest (its UUID) that no other guest and no other image uses; these may stand on each other."""
    wanted = set(paths)
    return wanted.difference(users(source, wanted, uuid))


def users(source: t.Any, paths: t.Collection[str], uuid: str) -> dict[str, str]:
    """The paths of a guest (its UUID) that other guests or images use: path -> user; these may stand on each other."""
    found = run_file_users.users(source, but=uuid, without=paths) if paths else None
    return {path: user for path in paths if found and (user := found.of(path))}


def images(source: t.Any, moves: t.Iterable[DiskMove]) -> list[dict[str, str]]:
    """Images that `virt_image` can import on the destination so that less is copied, as its options."""
    wanted = {}
    for path in sorted({move.base for move in moves if move.base}):
        directory, content = os.path.split(path)
        pool = run_directories.pool_at(source, directory)
        if pool is None:
            continue
        text = libvirt_storage.read(source, pool, manifest_name(content))
        if text is not None:
            checksum = read_manifest(text.decode(errors="replace"), path).checksum
            wanted[path] = {
                "name": image_of_content(content),
                "pool": pool,
                "checksum": checksum,
                "content": content,
            }
    return list(wanted.values())


class _Hosts:
    """The `DiskHosts` of one guest; each pool of the destination is refreshed once."""

    shared_filesystem = asked_of(files_migration.shared_by)

    def __init__(self, endpoints: Endpoints) -> None:
        self.endpoints = endpoints
        self._fresh: set[str] = set()

    def disk(self, facts: plan_disk_move_stages.DiskMoveFacts) -> MigratingDisk:
        """What both hosts have of one disk."""
        forget(self)  # pools were refreshed for the disk before
        seen = plan_disk_move_stages.disk(facts, self)
        self.endpoints.verified.update(seen.verified)
        return seen.disk

    def _at(self, end: plan_disk_move_stages.End) -> t.Any:
        return self.endpoints.source if end == "source" else self.endpoints.dest

    @asked
    def relabelling(self) -> tuple[str, ...]:
        owns, _listed = files_qemu.settings()
        drivers = xml_host.host(libvirt_query.capabilities(self.endpoints.source))["security_drivers"]
        return relabelling(owner=owns, selinux="selinux" in drivers)

    @asked
    def is_taken_there(self, pool: str, name: str) -> bool:
        self._refresh(pool)
        return libvirt_storage.volume_in(self.endpoints.dest, pool, name) is not None

    @asked
    def file(self, end: plan_disk_move_stages.End, path: str) -> VolumeFile | None:
        return _file(self._at(end), path)

    @asked
    def new_file_here(self, path: str) -> VolumeFile | None:
        pool = run_directories.pool_at(self.endpoints.source, os.path.dirname(path))
        if pool is None:
            return None
        libvirt_storage.refresh(self.endpoints.source, pool)
        return _file(self.endpoints.source, path) or _unlisted(self.endpoints.source, path)

    @asked
    def beside_disks(self, end: plan_disk_move_stages.End, path: str) -> tuple[bool, VolumeFile | None]:
        return _file_beside_disks(self._at(end), path)

    @asked
    def changed_ns(self, path: str, look: int) -> tuple[int, int]:
        time.sleep(_FIRST_LOOK_S * 2**look)
        ends = (self.endpoints.source, self.endpoints.dest)
        here, there = (_file(end, path) or _file_beside_disks(end, path)[1] for end in ends)
        return (here.changed_ns if here else 0, there.changed_ns if there else 0)

    @asked
    def data_files_here(self, path: str) -> tuple[str, ...]:
        return tuple(files_header.other_files(path))

    @asked
    def base_name_here(self, path: str) -> str | None:
        return files_header.read(path).backing

    @asked
    def is_logical_here(self, path: str) -> bool:
        if is_here(self.endpoints.source.getURI()):
            return identity.logical_volume(path) is not None
        return (found := self.device("source", path)) is not None and found.pool_type == LOGICAL

    @asked
    def pool_name_here(self, path: str) -> str | None:
        return run_directories.pool_at(self.endpoints.source, os.path.dirname(path))

    @asked
    def device(self, end: plan_disk_move_stages.End, path: str) -> plan_same_storage.Device | None:
        """The block device with this name, as its pool and libvirt's list of devices know it."""
        connection = self._at(end)
        pool = run_directories.pool_at(connection, os.path.dirname(path))
        if pool:
            libvirt_storage.refresh(connection, pool)
        volume = libvirt_storage.volume_at(connection, path)
        its_pool = libvirt_storage.pool_xml(connection, libvirt_storage.pool_at(connection, path)) if volume else None
        seen = xml_host.device(path, statistics.block_devices(connection), volume, its_pool)
        return plan_same_storage.Device(**seen) if seen else None

    @asked
    def pool(self, end: plan_disk_move_stages.End, name: str) -> plan_same_storage.PoolSource | None:
        xml = libvirt_transfer.active_pools(self._at(end)).get(name)
        return plan_same_storage.PoolSource(**xml_host.pool_source(xml)) if xml else None

    @asked
    def cluster(self, end: plan_disk_move_stages.End) -> str | None:
        return plan_same_storage.cluster(_configuration(self._at(end)))

    @asked
    def shared_file_there(self, pool: str, path: str) -> VolumeFile | None:
        """A file on shared storage as the destination sees it; its pool is refreshed if libvirt lacks the file."""
        with contextlib.suppress(Failed):  # it is listed, and gone
            found = _file(self.endpoints.dest, path)
            if found:
                return found
        self._refresh(pool)
        return _file(self.endpoints.dest, path)

    @asked
    def volume_path_here(self, pool: str, name: str) -> str | None:
        return libvirt_storage.path_in(self.endpoints.source, pool, name)

    @asked
    def volume_path_there(self, pool: str, name: str) -> str | None:
        if pool not in libvirt_transfer.active_pools(self.endpoints.dest):
            return None
        self._refresh(pool)  # on shared and network storage, others create volumes
        return libvirt_storage.path_in(self.endpoints.dest, pool, name)

    @asked
    def import_there(self, pool: str, path: str) -> plan_disk_move_stages.ImportedImage | None:
        self._refresh(pool)
        dest = self.endpoints.dest
        text = libvirt_storage.read(dest, pool, manifest_name(os.path.basename(path)))
        xml = libvirt_storage.volume_at(dest, path)
        if text is None or xml is None:
            return None
        manifest, seen = read_manifest(text.decode(errors="replace"), path), xml_host.volume(xml)
        identity = (dest.getURI(), path, manifest.sha256, seen["modified_s"], seen["physical_bytes"])
        return plan_disk_move_stages.ImportedImage(
            manifest,
            seen["modified_s"],
            seen["changed_ns"],
            seen["physical_bytes"],
            identity,
            verified=identity in self.endpoints.verified,
        )

    @asked
    def digest_there(self, pool: str, name: str) -> str:
        return libvirt_transfer.digest(self.endpoints.dest, pool, name)

    def _refresh(self, pool: str) -> None:
        if pool not in self._fresh:
            libvirt_storage.refresh(self.endpoints.dest, pool)
            self._fresh.add(pool)


def taken_back(endpoints: Endpoints, guest: FoundGuest) -> tuple[str, ...]:
    """Shared disks that libvirt may take from the destination if it ends the guest's copy here."""
    disks = fields_disk.media(parse(guest.live_xml or guest.xml))
    return plan_disk_move_stages.taken_back(disks, _Hosts(endpoints))


def variables(endpoints: Endpoints, found: FoundGuest) -> tuple[tuple[LeftDisk, ...], tuple[tuple[str, str], ...]]:
    """Files with the UEFI variables of a running guest: those deleted on the source after it has left, and those that
    stay, each with the reason.
    """
    hosts = _Hosts(endpoints)
    goes, kept = list[LeftDisk](), list[tuple[str, str]]()
    for path in xml_host_bindings.files(found.live_xml or ""):
        known = identity.of_path(path)
        if known is None:
            continue
        if why := plan_disk_move_stages.why_kept(path, hosts):
            kept.append((path, why))
        else:
            goes.append(LeftDisk(path, known))
    return tuple(goes), tuple(kept)


def _file_beside_disks(connection: t.Any, path: str) -> tuple[bool, VolumeFile | None]:
    """True if libvirt can list the path's directory, which is a pool meanwhile; and the file, or None."""
    directory, name = os.path.split(path)
    try:
        with run_directories.pool_for(connection, directory) as pool:
            libvirt_storage.refresh(connection, pool)
            return True, _described(libvirt_storage.volume_in(connection, pool, name))
    except NotFound:
        return True, None
    except VirtError:
        return False, None


def _configuration(connection: t.Any) -> bytes | None:
    """The host's own configuration of Ceph; None if libvirt cannot read it."""
    try:
        with run_directories.pool_for(connection, _CEPH) as pool:
            libvirt_storage.refresh(connection, pool)
            return libvirt_storage.read(connection, pool, "ceph.conf")
    except VirtError:
        return None


def _file(connection: t.Any, path: str) -> VolumeFile | None:
    return _described(libvirt_storage.volume_at(connection, path))


def _unlisted(connection: t.Any, path: str) -> VolumeFile | None:
    """A logical volume of this machine that libvirt does not list, as it is thin."""
    here = is_here(connection.getURI()) and identity.logical_volume(path) is not None
    size = files_lvm.size_bytes(path) if here else 0
    return VolumeFile("raw", size, size, physical_bytes=size) if size else None


def _described(xml: str | None) -> VolumeFile | None:
    if xml is None:
        return None
    found = xml_host.volume(xml)
    return VolumeFile(**{key: found[key] for key in _FILE})
