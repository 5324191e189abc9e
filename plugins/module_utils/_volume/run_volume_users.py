# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which volumes other hosts may use, and who uses files on this one."""

from __future__ import annotations

import functools
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_here
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection
from ansible_collections.corral.virt.plugins.module_utils._storage import run_file_users
from ansible_collections.corral.virt.plugins.module_utils._system import locks
from ansible_collections.corral.virt.plugins.module_utils._volume.fields_volume import check_users_of


def sharing(connection: Connection) -> t.Callable[[str], str | None]:
    """Tells the kind of filesystem of a path if other hosts may mount it; None if it is local, or another machine's."""
    kind = functools.lru_cache(maxsize=None)(locks.shared_filesystem)
    here = is_here(connection.getURI())
    return lambda path: kind(os.path.dirname(path)) if here else None


def users(connection: Connection, paths: t.Sequence[str]) -> dict[str, str | None]:
    """A user of each file on this host; None if there is none. Raises BadInput for what is no path."""
    check_users_of(paths)
    found = run_file_users.users(connection)
    return {path: found.of(path) for path in paths}
