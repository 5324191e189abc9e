# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who of libvirt has something below a directory."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.uri import SYSTEM
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import explained, libvirt, opened
from ansible_collections.corral.virt.plugins.module_utils._xml import stdlib_reader

_RUNS = "/run/libvirt"


def users(path: str, uri: str = SYSTEM) -> list[str]:
    """Pools and guests of this host whose definitions name a directory or something below it."""
    if libvirt is None or not os.path.isdir(_RUNS):
        return []
    with opened(uri, readonly=True) as connection, explained("list pools and guests of", uri):
        known = [(f"pool {pool.name()}", [pool.XMLDesc()]) for pool in connection.listAllStoragePools()]
        known += [(f"guest {one.name()}", list(_documents(one))) for one in connection.listAllDomains()]
    return [name for name, documents in known if any(stdlib_reader.names(document, path) for document in documents)]


def _documents(domain: t.Any) -> t.Iterator[str]:
    yield domain.XMLDesc()
    if domain.isPersistent():
        yield domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
