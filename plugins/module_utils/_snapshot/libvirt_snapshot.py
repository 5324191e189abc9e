# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Snapshots in libvirt: read."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Unsupported
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import explained, libvirt

__all__ = ["documents"]


def documents(domain: t.Any) -> list[tuple[str, bool]]:
    """The document of each snapshot, and whether it is the current one; snapshots that disappear are left out."""
    found = libvirt_query.snapshots(domain)
    current = None
    with contextlib.suppress(Unsupported), explained("read the snapshots of guest", domain.name()):
        try:
            current = domain.snapshotCurrent().getName() if found and domain.hasCurrentSnapshot() else None
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN_SNAPSHOT:
                raise
    return [(xml, name == current) for name, xml in found]
