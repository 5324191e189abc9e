# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide if and where a pool can keep files, and which pool has a directory. Pure."""

from __future__ import annotations

import dataclasses
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused

__all__ = ["DIRECTORY_POOLS", "PoolDirectory", "directory", "file_in", "holder", "no_files"]

_FILE_POOLS = ("dir", "fs", "netfs", "gluster")
DIRECTORY_POOLS = ("dir", "fs", "netfs")


@dataclasses.dataclass(frozen=True)
class PoolDirectory:
    """A storage pool, with what matters for files in it."""

    name: str
    type: str | None
    path: str | None
    here: bool = False  # whether its path is a directory of this machine
    active: bool = True


def file_in(pool: PoolDirectory, name: str) -> str:
    """The path of a file with this name in the pool; raises Refused if the pool's volumes are no files."""
    if pool.type not in _FILE_POOLS or not pool.path:
        raise Refused(
            f"cannot create {name} in pool {pool.name}: it is of type {pool.type}; disks are files, so use a dir, fs "
            "or netfs pool"
        )
    return os.path.join(pool.path, name)


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


def no_files(pool_type: str, *, active: bool) -> str:
    """Why no file is created in a pool; empty if that is possible."""
    if pool_type not in DIRECTORY_POOLS:
        return f"is of type {pool_type}, which is no directory; choose a dir, fs or netfs pool"
    return "" if active else "is not active; start it there (virt_pool state: active)"


def holder(pools: t.Iterable[PoolDirectory], path: str) -> PoolDirectory | None:
    """The pool with this directory; an active one first, as nobody sees the volumes of an inactive one."""
    found = [pool for pool in pools if pool.path and os.path.normpath(pool.path) == os.path.normpath(path)]
    return next((pool for pool in found if pool.active), found[0] if found else None)
