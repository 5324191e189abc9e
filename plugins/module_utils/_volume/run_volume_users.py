# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which volumes other hosts may use, and who uses such volumes on this one."""

from __future__ import annotations

import functools
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.uri import has_files_here, is_here
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection
from ansible_collections.corral.virt.plugins.module_utils._storage import files_lvm, run_file_users
from ansible_collections.corral.virt.plugins.module_utils._system import locks
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import LOGICAL
from ansible_collections.corral.virt.plugins.module_utils._volume.fields_volume import check_users_of


def sharing(connection: Connection) -> t.Callable[[str], dict[str, str | None]]:
    """Tells where other hosts may have a volume, None if nowhere or on another machine, and by what they know it."""
    kind = functools.lru_cache(maxsize=None)(locks.shared_filesystem)
    group = functools.lru_cache(maxsize=None)(files_lvm.may_be_shared)
    here, devices = is_here(connection.getURI()), has_files_here(connection.getURI())

    def shared(path: str) -> dict[str, str | None]:
        uuid = files_lvm.uuid_of(path) if devices and path.startswith("/dev/") else None
        if uuid:
            name = os.path.basename(os.path.dirname(path))
            return {"shared": f"volume group {name}" if group(name) else None, "identity": uuid}
        return {"shared": kind(os.path.dirname(path)) if here else None, "identity": path}

    return shared


def users(connection: Connection, volumes: t.Sequence[str]) -> dict[str, str | None]:
    """A user on this host of each file (its path) or logical volume (its UUIDs); None if there is none.

    Another host may have mounted the filesystem of a file elsewhere: where its path is not that of a shared file here,
    files with its name count. Raises BadInput for what is neither.
    """
    check_users_of(volumes)
    found = run_file_users.users(connection)

    def user(volume: str) -> str | None:
        if volume.startswith(LOGICAL):
            return next(filter(None, map(found.of, files_lvm.paths_of(volume))), None)
        is_seen = os.path.lexists(volume) and locks.may_be_shared(os.path.dirname(volume))
        return found.of(volume) or (None if is_seen else found.alike(volume))

    return {volume: user(volume) for volume in volumes}
