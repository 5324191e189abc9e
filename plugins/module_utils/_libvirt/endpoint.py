# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What is asked of both ends of a migration before it begins: read-only, in plain values."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt

__all__ = ["cpu_incompatibility", "facts", "job"]


def facts(connection: Connection) -> dict[str, t.Any]:
    """Versions (9000000 is 9.0.0), free memory and network interfaces (None where nobody knows) of a host."""
    with explained("read", connection.getURI()):
        memory = connection.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS)
        return {
            "libvirt_version": connection.getLibVersion(),
            "qemu_version": connection.getVersion(),
            # What new guests could have: free memory and what the kernel gives back when asked.
            "memory_free_mib": int(sum(memory.get(kind, 0) for kind in ("free", "buffers", "cached"))) // 1024,
            "links": _links(connection),
        }


def _links(connection: Connection) -> frozenset[str] | None:
    """Without the driver for interfaces (Debian 13's libvirt has none) nobody knows."""
    with contextlib.suppress(libvirt.libvirtError):
        return frozenset(item.name() for item in connection.listAllInterfaces())
    return None


def job(domain: t.Any, targets: t.Iterable[str]) -> str:
    """What libvirt is at work on with a running guest and its disks, for people; empty when on nothing."""
    with explained("read the jobs of", domain.name()):
        if domain.jobInfo()[0] != libvirt.VIR_DOMAIN_JOB_NONE:
            return "a job"
        blocks = [target for target in targets if domain.blockJobInfo(target)]
    return f"a block job on {', '.join(blocks)}" if blocks else ""


def cpu_incompatibility(
    connection: Connection, *, arch: str, machine: str | None, virt_type: str, cpu: str
) -> str | None:
    """Why a host cannot give a guest this processor, or None; libvirt compares feature by feature."""
    flags = libvirt.VIR_CONNECT_COMPARE_CPU_FAIL_INCOMPATIBLE
    try:
        answer = connection.compareHypervisorCPU(None, arch, machine, virt_type, cpu, flags)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_CPU_INCOMPATIBLE:
            return error.get_error_message().partition(": ")[2] or str(error)
        return None  # it cannot compare; QEMU then says whether it fits
    return "its processor lacks features" if answer == libvirt.VIR_CPU_COMPARE_INCOMPATIBLE else None
