# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The types of storage pools, and the surroundings of a pool on its host."""

from __future__ import annotations

import dataclasses
import posixpath
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import ObjectKind

POOL_KIND = ObjectKind(
    "pool", persistence=True, activity=True, autostart=True, volatile=("capacity", "allocation", "available")
)


class PoolType(t.NamedTuple):
    """A type of pools: the fields that a new one needs, those that it may have, and the path that libvirt needs."""

    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    path: str | None = None  # where its devices appear, if nobody says


_AUTH = ("source.auth.type", "source.auth.username", "source.auth.secret", "source.auth.secret_usage")
_ADAPTER = tuple(f"source.adapter.{field}" for field in ("type", "name", "parent", "wwnn", "wwpn"))

# https://libvirt.org/storage.html
POOL_TYPES: dict[str, PoolType] = {
    "dir": PoolType(("path",), ("cow",)),
    "fs": PoolType(("path", "source.devices"), ("source.format", "cow")),
    "netfs": PoolType(("path", "source.hosts", "source.dir"), ("source.format", "source.protocol")),
    "logical": PoolType((), ("path", "source.name", "source.devices", "source.format")),
    "disk": PoolType(("source.devices",), ("path", "source.format"), "/dev"),
    "iscsi": PoolType(
        ("source.hosts", "source.devices"), ("path", "source.initiator", *_AUTH), path="/dev/disk/by-path"
    ),
    "iscsi-direct": PoolType(("source.hosts", "source.devices", "source.initiator"), _AUTH),
    "scsi": PoolType((), ("path", *_ADAPTER), "/dev/disk/by-path"),
    "mpath": PoolType((), ("path",), "/dev/mapper"),
    "rbd": PoolType(("source.name",), ("source.hosts", *_AUTH)),
    "gluster": PoolType(("source.hosts", "source.name"), ("source.dir",)),
    "zfs": PoolType(("source.name",), ("path", "source.devices")),
}
DIRECTORIES = ("dir", "fs", "netfs")  # pools whose volumes are files
BUILT = ("fs", "disk", "logical")  # pools that libvirt can make on empty devices
# The command that asks a server for what a pool of it needs.
ASKED_BY = {
    "netfs": "showmount -e {0} for NFS, gluster --remote-host={0} volume list for GlusterFS",
    "iscsi": "iscsiadm --mode discovery --type sendtargets --portal {0}",
    "iscsi-direct": "iscsi-ls iscsi://{0}",
    "rbd": "ceph -m {0} status",
    "gluster": "gluster --remote-host={0} volume list",
}

Obstacle = t.Callable[[str], t.Optional[str]]  # path -> what of it is there and no directory


DirectoryId = t.Callable[[str], t.Hashable]  # path -> what is the same for all paths of one directory or device


def _unknown(_path: str) -> str | None:
    return None


def _nowhere(_name: str) -> bool:
    return False


def normalised(path: str) -> t.Hashable:
    """A directory's identity as far as its path alone shows it."""
    return posixpath.normpath(path)


@dataclasses.dataclass(frozen=True)
class RawPoolHost:
    """Questions to libvirt and the host, each answered on demand: most runs change nothing, and need none."""

    pools: t.Callable[[], t.Sequence[tuple[str, str]]]  # others: name and document
    guests: t.Callable[[], t.Sequence[tuple[str, tuple[str, ...]]]]  # name and documents
    obstacle: Obstacle = _unknown
    identity: DirectoryId = normalised
    closed: Obstacle = _unknown  # path -> what of it QEMU's user cannot enter
    content: Obstacle | None = None  # device -> why it is not empty; None: it is on another machine
    has_group: t.Callable[[str], bool] = _nowhere  # whether there is a volume group of this name


@dataclasses.dataclass(frozen=True)
class PoolUser:
    """A guest with a disk in the pool."""

    name: str
    by_pool: bool  # it names the disk by the pool, not by its path


@dataclasses.dataclass(frozen=True)
class PoolHost:
    """The facts about a host that the rules of pools need."""

    others: t.Callable[[], t.Mapping[str, t.Mapping[str, t.Any]]] = dict  # the fields of each other pool, by its name
    users: t.Callable[[], t.Sequence[PoolUser]] = tuple
    obstacle: Obstacle = _unknown
    identity: DirectoryId = normalised
    closed: Obstacle = _unknown
    content: Obstacle | None = None
    has_group: t.Callable[[str], bool] = _nowhere
