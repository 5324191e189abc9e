# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The table and the XML of a directory storage pool."""

from __future__ import annotations

import posixpath
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._noun.fields_schema import Schema
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Found, Spec
from ansible_collections.corral.virt.plugins.module_utils._storage.model_pool import (
    POOL_KIND,
    DirectoryId,
    PoolHost,
    PoolUser,
    RawPoolHost,
)
from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml import row, tree
from ansible_collections.corral.virt.plugins.module_utils._xml.overlay import Shape
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Row

__all__ = ["POOL", "POOL_SCHEMA", "SHAPE", "host", "skeleton"]

SHAPE = Shape("pool")


def _same_path(found: str | None, wanted: str) -> bool:
    """True if both spellings name the same path."""
    return found is not None and posixpath.normpath(found) == posixpath.normpath(wanted)


POOL: row.Table = {
    "type": Row("./@type"),
    "path": Row("target/path", k.PATH, same=_same_path),
}

POOL_SCHEMA = Schema(kind=POOL_KIND, table=POOL, states=("active", "inactive", "absent"), without_option=("type",))


def host(raw: RawPoolHost, name: str, found: Found | None) -> PoolHost:
    """The host's directories of other pools, and guests with disks in this pool."""

    def users() -> list[PoolUser]:
        directory = tree.parse(found.xml).findtext("target/path") if found else None
        seen = (_user(guest, documents, name, directory, raw.identity) for guest, documents in raw.guests())
        return [user for user in seen if user]

    return PoolHost(lambda: _directories(raw.pools()), users, raw.obstacle, raw.identity, raw.closed)


def _directories(pools: t.Iterable[tuple[str, str]]) -> dict[str, str]:
    roots = [(pool, tree.parse(xml)) for pool, xml in pools]
    paths = [(root.findtext("target/path"), pool) for pool, root in roots if root.get("type") == "dir"]
    return {posixpath.normpath(path): pool for path, pool in paths if path}


def _user(
    guest: str, documents: tuple[str, ...], pool: str, directory: str | None, identity: DirectoryId
) -> PoolUser | None:
    disks = [source for xml in documents for source in tree.parse(xml).iterfind("devices/disk/source")]
    by_pool = any(source.get("pool") == pool for source in disks)
    files = [posixpath.dirname(source.get("file") or "") for source in disks]
    inside = directory is not None and identity(directory) in {identity(path) for path in files if path}
    return PoolUser(guest, by_pool) if by_pool or inside else None


def skeleton(spec: Spec) -> str:
    """The XML of a new directory pool, without its path."""
    pool = tree.parse("<pool type='dir'/>")
    tree.make(pool, "name").text = spec.name
    return tree.text(pool)
