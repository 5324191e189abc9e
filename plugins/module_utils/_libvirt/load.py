# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The load of a host and its guests between two readings of their processor times."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt

_IDLE = ("idle", "iowait")


@dataclasses.dataclass(frozen=True)
class Clocks:
    """Nanoseconds of processor time at the time `at_ns`: of the host by kind, of guests by UUID."""

    at_ns: int
    host: t.Mapping[str, int]
    guests: t.Mapping[str, int]


def host_percent(before: Clocks, after: Clocks) -> float | None:
    """The busy share of the host's processors; None if libvirt does not report it."""
    spent = {kind: after.host[kind] - before.host[kind] for kind in before.host if kind in after.host}
    total = sum(spent.values())
    return _rounded(total - sum(spent.get(kind, 0) for kind in _IDLE), total)


def guest_percent(before: Clocks, after: Clocks, uuid: str, vcpus: int) -> float | None:
    """The used share of a guest's vCPUs; None unless it ran at both times.

    Work of its devices counts, so it can exceed 100.
    """
    if uuid not in before.guests or uuid not in after.guests:
        return None
    return _rounded(after.guests[uuid] - before.guests[uuid], (after.at_ns - before.at_ns) * vcpus)


def _rounded(part_ns: int, total_ns: int) -> float | None:
    """The part in percent; None if the total is 0, or the part negative, as after a guest's restart."""
    return round(100 * part_ns / total_ns, 1) if total_ns > 0 and part_ns >= 0 else None


def clocks(connection: Connection) -> Clocks:
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
