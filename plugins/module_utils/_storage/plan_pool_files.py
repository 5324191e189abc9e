# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide if and where a pool can keep files, and which pool has a directory. Pure."""

from __future__ import annotations

import dataclasses
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.defaults import POOL
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._storage.model_directory import Access

_FILE_POOLS = ("dir", "fs", "netfs", "gluster")
DIRECTORY_POOLS = ("dir", "fs", "netfs")
LOGICAL = "logical"
_BY_VIRSH = "create a volume there (virsh vol-create-as POOL NAME SIZE), and set it as disks[].volume"
_OFFERED = "its volumes are what the storage offers: set one as disks[].volume"
# What a guest's disk can be in a pool where this collection creates none.
_OTHERWISE = {
    "disk": _BY_VIRSH,
    "zfs": _BY_VIRSH,
    "rbd": "create an image there (rbd create POOL/IMAGE), and set it as disks[].network",
    "iscsi": _OFFERED,
    "iscsi-direct": _OFFERED,
    "scsi": _OFFERED,
    "mpath": _OFFERED,
}


@dataclasses.dataclass(frozen=True)
class PoolDirectory:
    """A storage pool, with what matters for files in it."""

    name: str
    type: str | None
    path: str | None
    here: bool = False  # whether its path is a directory of this machine
    active: bool = True
    group: str | None = None  # the volume group of one of type logical


def file_in(pool: PoolDirectory, name: str) -> str:
    """The path of a file with this name in the pool; raises Refused if the pool's volumes are no files."""
    if pool.type not in _FILE_POOLS or not pool.path:
        raise Refused(
            f"cannot create {name} in pool {pool.name}: it is of type {pool.type}; disks are files, so use a dir, fs "
            "or netfs pool"
        )
    return os.path.join(pool.path, name)


def volume_name(pool: PoolDirectory, file: str) -> str:
    """The name of the volume in a pool where a directory would have this file: a logical volume has no ending."""
    return os.path.splitext(file)[0] if pool.type == LOGICAL else file


def disk_in(pool: PoolDirectory, name: str) -> str:
    """The path of a new disk in the pool; raises Refused if the collection creates none in pools of its type."""
    if pool.type == LOGICAL and pool.path:
        return os.path.join(pool.path, name)
    if pool.type in _OTHERWISE:
        raise Refused(
            f"cannot create {name} in pool {pool.name}: guests' disks cannot be created on a pool of type {pool.type}; "
            f"{_OTHERWISE[pool.type]}; or use a dir, fs, netfs or logical pool"
        )
    return file_in(pool, name)


def seed_pool(pool: PoolDirectory) -> str:
    """The name of the pool for the seed of a guest with disks in this one; a seed is a file."""
    return POOL if pool.type == LOGICAL else pool.name


def has_devices(pool_type: str | None) -> bool:
    """True if volumes in pools of this type are no files, and so raw."""
    return pool_type is not None and pool_type not in _FILE_POOLS


def directory(pool: PoolDirectory, what: str) -> str:
    """The directory of the pool on this machine; raises Refused."""
    if pool.type not in DIRECTORY_POOLS:
        raise Refused(
            f"cannot keep {what} in pool {pool.name}: its type is {pool.type}, which is no directory; use a dir, fs or "
            "netfs pool"
        )
    if not pool.here:
        raise Refused(
            f"cannot keep {what} in pool {pool.name}: this user sees no directory {pool.path} on this machine; "
            "create it or mount its filesystem (virt_pool with state: active does), or run this on the host of the pool"
        )
    return str(pool.path)


def disk_pool(pool: PoolDirectory) -> PoolDirectory:
    """The pool, if the collection makes disks in pools of its type on this machine; raises Refused."""
    if pool.type in DIRECTORY_POOLS:
        directory(pool, "disks")
    elif pool.type != LOGICAL:
        raise Refused(
            f"cannot keep disks in pool {pool.name}: its type is {pool.type}; use a dir, fs, netfs or logical pool"
        )
    return pool


def no_disks(pool_type: str, *, active: bool) -> str:
    """Why no disk is copied into a pool; empty if that is possible."""
    if pool_type not in (*DIRECTORY_POOLS, LOGICAL):
        return f"is of type {pool_type}, which takes no copies of disks; choose a dir, fs, netfs or logical pool"
    return "" if active else "is not active; start it there (virt_pool state: active)"


def holder(pools: t.Iterable[PoolDirectory], path: str) -> PoolDirectory | None:
    """The pool with this directory; an active one first, as nobody sees the volumes of an inactive one."""
    found = [pool for pool in pools if pool.path and os.path.normpath(pool.path) == os.path.normpath(path)]
    return next((pool for pool in found if pool.active), found[0] if found else None)


_ROOT = 0
User = tuple[int, int]  # numbers of a user and its group


def access_there(here: Access | None, qemu_here: User | None, qemu_there: User | None) -> Access | None:
    """The access for a directory that is created on the destination as on the source; None leaves it to libvirt.

    libvirt would give it to root alone. A directory of the user that runs QEMU, such as that of the UEFI variables,
    must belong to that user there. Only root and this user are known on both hosts.
    """
    if here is None or qemu_here is None or qemu_there is None:
        return None
    owners = {_ROOT: _ROOT, qemu_here[0]: qemu_there[0]}
    groups = {_ROOT: _ROOT, qemu_here[1]: qemu_there[1]}
    if here.owner not in owners:
        return None
    own_group = qemu_there[1] if owners[here.owner] else _ROOT
    return Access(here.mode, owners[here.owner], groups.get(here.group, own_group))
