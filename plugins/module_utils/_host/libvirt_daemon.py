# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads guests' jobs that a restart of the daemon would break, and the security drivers that confine guests."""

from __future__ import annotations

import contextlib
import threading
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._core.uri import SYSTEM
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import explained, libvirt, opened
from ansible_collections.corral.virt.plugins.module_utils._xml import stdlib_reader

_ANSWER_S = 30
_CONFINING = ("apparmor", "selinux")
# virDomainJobOperation
_OPERATIONS = {
    1: "start",
    2: "save",
    3: "restore",
    4: "migration to this host",
    5: "migration to another host",
    6: "snapshot",
    7: "return to a snapshot",
    8: "dump",
    9: "backup",
    10: "removal of a snapshot",
}
# virDomainPausedReason: libvirt has paused the guest for its own work, and may report no job.
_PAUSED_FOR = {2: "migration", 3: "save", 4: "dump", 9: "snapshot", 11: "start", 12: "migration to another host"}


def jobs(uri: str = SYSTEM) -> list[str]:
    """Every job as `web: block job on vda`. If libvirt does not answer, that counts as a job."""
    answer: list[list[str]] = []

    def ask() -> None:
        try:
            with opened(uri, readonly=True) as connection:
                answer.append(
                    [f"{domain.name()}: {job}" for domain in connection.listAllDomains() for job in _jobs(domain)]
                )
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody knows the jobs
            answer.append([f"cannot query libvirt for jobs: {error}"])

    thread = threading.Thread(target=ask, daemon=True)  # calls of libvirt may wait for ever
    thread.start()
    thread.join(_ANSWER_S)
    return answer[0] if answer else [f"libvirt did not report its jobs within {_ANSWER_S} s"]


def guests(uri: str = SYSTEM) -> list[str]:
    """Names of all guests of the host."""
    with opened(uri, readonly=True) as connection:
        return [domain.name() for domain in connection.listAllDomains()]


def disks(uri: str = SYSTEM) -> dict[str, list[str]]:
    """Files and block devices of the writable disks of each guest whose processors run, by the guest's name."""
    with opened(uri, readonly=True) as connection, explained("read the guests of", uri):
        found = {}
        for domain in connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_RUNNING):
            with contextlib.suppress(NotFound), explained("read guest", uri):  # it has ended meanwhile
                found[domain.name()] = stdlib_reader.writable(domain.XMLDesc())
        return found


def security_drivers(uri: str = SYSTEM) -> list[str] | None:
    """Active security drivers (AppArmor, SELinux) that confine QEMU.

    None without libvirt's Python binding.
    """
    if libvirt is None:
        return None
    with opened(uri, readonly=True) as connection, explained("read capabilities of", uri):
        return [model for model in stdlib_reader.security_models(connection.getCapabilities()) if model in _CONFINING]


def _jobs(domain: t.Any) -> list[str]:
    try:
        if not domain.isActive():
            return []
        stats = domain.jobStats()
        if stats.get("type"):
            return [_OPERATIONS.get(stats.get("operation", 0), "job")]
        power, reason = domain.state()
        if power == libvirt.VIR_DOMAIN_PAUSED and reason in _PAUSED_FOR:
            return [_PAUSED_FOR[reason]]
        return [
            f"block job on {target}"
            for target in stdlib_reader.targets(domain.XMLDesc())
            if _has_block_job(domain, target)
        ]
    except libvirt.libvirtError as error:
        code = error.get_error_code()
        if code == libvirt.VIR_ERR_NO_DOMAIN:
            return []
        # Only the source of a migration tells of its job; or the guest is off by now.
        if code in (libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_OPERATION_UNSUPPORTED):
            return [_OPERATIONS[4]] if _is_active(domain) else []
        return [f"busy ({error.get_error_message()})"]


def _has_block_job(domain: t.Any, target: str) -> bool:
    try:
        return bool(domain.blockJobInfo(target, 0))
    except libvirt.libvirtError as error:
        if error.get_error_code() in (libvirt.VIR_ERR_OPERATION_TIMEOUT, libvirt.VIR_ERR_NO_DOMAIN):
            raise
        return False  # an empty drive, or a disk that was just removed


def _is_active(domain: t.Any) -> bool:
    try:
        return bool(domain.isActive())
    except libvirt.libvirtError:
        return False
