# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories of a host as storage pools: an existing pool, or a temporary one."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query, xml_host
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    libvirt_storage,
    libvirt_transfer,
    xml_directory,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import (
    PoolDirectory,
    access_there,
    holder,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.xml_directory import new_pool


def pool_at(connection: t.Any, directory: str) -> str | None:
    """The active pool that is this directory; None if there is none."""
    found = holder(_pools(libvirt_transfer.active_pools(connection), active=True), directory)
    return found.name if found else None


def inactive_at(connection: t.Any, directory: str) -> str | None:
    """The inactive pool that is this directory, if no active one is; nobody sees what it holds once mounted."""
    active = _pools(libvirt_transfer.active_pools(connection), active=True)
    found = holder([*active, *_pools(libvirt_transfer.inactive_pools(connection), active=False)], directory)
    return found.name if found and not found.active else None


def _pools(documents: t.Mapping[str, str], *, active: bool) -> list[PoolDirectory]:
    known = {name: xml_host.pool(document) for name, document in documents.items()}
    return [PoolDirectory(name, pool["type"], pool["path"], active=active) for name, pool in known.items()]


@contextlib.contextmanager
def pool_for(connection: t.Any, directory: str) -> t.Iterator[str]:
    """Yields the name of an active pool that is this directory.

    If there is none, a pool is created for the length of the `with` block. Raises NotFound if the directory is missing.
    """
    known = pool_at(connection, directory)
    opened = libvirt_transfer.opened(connection, directory, new_pool(directory), build=False)
    with contextlib.nullcontext(known) if known else opened as name:
        yield name


@contextlib.contextmanager
def pool_like(connection: t.Any, directory: str, source: t.Any, pool: str) -> t.Iterator[str]:
    """`pool_for`, but a missing directory is created with the access of a pool's directory on `source`."""
    with contextlib.ExitStack() as stack:
        try:
            name = stack.enter_context(pool_for(connection, directory))
        except NotFound:
            here = xml_directory.access(libvirt_storage.pool_xml(source, pool))
            users = (xml_directory.qemu_user(libvirt_query.capabilities(end)) for end in (source, connection))
            document = new_pool(directory, access_there(here, *users))
            name = stack.enter_context(libvirt_transfer.opened(connection, directory, document, build=True))
        yield name
