# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The surroundings of a storage pool on its host."""

from __future__ import annotations

import dataclasses
import posixpath
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import ObjectKind

__all__ = ["POOL_KIND", "DirectoryId", "PoolHost", "PoolUser", "RawPoolHost", "normalised"]

POOL_KIND = ObjectKind(
    "pool", persistence=True, activity=True, autostart=True, volatile=("capacity", "allocation", "available")
)

Obstacle = t.Callable[[str], t.Optional[str]]  # path -> what of it is there and no directory


DirectoryId = t.Callable[[str], t.Hashable]  # path -> what is the same for all paths of one directory


def _unknown(_path: str) -> str | None:
    return None


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


@dataclasses.dataclass(frozen=True)
class PoolUser:
    """A guest with a disk in the pool."""

    name: str
    by_pool: bool  # it names the disk by the pool, not by its path


@dataclasses.dataclass(frozen=True)
class PoolHost:
    """The facts about a host that the rules of pools need."""

    directories: t.Callable[[], t.Mapping[str, str]] = dict  # path -> the other pool
    users: t.Callable[[], t.Sequence[PoolUser]] = tuple
    obstacle: Obstacle = _unknown
    identity: DirectoryId = normalised
    closed: Obstacle = _unknown
