# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Carry out a migration: one call, watched, with one deadline. Judging what came of it is not done here."""

from __future__ import annotations

import threading
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._libvirt import look
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, libvirt, said

__all__ = ["completed", "discard", "job_active", "memory_free_mib", "resume", "run", "set_autostart", "set_record", "state_of"]

_CORRAL_NAMESPACE = "urn:corral:virt:guest:1"
_TICK_S = 0.1
_ABORT_S = 60


def run(
    domain: t.Any, dest_uri: str, flags: t.Sequence[str], parameters: t.Mapping[str, t.Any], *, timeout_s: int, max_downtime_ms: int | None
) -> dict[str, t.Any]:
    """Migrate with libvirt's flags and parameters by name. Returns figures and `error`: the caller looks at both ends to judge."""
    value = 0
    for flag in flags:
        value |= getattr(libvirt, f"VIR_MIGRATE_{flag}")
    return _watched(domain, lambda: domain.migrateToURI3(dest_uri, dict(parameters), value), timeout_s, max_downtime_ms)


def _watched(domain: t.Any, migrate: t.Callable[[], object], timeout_s: int, max_downtime_ms: int | None) -> dict[str, t.Any]:
    """Run the blocking call beside a look at its progress; abort it at the deadline."""
    outcome: dict[str, t.Any] = {"error": None, "bytes_sent": 0, "passes": 0, "aborted": False}

    def body() -> None:
        try:
            migrate()
        except libvirt.libvirtError as error:
            outcome["error"] = error.get_error_message() or str(error)

    worker = threading.Thread(target=body, daemon=True)
    started = time.monotonic()
    worker.start()
    told = max_downtime_ms is None
    # An abort that does not end the job within its time leaves it to the next run: the look at both ends will show it active.
    while worker.is_alive() and time.monotonic() - started < timeout_s + _ABORT_S:
        worker.join(_TICK_S)
        try:
            figures = domain.jobStats()
            outcome["bytes_sent"] = max(outcome["bytes_sent"], figures.get("data_processed", 0))
            outcome["passes"] = max(outcome["passes"], figures.get("memory_iteration", 0))
            if not told and figures.get("type"):
                domain.migrateSetMaxDowntime(max_downtime_ms)
                told = True
            if time.monotonic() - started > timeout_s and not outcome["aborted"]:
                domain.abortJob()
                outcome["aborted"] = True
        except libvirt.libvirtError:
            continue  # no job yet, or no more: the worker's end tells
    outcome["seconds"] = round(time.monotonic() - started, 2)
    return outcome


def completed(connection: Connection, name: str) -> dict[str, t.Any]:
    """libvirt's own figures of the finished migration; they stay on the destination."""
    try:
        found = connection.lookupByName(name).jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)
    except libvirt.libvirtError:
        return {}
    return {"downtime_ms": found.get("downtime"), "bytes_sent": found.get("data_processed")}


def job_active(connection: Connection, name: str) -> bool:
    """Whether libvirt is at work on the guest."""
    try:
        return bool(connection.lookupByName(name).jobInfo()[0] != libvirt.VIR_DOMAIN_JOB_NONE)
    except libvirt.libvirtError:
        return False  # no such guest, or it is off: no job


def state_of(connection: Connection | None, name: str) -> str:
    """running, paused, shutdown, crashed, absent or unreachable."""
    if connection is None:
        return "unreachable"
    try:
        return look.state(connection.lookupByName(name))
    except libvirt.libvirtError as error:
        return "absent" if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN else "unreachable"


def set_record(domain: t.Any, stored: str, live: str | None) -> None:
    """Replace what the collection remembers of the guest, in what is stored and in what runs."""
    with said("set metadata of", domain.name()):
        for record, flag in ((stored, libvirt.VIR_DOMAIN_AFFECT_CONFIG), (live, libvirt.VIR_DOMAIN_AFFECT_LIVE)):
            if record is not None:
                kind = libvirt.VIR_DOMAIN_METADATA_ELEMENT
                domain.setMetadata(kind, record or None, "corral" if record else None, _CORRAL_NAMESPACE, flag)


def memory_free_mib(connection: Connection) -> int:
    """What new guests could have: free memory and what the kernel gives back when asked."""
    with said("read the memory of", connection.getURI()):
        stats = connection.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS)
    return int(sum(stats.get(kind, 0) for kind in ("free", "buffers", "cached"))) // 1024


def resume(connection: Connection, name: str) -> None:
    """Let the vCPUs run."""
    with said("resume", name):
        connection.lookupByName(name).resume()


def discard(connection: Connection, name: str) -> None:
    """Remove a dead copy of a guest: process and definition, never its storage."""
    with said("remove the copy of", name):
        domain = connection.lookupByName(name)
        if domain.isActive():
            domain.destroy()
        if domain.isPersistent():
            domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM)


def set_autostart(connection: Connection, name: str) -> None:
    """Start with the host."""
    with said("set autostart of", name):
        connection.lookupByName(name).setAutostart(1)
