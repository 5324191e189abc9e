# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what must be known about a migrating guest's disk, and if its base on the destination is usable. Pure.

The stages ask `DiskHosts`; no question is asked whose answer decides nothing.
"""

from __future__ import annotations

import dataclasses
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.units import is_content
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Manifest
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import Pool
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migrating_disk import (
    ChainFile,
    Described,
    MigratingDisk,
    VolumeFile,
    volume_of,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_same_storage import (
    Device,
    PoolSource,
    may_be_one_file,
    other_cluster,
    other_device,
    other_pool,
    own_server,
    tell_one_file,
)

_DEPTH = 64  # files below a disk
_LOOKS = 7  # each after twice the time: a client of a shared filesystem may keep what it knows for a minute
_CLOCK_S = 2  # between a file's time and that in its manifest


@dataclasses.dataclass(frozen=True)
class ImportedImage:
    """An image on the destination, with its manifest."""

    manifest: Manifest
    modified_s: float
    changed_ns: int
    physical_bytes: int
    identity: tuple[t.Any, ...]  # by which a run knows again what it has verified
    verified: bool  # by this run


End = t.Literal["source", "dest"]


class DiskHosts(t.Protocol):
    """Both ends of a migration, for its guest's disks: the source (`here`) and the destination (`there`)."""

    def shared_filesystem(self, path: str) -> str | None:
        """The shared filesystem, or directory that qemu.conf declares shared, that holds a path; None if none does."""

    def relabelling(self) -> tuple[str, ...]:
        """What the source's libvirt does to a guest's disks when the guest ends there."""

    def is_taken_there(self, pool: str, name: str) -> bool:
        """True if a pool of the destination has a volume of this name."""

    def file(self, end: End, path: str) -> VolumeFile | None:
        """The volume at this path; None if libvirt knows none."""

    def new_file_here(self, path: str) -> VolumeFile | None:
        """The source's, after its pool was refreshed: it may have come there behind libvirt's back."""

    def beside_disks(self, end: End, path: str) -> tuple[bool, VolumeFile | None]:
        """True if libvirt can list the path's directory; and the file at the path, or None."""

    def changed_ns(self, path: str, look: int) -> tuple[int, int]:
        """When a file was last changed, as the source and the destination tell it some time after the look before."""

    def data_files_here(self, path: str) -> tuple[str, ...]:
        """The other files that hold the content of an image of the source."""

    def base_name_here(self, path: str) -> str | None:
        """The name of an image's backing file, as the image on the source has it."""

    def is_logical_here(self, path: str) -> bool:
        """True if a block device of the source is a logical volume: libvirt does not list thin ones."""

    def pool_name_here(self, path: str) -> str | None:
        """The name of the source's active pool for the directory of a file; None if there is none."""

    def device(self, end: End, path: str) -> Device | None:
        """The block device with this name; None if libvirt knows none."""

    def pool(self, end: End, name: str) -> PoolSource | None:
        """Where the volumes of a pool come from; None if there is no such pool."""

    def cluster(self, end: End) -> str | None:
        """The FSID of a host's own Ceph cluster; None if its configuration has none."""

    def shared_file_there(self, pool: str, path: str) -> VolumeFile | None:
        """What is at the path of a shared disk in a pool of the destination; None if nothing is."""

    def volume_path_here(self, pool: str, name: str) -> str | None:
        """The path of a volume of the source, in a pool with a directory the one that it would have; None without."""

    def volume_path_there(self, pool: str, name: str) -> str | None:
        """The path of a volume of the destination, whose pool is refreshed first; None if the pool is not active."""

    def import_there(self, pool: str, path: str) -> ImportedImage | None:
        """An image in a pool of the destination with its manifest; None if either is missing."""

    def digest_there(self, pool: str, name: str) -> str:
        """The SHA-256 of a volume of the destination, which is read in full."""


@dataclasses.dataclass(frozen=True)
class DiskMoveFacts:
    """A disk as the guest's definition has it, and the destination's pools."""

    disk: MigratingDisk
    raw: bool
    pools: t.Mapping[str, Pool]  # by directory
    ours: t.Collection[str]  # paths that an earlier run of this move made there
    active: bool  # whether the guest runs
    into: Pool | None = None  # that was asked for

    def pool(self, path: str) -> Pool | None:
        """The destination's pool for the directory of a file."""
        return self.pools.get(os.path.normpath(os.path.dirname(path)))

    def named(self, pool: str | None) -> Pool | None:
        """The destination's volume group of the pool with this name, which may have another path there."""
        return next((one for one in self.pools.values() if one.logical and one.name == pool), None)


@dataclasses.dataclass(frozen=True)
class SeenDisk:
    """What is known of the disk, and the identity of the base that this run has verified for it."""

    disk: MigratingDisk
    verified: tuple[tuple[t.Any, ...], ...] = ()


def disk(facts: DiskMoveFacts, hosts: DiskHosts) -> SeenDisk:
    """What both hosts have of a disk; for one that stays where it is, neither file nor base."""
    known = _located(facts.disk, hosts)
    path = known.path
    if known.network:
        return SeenDisk(_served(known, hosts))
    if not path:
        return SeenDisk(known)
    if known.device or _is_device(path):
        return _volume_or_device(facts, _device(known, hosts), hosts)
    shared_on = hosts.shared_filesystem(path)
    known = dataclasses.replace(known, shared_on=shared_on)
    if known.mode == "shared" and shared_on is None:
        relabelled = hosts.relabelling()
        known = dataclasses.replace(known, vouched=True, relabelled=" and ".join(relabelled))
    if known.is_shared:
        data, elsewhere = _local_data(facts, known, hosts), _elsewhere(facts, known, hosts)
        return SeenDisk(dataclasses.replace(known, data_files=data, elsewhere=elsewhere))
    pool = facts.into if known.into else facts.pool(path)
    if pool is None:
        return SeenDisk(dataclasses.replace(known, lost=bool(known.into)))
    return _copied(facts, known, pool, hosts)


def _copied(facts: DiskMoveFacts, known: MigratingDisk, pool: Pool, hosts: DiskHosts) -> SeenDisk:
    """A disk that is copied into a pool, with its file and its base."""
    path, known = known.path, dataclasses.replace(known, pool=pool)
    known = dataclasses.replace(known, taken=hosts.is_taken_there(pool.name, known.dest_name))
    file = hosts.file("source", path) or hosts.new_file_here(path)
    file = as_defined(file, raw=facts.raw)
    data = hosts.data_files_here(path) if file and file.format != "raw" else ()
    known = dataclasses.replace(known, file=file, data_files=data, ours=known.dest_path in facts.ours)
    if file is None or not file.backing_path:
        return SeenDisk(known)
    if known.dest_path != path and (known.fixed or not facts.active):
        known = dataclasses.replace(known, base_name=hosts.base_name_here(path))
    return _on_base(facts, known, file.backing_path, hosts)


def _volume_or_device(facts: DiskMoveFacts, known: MigratingDisk, hosts: DiskHosts) -> SeenDisk:
    """A logical volume that only the source has is copied if the destination has a pool for it; no other device is."""
    if known.shared_on or known.mode in ("shared", "delta") or not hosts.is_logical_here(known.path):
        return SeenDisk(known)
    pool = facts.into if known.into else facts.pool(known.path) or facts.named(hosts.pool_name_here(known.path))
    if pool is None:
        return SeenDisk(dataclasses.replace(known, lost=bool(known.into)))
    return _copied(facts, known, pool, hosts)


def _device(known: MigratingDisk, hosts: DiskHosts) -> MigratingDisk:
    """A block device, with the proof that both hosts have it, or why there is none."""
    if known.mode not in ("auto", "shared") or known.moves:
        return dataclasses.replace(known, device=True)
    here, there = hosts.device("source", known.path), hosts.device("dest", known.path)
    proof, elsewhere = other_device(here, there, declared=known.mode == "shared")
    return dataclasses.replace(known, device=True, shared_on=proof or None, elsewhere=elsewhere or None)


def _served(known: MigratingDisk, hosts: DiskHosts) -> MigratingDisk:
    """A disk on the network, and why both hosts may not reach the same one."""
    if known.mode not in ("auto", "shared") or known.moves or (known.volume and known.volume_there != known.path):
        return known
    declared = known.mode == "shared"
    if known.volume:
        why = other_pool(hosts.pool("source", known.volume[0]), hosts.pool("dest", known.volume[0]), declared=declared)
    elif declared:
        why = ""
    elif known.network == "rbd" and not known.servers:
        why = other_cluster(hosts.cluster("source"), hosts.cluster("dest"))
    else:
        why = own_server(known.servers)
    return dataclasses.replace(known, elsewhere=why or None)


def _local_data(facts: DiskMoveFacts, known: MigratingDisk, hosts: DiskHosts) -> tuple[str, ...]:
    """Data files of a disk on shared storage that are not on shared storage themselves."""
    if facts.raw or not known.shared_on:
        return ()
    data = [path for path in hosts.data_files_here(known.path) if os.path.isabs(path)]
    return tuple(path for path in data if not hosts.shared_filesystem(path))


def _elsewhere(facts: DiskMoveFacts, known: MigratingDisk, hosts: DiskHosts) -> str | None:
    """Why a disk on shared storage is not the destination's file at its path; None if it is."""
    pool, path = facts.pool(known.path), known.path
    here = hosts.file("source", path) or hosts.beside_disks("source", path)[1]
    is_seen, there = (True, hosts.shared_file_there(pool.name, path)) if pool else hosts.beside_disks("dest", path)
    host = f"pool {pool.name} of the destination" if pool else "the destination"
    if not is_seen or here is None:
        at = host if here else "the source"
        return None if known.mode == "shared" else f"libvirt of {at} cannot list its directory"
    if there is None:
        return f"{host} does not have it"
    mine, its = (t.cast(VolumeFile, as_defined(one, raw=facts.raw)) for one in (here, there))
    return None if _is_one(facts, known, mine, its, hosts) else f"{host} has another file there"


def _is_one(facts: DiskMoveFacts, known: MigratingDisk, here: VolumeFile, there: VolumeFile, hosts: DiskHosts) -> bool:
    """True if the file of a disk on shared storage is the same on both hosts; if the user declares it to be, unless
    something contradicts.
    """
    if not may_be_one_file(here, there, fixed=known.fixed, active=facts.active):
        return False
    first = (here.changed_ns, there.changed_ns)
    if known.fixed or known.mode == "shared" or first[0] == first[1]:
        return True
    return facts.active and any(tell_one_file(first, hosts.changed_ns(known.path, look)) for look in range(_LOOKS))


def _located(known: MigratingDisk, hosts: DiskHosts) -> MigratingDisk:
    """The disk with the path of its volume on both hosts; volumes of a network pool have none."""
    if known.volume is None:
        return known
    path = hosts.volume_path_here(*known.volume) or ""
    there = hosts.volume_path_there(*known.volume) if path else None
    network = f"pool {known.volume[0]}" if path and not os.path.isabs(path) else None
    return dataclasses.replace(known, path=path, volume_there=there, network=network)


def taken_back(disks: t.Iterable[Described], hosts: DiskHosts) -> tuple[str, ...]:
    """Shared disks of a guest that libvirt may take from the destination if it ends the guest's copy on the source.

    It spares them only at the end of a migration that succeeded (VIR_QEMU_PROCESS_STOP_MIGRATED). Disks that are
    read-only or shareable are never taken.
    """
    written = [disk for disk in disks if not (disk.get("readonly") or disk.get("shareable"))]
    files = [path for path in _paths(written, hosts) if not _is_device(path)]
    shared = tuple(path for path in files if hosts.shared_filesystem(path))
    return shared if shared and hosts.relabelling() else ()


def why_kept(path: str, hosts: DiskHosts) -> str:
    """Why the file with a running guest's UEFI variables stays on the source when it has left; empty if it is deleted.

    The guest keeps using the file if both hosts see the same one. That a filesystem is shared is not always known, so
    what the destination has at that path before the guest arrives is compared, as for a disk.
    """
    if shared_on := hosts.shared_filesystem(path):
        return f"it is on shared storage ({shared_on})"
    is_seen, there = hosts.beside_disks("dest", path)
    if not is_seen:
        return "libvirt cannot tell whether the destination has the same file; remove it if it has not"
    if there is None:
        return ""
    is_seen, here = hosts.beside_disks("source", path)
    if is_seen and here and not may_be_one_file(here, there, fixed=False, active=True):
        return ""
    return "the destination already had a file there, which may be the same one; remove it if it is not"


def _paths(disks: t.Iterable[Described], hosts: DiskHosts) -> t.Iterator[str]:
    """Paths of disks that are files, block devices, or volumes of these kinds."""
    for disk in disks:
        volume = volume_of(disk)
        path = hosts.volume_path_here(*volume) if volume else disk.get("source")
        if path and os.path.isabs(path) and disk["type"] != "network":
            yield path


def _is_device(path: str) -> bool:
    return path.startswith("/dev/")


def as_defined(file: VolumeFile | None, *, raw: bool) -> VolumeFile | None:
    """The file as the guest's definition has it: a raw disk has no base, whatever libvirt reads in the guest's data."""
    if file is None or not raw:
        return file
    return dataclasses.replace(
        file,
        format="raw",
        capacity_bytes=file.physical_bytes or file.capacity_bytes,
        backing_path=None,
        backing_format=None,
    )


def _on_base(facts: DiskMoveFacts, known: MigratingDisk, base: str, hosts: DiskHosts) -> SeenDisk:
    """The disk with what is known of its base."""
    verdict, verified = _compared(facts, base, hosts)
    known = dataclasses.replace(
        known,
        base=hosts.file("source", base),
        base_there=hosts.file("dest", base),
        base_altered=verdict == "altered",
        base_unknown=verdict == "unknown",
    )
    if known.base_there is None and not is_content(base) and known.mode in ("auto", "delta"):
        return _with_chain(facts, known, verified, hosts)
    return SeenDisk(known, verified)


def _with_chain(
    facts: DiskMoveFacts, known: MigratingDisk, verified: tuple[tuple[t.Any, ...], ...], hosts: DiskHosts
) -> SeenDisk:
    """The disk with the backing files to copy, down to an image or the last file; with none if one of them cannot be
    copied.
    """
    found: list[ChainFile] = []
    above = known.file
    while above and above.backing_path:
        path = above.backing_path
        if is_content(path):
            verdict, more = _compared(facts, path, hosts)
            if verdict != "same":
                known = dataclasses.replace(known, image_below=path)
                found = found if known.assumed and verdict != "altered" else []
            verified += more
            break
        member = _chain_file(facts, path, hosts, raw=above.backing_format == "raw")
        if member is None or above.backing_format is None or len(found) > _DEPTH:
            return SeenDisk(known, verified)
        found.append(member)
        above = member.file
    return SeenDisk(dataclasses.replace(known, chain=tuple(found)), verified)


def _chain_file(facts: DiskMoveFacts, path: str, hosts: DiskHosts, *, raw: bool) -> ChainFile | None:
    """A backing file to copy; None if it is in no pool, has data files, or its name is taken on the destination."""
    pool = facts.pool(path)
    if pool is None or _is_device(path):
        return None
    file = as_defined(hosts.file("source", path) or hosts.new_file_here(path), raw=raw)
    ours = path in facts.ours
    taken = hosts.is_taken_there(pool.name, os.path.basename(path))
    if file is None or (taken and not ours) or (file.format != "raw" and hosts.data_files_here(path)):
        return None
    return ChainFile(path, file, pool, ours and taken)


def _compared(facts: DiskMoveFacts, base: str, hosts: DiskHosts) -> tuple[str, tuple[tuple[t.Any, ...], ...]]:
    """The verdict on a base, and its identity if this run has verified it.

    A base that is in no pool there, or has no manifest, is not known to be the same.
    """
    pool = facts.pool(base)
    if pool is None:
        return "unknown", ()
    there = hosts.import_there(pool.name, base)
    if there is None:
        return "unknown", ()
    verdict = _verdict(there, lambda: hosts.digest_there(pool.name, os.path.basename(base)), assumed=facts.disk.assumed)
    return verdict, (there.identity,) if verdict == "same" else ()


def _verdict(there: ImportedImage, digest: t.Callable[[], str], *, assumed: bool) -> str:
    """`same`, `altered` (since it was verified there), or `unknown`; a base is verified before anything moves.

    A guest that starts on a base changes its time too: a base verified in this run is not read again.
    """
    manifest = there.manifest
    if there.modified_s > manifest.fetched_s + _CLOCK_S:
        return "altered"
    if there.verified or manifest.is_of(size=there.physical_bytes, changed_ns=there.changed_ns):
        return "same"
    if assumed:
        return "unknown"
    return "same" if digest() == manifest.sha256 else "altered"
