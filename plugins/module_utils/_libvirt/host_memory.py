# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's memory."""

from __future__ import annotations

import re

from ansible_collections.corral.virt.plugins.module_utils._core.uri import has_files_here
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, libvirt

MEMINFO = "/proc/meminfo"


def available_and_total_kib(connection: Connection) -> tuple[int, int]:
    """What new guests could have, and all. Raises libvirtError if the driver does not report it.

    In libvirt's `cached` is memory that guests share with other processes. The kernel cannot give it back.
    """
    found = connection.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS)
    if has_files_here(connection.getURI()):
        with open(MEMINFO, encoding="ascii") as stream:
            kernel = re.search(r"^MemAvailable: *([0-9]+)", stream.read(), re.MULTILINE)
        if kernel:
            return int(kernel[1]), found["total"]
    reported = sum(found.get(kind, 0) for kind in ("free", "buffers", "cached"))
    # Pages that guests have in common count twice.
    return max(found.get("free", 0), min(reported, found["total"] - _of_guests_kib(connection))), found["total"]


def _of_guests_kib(connection: Connection) -> int:
    """What active guests have; of a busy one all that it may have."""
    flags = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE | libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
    found = connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_BALLOON, flags)
    return sum(figures.get("balloon.rss", figures.get("balloon.current", 0)) for _domain, figures in found)
