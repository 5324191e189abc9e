# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A disk of a migrating guest: what its definition asks for, and what both hosts have of it. Pure."""

from __future__ import annotations

import dataclasses
import difflib
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import Pool

# Types of disks that a migration copies, or leaves on storage that both hosts have.
_TYPES = ("file", "block", "volume", "network")


@dataclasses.dataclass(frozen=True)
class VolumeFile:
    """A volume as libvirt on its host describes it."""

    format: str
    capacity_bytes: int
    allocation_bytes: int
    backing_path: str | None = None
    backing_format: str | None = None
    physical_bytes: int | None = None  # length of the file, where that is known
    modified_s: float = 0.0  # when, since the epoch
    changed_ns: int = 0  # when content or owner changed last: no user sets it


@dataclasses.dataclass(frozen=True)
class ChainFile:
    """A backing file that only the source has, such as the disk before an external snapshot."""

    path: str
    file: VolumeFile
    pool: Pool  # of the destination
    ours: bool  # an earlier run of this move made one there


@dataclasses.dataclass(frozen=True)
class MigratingDisk:
    """One disk, and what both hosts have of it."""

    target: str
    path: str
    mode: str  # what was asked for: auto, shared, delta, full
    shared_on: str | None = None  # the kind of a shared filesystem that holds it
    volume: tuple[str, str] | None = None  # pool and name, where its definition names these instead of a path
    data_files: tuple[str, ...] = ()  # that hold its content, and would stay behind
    volume_there: str | None = None  # path of the volume that they name on the destination
    elsewhere: str | None = None  # why the destination has something else at the path of a shared disk
    network: str | None = None  # protocol, or pool, by which both hosts reach a disk on the network
    servers: tuple[str, ...] = ()  # that its definition names, or their sockets
    device: bool = False  # a block device
    into: str | None = None  # pool of the destination that was asked for
    moves: bool = False  # it was asked for this very disk, which is copied then, also from shared storage
    lost: bool = False  # the destination cannot take it into that pool
    fixed: bool = False  # the guest only reads it
    shareable: bool = False
    pool: Pool | None = None  # of the destination, for its directory
    taken: bool = False  # the destination has a file of that name
    ours: bool = False  # which an earlier run of this move made
    file: VolumeFile | None = None
    base_name: str | None = None  # of its base, as it is in the file, where that matters
    base: VolumeFile | None = None
    base_there: VolumeFile | None = None
    assumed: bool = False  # an image that the destination lacks is counted as being there
    chain: tuple[ChainFile, ...] = ()  # files below it that are copied with it, the highest first
    image_below: str | None = None  # the image that the lowest of them stands on, where the destination lacks it
    base_altered: bool = False  # it was written to on the destination since it was brought there
    base_unknown: bool = False  # nobody can tell whether it was
    cache: str | None = None
    vouched: bool = False  # a file that only the user calls shared
    relabelled: str | None = None  # what the source's libvirt would do to such a file when the guest has left

    @property
    def name(self) -> str:
        """The name of the disk's volume."""
        return os.path.basename(self.path)

    @property
    def dest_name(self) -> str:
        """The name of its copy in the pool of the destination: logical volumes have no ending, raw files have one."""
        if self.pool is None or self.pool.logical == self.device:
            return self.name
        return os.path.splitext(self.name)[0] if self.pool.logical else f"{self.name}.img"

    @property
    def is_shared(self) -> bool:
        """True if it stays where it is."""
        return self.mode == "shared" or (self.mode == "auto" and bool(self.shared_on) and not self.moves)

    @property
    def dest_path(self) -> str:
        """The path of its copy on the destination."""
        if self.pool is None or os.path.normpath(os.path.dirname(self.path)) == self.pool.path:
            return self.path
        return os.path.join(self.pool.path, self.dest_name)


Described = t.Mapping[str, t.Any]  # a disk, as its definition describes it


def as_requested(items: t.Iterable[Described], params: t.Mapping[str, t.Any], *, assumed: bool) -> list[MigratingDisk]:
    """The disks that can move, each with the storage mode requested by its target, by its name, or for all."""
    modes, default = params["disk_storage"], params["storage"]
    return [
        MigratingDisk(
            str(item["target"]),
            str(item.get("source") or ""),
            modes.get(item.get("target"), modes.get(item.get("name"), default)),
            volume=volume_of(item),
            network=item.get("protocol"),
            servers=tuple(item.get("servers") or ()),
            device=item["type"] == "block",
            into=_own_pool(item, params) or (None if volume_of(item) else params["pool"]),
            moves=_own_pool(item, params) is not None,
            fixed=bool(item.get("readonly")),  # as each CD-ROM is
            shareable=bool(item.get("shareable")),
            assumed=assumed,
            cache=item.get("cache"),
        )
        for item in items
        if item["type"] in _TYPES
    ]


def _own_pool(item: Described, params: t.Mapping[str, t.Any]) -> str | None:
    """The pool that was asked for this very disk."""
    pools: t.Mapping[str, str] = params["disk_pool"]
    return pools.get(item.get("target", ""), pools.get(item.get("name", "")))


def volume_of(item: Described) -> tuple[str, str] | None:
    """The pool and volume name of a disk that is defined by these; None if it is defined by path."""
    return (item["pool"], item["volume"]) if item["type"] == "volume" else None


def unknown_disks(items: t.Iterable[Described], params: t.Mapping[str, t.Any]) -> list[str]:
    """Keys of `disk_storage` and `disk_pool` that are neither target nor name of a disk."""
    known = {str(item[key]) for item in items if item["type"] in _TYPES for key in ("target", "name") if item.get(key)}
    return [
        f"{option}: the guest has no disk {key}{near(key, known)}"
        for option in ("disk_storage", "disk_pool")
        for key in sorted(set(params[option]) - known)
    ]


def near(word: str, known: t.Iterable[str]) -> str:
    """A question after the most similar known word; empty if none is similar."""
    found = difflib.get_close_matches(word, sorted(known), 1)
    return f"; did you mean {found[0]}?" if found else ""
