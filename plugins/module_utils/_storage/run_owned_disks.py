# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of disks that were made for a guest, read before they are deleted."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_here
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query, xml_host
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import OwnedDisk
from ansible_collections.corral.virt.plugins.module_utils._storage import files_disk, files_lvm, libvirt_storage
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory, holder
from ansible_collections.corral.virt.plugins.module_utils._system import identity, locks
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity


def look(connection: t.Any, paths: t.Collection[str]) -> dict[str, OwnedDisk]:
    """The state of each disk, by path; pools are refreshed if libvirt does not know a path."""
    pools = [_pool(pool) for pool in libvirt_query.pools(connection)]
    here = is_here(connection.getURI())
    for pool in pools if here else ():
        if pool.active and pool.path:  # libvirt reads all of them to find a path
            libvirt_storage.check_answers(pool.name, pool.path)
    if any(libvirt_storage.volume_at(connection, path) is None for path in paths):
        libvirt_storage.all_volumes(connection)
    return {path: _look(connection, path, pools, here=here) for path in paths}


def identities(connection: t.Any, paths: t.Iterable[str]) -> dict[str, FileIdentity | None]:
    """The identity of volumes by path: None if they are no files of this machine; no entry if they are gone."""
    if not is_here(connection.getURI()):
        return {path: None for path in paths if libvirt_storage.volume_at(connection, path) is not None}
    found = {path: identity.of_path(path) for path in paths if os.path.lexists(path)}
    return {path: its for path, its in found.items() if its or not os.path.isfile(path)}


def _pool(pool: t.Mapping[str, t.Any]) -> PoolDirectory:
    known = xml_host.pool(pool["xml"])
    return PoolDirectory(pool["name"], known["type"], known["path"], active=pool["active"])


def _look(connection: t.Any, path: str, pools: t.Sequence[PoolDirectory], *, here: bool) -> OwnedDisk:
    pool = holder(pools, os.path.dirname(path))
    logical = here and identity.logical_volume(path) is not None
    return OwnedDisk(
        volume=logical or libvirt_storage.volume_at(connection, path) is not None,
        key=libvirt_storage.volume_key(connection, path),
        pool=pool.name if pool else None,
        active=pool is not None and pool.active,
        exists=locks.exists(path) if here else None,
        opened=here and (files_disk.is_opened(path) or files_lvm.is_open(path)),
        identity=identity.of_path(path) if here else None,
        tags=files_lvm.tags(path) if logical else None,
    )
