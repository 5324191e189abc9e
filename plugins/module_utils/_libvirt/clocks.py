# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the processor times of a host and its guests."""

from __future__ import annotations

import contextlib
import time

from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._libvirt.model_load import Clocks


def read(connection: Connection) -> Clocks:
    """Processor times so far; those that the driver does not count are left out."""
    host: dict[str, int] = {}
    with contextlib.suppress(libvirt.libvirtError):
        host = connection.getCPUStats(libvirt.VIR_NODE_CPU_STATS_ALL_CPUS, 0)
    with explained("read the guests of", connection.getURI()):
        found = connection.getAllDomainStats(
            libvirt.VIR_DOMAIN_STATS_CPU_TOTAL, libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE
        )
    guests = {}
    for domain, statistics in found:
        with contextlib.suppress(libvirt.libvirtError):  # it has gone meanwhile
            # Where the host has no cgroup controller for it, libvirt counts only when it is asked for one guest.
            guests[domain.UUIDString()] = statistics["cpu.time"] if "cpu.time" in statistics else domain.info()[4]
    return Clocks(time.monotonic_ns(), host, guests)
