# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The libvirt API of storage pools."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.object_ref import Ref
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._noun.libvirt_api import ObjectApi, guests
from ansible_collections.corral.virt.plugins.module_utils._noun.libvirt_type import ObjectType
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Spec
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import NounStep, Start
from ansible_collections.corral.virt.plugins.module_utils._storage.model_pool import (
    ASKED_BY,
    DIRECTORIES,
    POOL_KIND,
    RawPoolHost,
)
from ansible_collections.corral.virt.plugins.module_utils._xml import stdlib_reader


def _start(pool: t.Any, step: NounStep) -> None:
    if stdlib_reader.pool_source(pool.XMLDesc())[0] in DIRECTORIES:
        pool.build(0)  # mkdir
    with explained("start storage pool", step.ref.name, _ask_servers(pool)):
        pool.create()


def refresh(pool: t.Any, step: NounStep) -> None:
    """Let libvirt look at a pool again; if it cannot, it stops the pool."""
    stopped = "libvirt has stopped the pool"
    with explained("refresh storage pool", step.ref.name, "; ".join(filter(None, (stopped, _ask_servers(pool))))):
        pool.refresh()


def _ask_servers(pool: t.Any) -> str:
    """How to find out whether a pool's servers give what it needs; empty without servers."""
    kind, servers = stdlib_reader.pool_source(pool.XMLDesc())
    form = ASKED_BY.get(kind, "ping {0}")
    return "; ".join(f"ask {server} from this host ({form.format(server)})" for server in servers)


def build(pool: t.Any, kind: str) -> None:
    """Make what a pool of this type lies in; libvirt overwrites nothing that it knows."""
    pool.build(0 if kind == "logical" else libvirt.VIR_STORAGE_POOL_BUILD_NO_OVERWRITE)


def _host(connection: Connection, spec: Spec) -> RawPoolHost:
    """Questions about the other pools, and about guests' disks."""
    return RawPoolHost(lambda: _others(connection, spec.name), lambda: guests(connection))


def pools(connection: Connection) -> list[tuple[Ref, t.Any]]:
    """libvirt's pool objects."""
    with explained("list the storage pools of", connection.getURI()):
        return [(POOL_KIND.ref(pool.name()), pool) for pool in connection.listAllStoragePools()]


def sizes(pool: t.Any) -> dict[str, int | None]:
    """Bytes that a pool holds, and how many are taken and free; None of one that is not active: nobody knows."""
    with explained("read storage pool", pool.name()):
        state, *known = pool.info()
    told = known if state == libvirt.VIR_STORAGE_POOL_RUNNING else (None, None, None)
    return dict(zip(("capacity_bytes", "allocation_bytes", "available_bytes"), told))


def _others(connection: Connection, name: str) -> list[tuple[str, str]]:
    with explained("list the storage pools of", connection.getURI()):
        return [(pool.name(), pool.XMLDesc(0)) for pool in connection.listAllStoragePools() if pool.name() != name]


POOL_TYPE = ObjectType(
    POOL_KIND,
    what="storage pool",
    lookup="storagePoolLookup",
    missing="VIR_ERR_NO_STORAGE_POOL",
    flag="VIR_STORAGE_XML_INACTIVE",
)
API = ObjectApi(POOL_TYPE, define="storagePoolDefineXML", own={Start: _start}, host=_host)
