# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""States and records of guests, by calls that do not involve QEMU, so a hung one delays nothing."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._libvirt.model_state import Doing
from ansible_collections.corral.virt.plugins.module_utils._xml.names import CORRAL


def of_all(connection: Connection) -> list[tuple[t.Any, str]]:
    """Each guest's virDomain with its state, in one call."""
    with explained("read the guests of", connection.getURI()):
        found = connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE, 0)
    return [(domain, word(statistics["state.state"])) for domain, statistics in found]


def of(domain: t.Any) -> str:
    """The state of one guest."""
    return seen(domain)[0]


def seen(domain: t.Any) -> tuple[str, bool]:
    """The state of one guest, and True if an event such as an I/O error, and not a user, paused it."""
    code, reason = domain.state()
    happened = (
        libvirt.VIR_DOMAIN_PAUSED_IOERROR,
        libvirt.VIR_DOMAIN_PAUSED_WATCHDOG,
        libvirt.VIR_DOMAIN_PAUSED_SHUTTING_DOWN,
        libvirt.VIR_DOMAIN_PAUSED_CRASHED,
    )
    sleeps = code == libvirt.VIR_DOMAIN_PMSUSPENDED
    return word(code), sleeps or (code == libvirt.VIR_DOMAIN_PAUSED and reason in happened)


def word(code: int) -> str:
    """libvirt's state code in the words of option `state`: running, paused, shutdown or crashed; else unknown."""
    return {
        libvirt.VIR_DOMAIN_RUNNING: "running",
        libvirt.VIR_DOMAIN_BLOCKED: "running",
        libvirt.VIR_DOMAIN_PAUSED: "paused",
        libvirt.VIR_DOMAIN_PMSUSPENDED: "paused",
        libvirt.VIR_DOMAIN_SHUTDOWN: "running",
        libvirt.VIR_DOMAIN_SHUTOFF: "shutdown",
        libvirt.VIR_DOMAIN_CRASHED: "crashed",
    }.get(code, "unknown")


def doing(connection: Connection, domains: t.Sequence[t.Any]) -> dict[str, Doing]:
    """Activity of guests since their start, by UUID; unknown guests are left out."""
    found: t.Sequence[tuple[t.Any, dict[str, int]]] = []
    with contextlib.suppress(libvirt.libvirtError):
        kinds = libvirt.VIR_DOMAIN_STATS_CPU_TOTAL | libvirt.VIR_DOMAIN_STATS_BLOCK | libvirt.VIR_DOMAIN_STATS_INTERFACE
        found = connection.domainListGetStats(domains, kinds, libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT)
    return {domain.UUIDString(): _did(domain, figures) for domain, figures in found}


def _did(domain: t.Any, figures: t.Mapping[str, int]) -> Doing:
    cpu_ns = figures.get("cpu.time")
    if cpu_ns is None:  # where the host has no cgroup for it
        with contextlib.suppress(libvirt.libvirtError):
            cpu_ns = domain.info()[4]
    reads, sent = ([value for key, value in figures.items() if key.endswith(end)] for end in (".rd.reqs", ".tx.pkts"))
    return Doing(
        cpu_s=None if cpu_ns is None else cpu_ns / 1e9,
        disk_reads=sum(reads) if reads else None,
        packets_sent=sum(sent) if figures else None,
    )


def record(domain: t.Any, namespace: str = CORRAL) -> str | None:
    """The collection's element of a guest's metadata, of one of its namespaces; None without one. Raises NotFound."""
    try:
        return t.cast(str, domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, namespace))
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN_METADATA:
            return None
        with explained("read guest", domain.name()):
            raise
