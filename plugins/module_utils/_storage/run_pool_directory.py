# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directory of a pool."""

from __future__ import annotations

import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query, xml_host
from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_storage, plan_pool_files


def directory(connection: t.Any, pool: str, what: str) -> str:
    """The directory of the pool on this machine; raises Refused."""
    return plan_pool_files.directory(pool_of(connection, pool), what)


def pool_of(connection: t.Any, name: str) -> plan_pool_files.PoolDirectory:
    """The pool with this name, with its directory."""
    xml = libvirt_storage.pool_xml(connection, name)
    found, group = xml_host.pool(xml), xml_host.volume_group(xml)
    here = os.path.isdir(found["path"] or "")
    return plan_pool_files.PoolDirectory(name, found["type"], found["path"], here=here, group=group)


def pool_with(connection: t.Any, path: str) -> str | None:
    """The name of the active pool in whose directory a path is; libvirt does not list all volumes of a volume group."""
    folder = os.path.dirname(path)
    found = (pool["name"] for pool in libvirt_query.pools(connection) if pool["active"] and _path(pool) == folder)
    return next(found, None)


def _path(pool: t.Mapping[str, t.Any]) -> str:
    return os.path.normpath(xml_host.pool(pool["xml"])["path"] or "")
