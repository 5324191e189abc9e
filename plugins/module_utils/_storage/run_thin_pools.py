# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The thin pools in the volume groups of a host's storage pools."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.uri import has_files_here
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection
from ansible_collections.corral.virt.plugins.module_utils._storage import files_lvm

__all__ = ["with_thin_pools"]

Pools = list[dict[str, t.Any]]


def with_thin_pools(connection: Connection, pools: Pools) -> Pools:
    """The pools, those of type logical with what LVM knows of their thin pools."""
    here = has_files_here(connection.getURI())
    return [{**pool, "thin_pools": _thin_pools(pool)} if here and _asks_lvm(pool) else pool for pool in pools]


def _asks_lvm(pool: t.Mapping[str, t.Any]) -> bool:
    return pool["type"] == "logical" and bool(pool["active"])


def _thin_pools(pool: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    return files_lvm.thin_pools(pool.get("source", {}).get("name") or pool["name"])
