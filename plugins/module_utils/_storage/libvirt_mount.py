# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Who of libvirt has something below a directory."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.uri import SYSTEM
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import explained, libvirt, opened
from ansible_collections.corral.virt.plugins.module_utils._xml import brief

__all__ = ["users"]

_RUNS = "/run/libvirt"


def users(path: str, uri: str = SYSTEM) -> list[str]:
    """Pools and guests of this host whose definitions name a directory or something below it."""
    if libvirt is None or not os.path.isdir(_RUNS):
        return []
    with opened(uri, readonly=True) as connection, explained("list pools and guests of", uri):
        known = [(f"pool {pool.name()}", [pool.XMLDesc()]) for pool in connection.listAllStoragePools()]
        known += [(f"guest {one.name()}", list(_documents(one))) for one in connection.listAllDomains()]
    return [name for name, documents in known if any(brief.names(document, path) for document in documents)]


def _documents(domain: t.Any) -> t.Iterator[str]:
    yield domain.XMLDesc()
    if domain.isPersistent():
        yield domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
