# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide how each disk of a guest is transferred, and why. Pure."""

from __future__ import annotations

import dataclasses
import os.path
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._core.units import is_content
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Volume, owner_tag
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import (
    COPY,
    DELTA,
    FULL,
    SHARED,
    DiskMove,
    MigrationHost,
    Pool,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migrating_disk import (
    MigratingDisk,
    VolumeFile,
    near,
)
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity, OwnedVolume

_SAFE_CACHES = ("none", "directsync")


def relabelling(*, owner: bool, selinux: bool) -> tuple[str, ...]:
    """What a libvirt that sets the owner or SELinux label of files does to disks when their guest ends."""
    return ("change its owner (dynamic_ownership)",) * owner + ("change its SELinux label",) * selinux


def ways(
    disks: t.Iterable[MigratingDisk],
    *,
    active: bool,
    waiting: t.Iterable[str] = (),
    wrong: t.Iterable[str] = (),
) -> tuple[list[DiskMove], list[str]]:
    """How each disk of a guest is transferred, and why disks cannot be.

    `waiting` are disks that only the stored definition has; `wrong` is what else is wrong with the options.
    """
    moves, refused = plan_moves(disks, active=active)
    problems = [f"disk {path} is pending until the next boot; attach or detach it first" for path in sorted(waiting)]
    return moves, [*problems, *wrong, *_twice(moves), *refused]


def wrong_pools(host: MigrationHost, dest: str, wanted: t.Iterable[str | None]) -> list[str]:
    """Why pools of the destination that were asked for cannot take disks."""
    usable = {pool.name for pool in host.pools}
    lacking = sorted({pool for pool in wanted if pool and pool not in usable})
    reasons = host.unusable_pools
    return [
        f"storage pool {pool} of {dest} {reasons[pool]}"
        if pool in reasons
        else f"{dest} has no storage pool {pool}{near(pool, usable)}"
        for pool in lacking
    ]


def deletable(moves: t.Iterable[DiskMove], *, fixed: t.Collection[str], owned: t.Collection[str]) -> list[str]:
    """Disks to delete on the source if nothing else there uses them: copied ones, but of those only read (`fixed`), and
    of logical volumes, only the `owned`.
    """
    return [
        move.path
        for move in moves
        if move.volume and (move.path in owned or not (move.path in fixed or move.path.startswith("/dev/")))
    ]


def with_sources(
    moves: t.Iterable[DiskMove], free: t.Collection[str], shared: t.Mapping[str, str]
) -> tuple[DiskMove, ...]:
    """The moves, each with whether its source is deleted: if it is `free`, and not on a `shared` filesystem (by path),
    where guests of hosts that nobody asks may stand on it.
    """
    return tuple(
        dataclasses.replace(
            move,
            delete_source=move.path in free and move.path not in shared,
            stays_on=shared.get(move.path, "") if move.path in free else "",
        )
        for move in moves
    )


def is_own_volume(
    path: str, entries: t.Iterable[OwnedVolume], guest: str, found: FileIdentity | None, tags: t.Collection[str]
) -> bool:
    """True if the logical volume `found` at the path was made for the guest (a UUID): it has the tag of that, or the
    guest's record its UUID.
    """
    if found is None:
        return False
    known = [one.identity for one in entries if (one.path, one.guest) == (path, guest)]
    return owner_tag(guest) in tags or any(one and one.is_same(found) for one in known)


def plan_moves(disks: t.Iterable[MigratingDisk], *, active: bool) -> tuple[list[DiskMove], list[str]]:
    """How each disk of a guest is transferred, and what is refused.

    libvirt copies all disks of a guest in full, or of all only the differences.
    """
    moves, problems = {}, []
    for disk in disks:
        if disk.lost:
            continue  # the pool that was asked for is told once, for all disks
        try:
            moves[disk] = plan_move(disk, active=active)
        except Refused as error:
            problems.append(str(error))
    if any(move.vouched for move in moves.values()):
        trusted = [disk for disk, move in moves.items() if move.how == SHARED and not (disk.fixed or disk.network)]
        problems += [_unsafe(disk) for disk in trusted if disk.cache not in _SAFE_CACHES]
    flattened = next((move.target for move in moves.values() if move.flatten), None)
    for disk, move in moves.items() if flattened else ():
        if move.how == DELTA and disk.mode == "delta":
            remedy = f"use storage: full for it, or delta for {flattened}"
            problems.append(
                f"disk {disk.target}: {flattened} is copied in full, and libvirt copies all disks of a guest in the "
                f"same way; {remedy}"
            )
        elif move.how == DELTA:
            moves[disk] = _flattened(
                disk, move, f"{flattened} is copied in full, and libvirt copies all disks of a guest in the same way"
            )
    return _with_chains(moves), problems


def _with_chains(moves: t.Mapping[MigratingDisk, DiskMove]) -> list[DiskMove]:
    """Each disk after the backing files that are copied with it, the lowest first; each file once."""
    found: dict[tuple[str, str], DiskMove] = {}
    for disk, move in moves.items():
        for member in reversed(disk.chain) if move.volume and move.volume.backing_path else ():
            size = member.file.allocation_bytes
            volume = Volume(
                member.pool.name,
                os.path.basename(member.path),
                member.path,
                member.file.capacity_bytes,
                member.file.format,
                backing_path=member.file.backing_path,
                backing_format=member.file.backing_format,
            )
            below = DiskMove(
                disk.target, member.path, COPY, f"{move.path} stands on it", volume, size, size, replace=member.ours
            )
            found.setdefault(("", member.path), below)
        found[(move.target, move.path)] = move
    return list(found.values())


def _twice(moves: t.Iterable[DiskMove]) -> t.Iterator[str]:
    """Files that would be copied for more than one disk, or to one path."""
    by_path, by_dest = dict[str, list[str]](), dict[str, dict[str, str]]()
    for move in moves:
        if move.volume:
            by_path.setdefault(move.path, []).append(move.target)
            by_dest.setdefault(move.dest_path, {})[move.path] = move.target
    for path, targets in by_path.items():
        if len(targets) > 1:
            yield f"disks {' and '.join(targets)} are one file, {path}, and would be copied twice; detach one of them"
    for path, others in by_dest.items():
        if len(others) > 1:
            both = " and ".join(others.values())
            yield f"disks {both} would both be copied to {path}; choose another pool for one of them (disk_pool)"


def plan_move(disk: MigratingDisk, *, active: bool) -> DiskMove:
    """How the disk is transferred; raises Refused."""
    if disk.volume:
        _check_volume(disk, *disk.volume)
    if disk.moves:
        _check_pool(disk)
    if disk.network:
        return _on_network(disk, disk.network)
    if disk.device and not disk.pool:
        return _on_device(disk)
    if disk.is_shared:
        return _shared(disk, active=active)
    return _copied(disk, active=active)


def _copied(disk: MigratingDisk, *, active: bool) -> DiskMove:
    """How a disk that is copied is transferred; raises Refused."""
    pool, file = _allowed(disk)
    volume = Volume(pool.name, disk.dest_name, disk.dest_path, file.capacity_bytes, file.format)
    if pool.logical or disk.device:
        return _whole(disk, volume, active=active)
    based = dataclasses.replace(volume, backing_path=file.backing_path, backing_format=file.backing_format)
    size_bytes = file.allocation_bytes
    doubt = disk.base_there is None or disk.base_unknown
    bring = file.backing_path if _named_for_content(file.backing_path) and doubt and disk.mode != "full" else None
    move = DiskMove(
        disk.target, disk.path, FULL, "no backing file", volume, size_bytes, size_bytes, base=bring, replace=disk.taken
    )
    why = "" if (bring and disk.assumed) or disk.chain else _without_base(disk, file.backing_path)
    if disk.image_below:
        move = dataclasses.replace(move, base=disk.image_below)
    if not active or disk.fixed:
        if file.backing_path and why:
            return _refuse_bare(disk, why)
        if disk.data_files:
            return _refuse_data_file(disk)
        if _is_relative(disk.base_name):
            return _refuse_relative(disk)
        reason = "nothing writes to it" if disk.fixed else "the guest is off"
        return dataclasses.replace(move, how=COPY, why=reason, volume=based)
    if disk.volume:
        return _whole_volume(disk, move, file)
    if file.backing_path is None:
        return move
    if not why:
        way = ("copied" if disk.chain else "", "imported" if bring else "", "there")
        return dataclasses.replace(
            move, how=DELTA, why=f"{file.backing_path} is {next(filter(None, way))}", volume=based
        )
    if disk.mode == "delta":
        raise Refused(f"disk {disk.target}: {why}; import it there with virt_image, or use storage: full")
    return _flattened(disk, move, why)


def _whole(disk: MigratingDisk, volume: Volume, *, active: bool) -> DiskMove:
    """The move of a disk from or to a logical volume, of which all bytes are copied; raises Refused."""
    pool, file = t.cast(Pool, disk.pool), t.cast(VolumeFile, disk.file)
    if file.format != "raw":
        raise Refused(
            f"disk {disk.target}: {disk.path} is {file.format}, and a logical volume, as in pool {pool.name}, is raw; "
            "choose another pool, or convert the disk first (playbook move_disk, with format: raw)"
        )
    size_bytes = volume.capacity_bytes
    volume = dataclasses.replace(volume, allocation_bytes=size_bytes if pool.logical else None)
    kind = "a logical volume" if disk.device else "a raw file"
    why = f"{kind} is copied whole" + (f" into a thick logical volume of pool {pool.name}" if pool.logical else "")
    how = COPY if disk.fixed or not active else FULL
    named = how == FULL and bool(disk.volume)  # see `_whole_volume`
    return DiskMove(disk.target, disk.path, how, why, volume, size_bytes, size_bytes, replace=disk.taken, flatten=named)


def _check_pool(disk: MigratingDisk) -> None:
    """Raise Refused if a pool was asked for a disk that is not copied as a file."""
    kinds = {
        "it is on the network": disk.network,
        "it is a block device, and no logical volume": disk.device and not disk.pool,
        "its storage is declared as shared": disk.mode == SHARED,
        "it is named by pool and volume, and not by its path (source)": disk.volume and disk.into != disk.volume[0],
    }
    if why := next((text for text, met in kinds.items() if met), None):
        raise Refused(f"disk {disk.target}: {why}, and is not copied into pool {disk.into}; omit disk_pool for it")


def _check_volume(disk: MigratingDisk, pool: str, name: str) -> None:
    """Raise Refused unless the volume is the same file on both hosts: else the guest would start with another disk."""
    if not disk.path:
        raise Refused(
            f"disk {disk.target}: the source has no volume {name} in an active pool {pool}; look for it (virsh "
            "pool-list --all, virsh vol-list POOL)"
        )
    if disk.volume_there != disk.path:
        there = f"would be {disk.volume_there}" if disk.volume_there else "is missing"
        remedy = "make its directory the same there" if disk.volume_there else "create and start the pool there"
        raise Refused(
            f"disk {disk.target}: volume {name} of pool {pool} is {disk.path} on the source, and {there} on the "
            f"destination; {remedy} (virt_pool), or name the path in the guest's definition (source)"
        )


def _whole_volume(disk: MigratingDisk, move: DiskMove, file: VolumeFile) -> DiskMove:
    """The move of a disk named by pool and volume: full, as with VIR_MIGRATE_NON_SHARED_INC libvirt takes it for
    missing.
    """
    why = "it is named by pool and volume, and libvirt copies such a disk only in full"
    if disk.mode == DELTA and file.backing_path:
        raise Refused(f"disk {disk.target}: {why}; use storage: full, or name its path in the definition (source)")
    return _flattened(disk, dataclasses.replace(move, base=None), why)


def _on_network(disk: MigratingDisk, network: str) -> DiskMove:
    """The move of a network disk, which stays where it is; raises Refused if a copy was requested."""
    if disk.mode in (DELTA, FULL):
        raise Refused(
            f"disk {disk.target}: it is on the network ({network}), and is not copied; set disk_storage: "
            f"{{{disk.target}: shared}}"
        )
    if disk.elsewhere:
        raise Refused(
            f"disk {disk.target}: it is on the network ({network}), and {disk.elsewhere}; name a server that is the "
            f"same for both hosts, or set disk_storage: {{{disk.target}: shared}} if both reach the same"
        )
    return DiskMove(disk.target, disk.path, SHARED, f"on the network ({network})")


def _on_device(disk: MigratingDisk) -> DiskMove:
    """The move of a block device, which stays where it is; raises Refused unless both hosts have it."""
    if disk.elsewhere or disk.mode in (DELTA, FULL):
        why = disk.elsewhere or "a copy was requested"
        raise Refused(
            f"disk {disk.target}: block device {disk.path} is not copied, and {why}; if both hosts have it, let "
            "libvirt of both know it (virt_pool of type logical, iscsi, scsi or mpath), or set disk_storage: "
            f"{{{disk.target}: shared}}; a logical volume is copied into an active pool of type logical of the "
            "destination that has its name or path (virt_pool), or into another one (disk_pool); else move the disk "
            "into a directory pool first (playbook move_disk)"
        )
    why = f"on both hosts ({disk.shared_on})" if disk.shared_on else "on storage declared as shared"
    return DiskMove(disk.target, disk.path, SHARED, why)


def _shared(disk: MigratingDisk, *, active: bool) -> DiskMove:
    """The move of a shared disk, which stays where it is; raises Refused if that is unsafe.

    On storage that only the user declares shared, libvirt must take nothing back from a guest that has left.
    """
    if disk.data_files:
        return _refuse_data_file(disk)
    if disk.elsewhere:
        raise Refused(
            f"disk {disk.target}: {disk.path} is on {disk.shared_on or 'storage declared as shared'}, and "
            f"{disk.elsewhere}; mount the same storage on the destination, or set disk_storage: {{{disk.target}: full}}"
            + (" (or shared, if it is the same file)" if disk.mode == "auto" else "")
        )
    move = DiskMove(disk.target, disk.path, SHARED, f"on {disk.shared_on or 'storage declared as shared'}")
    if not active or not disk.vouched or disk.fixed:
        return move
    if disk.relabelled:
        raise Refused(
            f"disk {disk.target}: libvirt does not know that {disk.path} is shared, and would {disk.relabelled} when "
            "the guest has left; add its directory to shared_filesystems in /etc/libvirt/qemu.conf on both hosts, if "
            "libvirt has that setting, or migrate the guest while it is off"
        )
    return dataclasses.replace(move, vouched=True)


def _unsafe(disk: MigratingDisk) -> str:
    cache = f"cache {disk.cache}" if disk.cache else "the default cache"
    return (
        f"disk {disk.target}: {cache} is not safe on storage that only the task declares as shared; set cache: none, "
        "and restart the guest"
    )


def _flattened(disk: MigratingDisk, move: DiskMove, why: str) -> DiskMove:
    """The move as a full copy without a backing file."""
    size_bytes = move.bytes_to_move + (0 if disk.base is None else disk.base.allocation_bytes)
    alone = dataclasses.replace(t.cast(Volume, move.volume), backing_path=None, backing_format=None)
    return dataclasses.replace(
        move, how=FULL, why=why, volume=alone, bytes_to_move=size_bytes, room_bytes=size_bytes, flatten=True
    )


def _allowed(disk: MigratingDisk) -> tuple[Pool, VolumeFile]:
    if disk.shareable:
        raise Refused(
            f"disk {disk.target}: it is shareable, and a copy would no longer be the disk that others use; put it on "
            "shared storage"
        )
    if disk.pool is None:
        directory = os.path.dirname(disk.path)
        raise Refused(
            f"disk {disk.target}: the destination has no active storage pool at {directory}; start the pool of that "
            "directory there, or create one"
        )
    if disk.taken and not disk.ours:
        raise Refused(
            f"disk {disk.target}: {disk.dest_path} already exists on the destination, and no migration of this guest "
            f"created it; if it is the same file, set disk_storage: {{{disk.target}: shared}}; if it is a leftover, "
            "inspect it and remove it there"
        )
    if disk.file is None:
        raise Refused(
            f"disk {disk.target}: {disk.path} is in no active storage pool of the source; create a pool for its "
            "directory"
        )
    return disk.pool, disk.file


def _named_for_content(base: str | None) -> bool:
    """True if the base's name contains its checksum: only then is the same name the same content.

    Otherwise the user must vouch for it.
    """
    return bool(base and is_content(base))


def _without_base(disk: MigratingDisk, base: str | None) -> str:
    """Why the disk cannot use its base on the destination; empty if it can."""
    if disk.mode == "full":
        return "a full copy was requested"
    if disk.base is None or disk.base_there is None:
        return f"its base {base} is not on the destination"
    if disk.base_altered:
        return (
            f"its base {base} was written to on the destination after virt_image imported it: remove it there "
            "(virt_image)"
        )
    if disk.base_there.capacity_bytes != disk.base.capacity_bytes:
        return f"its base {base} has another size on the destination"
    known = _named_for_content(base) and not disk.base_unknown
    return "" if disk.mode == "delta" or known else f"its base {base} is not known to be the same on the destination"


def _refuse_data_file(disk: MigratingDisk) -> t.NoReturn:
    raise Refused(
        f"disk {disk.target}: its data is in {', '.join(disk.data_files)}, which is not copied with it; make it one "
        f"file (qemu-img convert -O qcow2 {disk.path} NEW) and name that, or put both on shared storage"
    )


def _is_relative(name: str | None) -> bool:
    """True if a backing file's name leads from another directory to another file."""
    return bool(name) and not re.match(r"/|\w+:", t.cast(str, name))


def _refuse_relative(disk: MigratingDisk) -> t.NoReturn:
    raise Refused(
        f"disk {disk.target}: its backing file is {disk.base_name}, as seen from {disk.path}, and would be another one "
        f"in pool {disk.into}; name it absolutely (virt_image state: rebased), or omit the pool"
    )


def _refuse_bare(disk: MigratingDisk, why: str) -> t.NoReturn:
    raise Refused(
        f"disk {disk.target}: {why}; import it there with virt_image, or flatten the disk (virt_image state: flattened)"
    )
