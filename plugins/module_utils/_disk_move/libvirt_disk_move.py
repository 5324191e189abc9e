# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Let a running guest's QEMU copy a disk, and use the copy."""

from __future__ import annotations

import contextlib
import threading
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, NotOffered, Timeout
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._storage.libvirt_blockjob import interruptible, watched_end

_LOOK_S = 0.5
_MIB = 1024**2
_THERE = "the guest has its old disk, and the copied part is there until the next run: run again"
_PIVOT_S = 60  # after the copy is complete, for the last writes


def job(connection: Connection, uuid: str, target: str) -> str | None:
    """What works on a disk of a running guest, in a word; None: nothing."""
    words = {
        libvirt.VIR_DOMAIN_BLOCK_JOB_TYPE_PULL: "pull",
        libvirt.VIR_DOMAIN_BLOCK_JOB_TYPE_COPY: "copy",
        libvirt.VIR_DOMAIN_BLOCK_JOB_TYPE_COMMIT: "commit",
        libvirt.VIR_DOMAIN_BLOCK_JOB_TYPE_ACTIVE_COMMIT: "commit",
        libvirt.VIR_DOMAIN_BLOCK_JOB_TYPE_BACKUP: "backup",
    }
    domain = libvirt_query.by_uuid(connection, uuid)
    found = {}  # a driver without block jobs has none
    with contextlib.suppress(NotOffered), explained("look for a block job of guest", domain.name()):
        found = domain.blockJobInfo(target)
    return words.get(found["type"], "unknown") if found else None


def copy(
    connection: Connection,
    uuid: str,
    target: str,
    xml: str,
    *,
    shallow: bool,
    bandwidth_mib_s: int,
    timeout_s: int,
    progress: t.Callable[[int, int], None],
) -> None:
    """Copy a disk into the existing file that `xml` names, until the copy has all and follows each write.

    A copy that is under way is waited for. It ends with the run, unless that is killed. Raises Timeout or Failed.
    """
    domain = libvirt_query.by_uuid(connection, uuid)
    flags = libvirt.VIR_DOMAIN_BLOCK_COPY_REUSE_EXT | libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB
    flags |= libvirt.VIR_DOMAIN_BLOCK_COPY_SHALLOW if shallow else 0
    limit = {libvirt.VIR_DOMAIN_BLOCK_COPY_BANDWIDTH: bandwidth_mib_s * _MIB} if bandwidth_mib_s else {}
    with (
        explained(f"copy disk {target} of", domain.name()),
        watched_end(connection, domain, target) as end,
        interruptible(),
    ):
        if not domain.blockJobInfo(target):
            domain.blockCopy(target, xml, limit, flags)
        elif bandwidth_mib_s:
            domain.blockJobSetSpeed(target, bandwidth_mib_s, 0)
        try:
            _wait(domain, target, end, timeout_s, progress)
        except BaseException:  # also an interrupt: the job ends with the run
            with contextlib.suppress(libvirt.libvirtError):  # it ended, or the guest did
                domain.blockJobAbort(target, 0)
            raise


def _wait(
    domain: t.Any, target: str, end: threading.Event, timeout_s: int, progress: t.Callable[[int, int], None]
) -> None:
    what, deadline = f"disk {target} of {domain.name()}", time.monotonic() + timeout_s
    while not end.wait(_LOOK_S):
        found = domain.blockJobInfo(target)
        if found:
            progress(found["cur"], found["end"])
            if found["cur"] == found["end"]:  # libvirt: only once the copy is complete
                return
        if time.monotonic() >= deadline:
            raise Timeout(f"cannot copy {what} within {timeout_s} s; {_THERE}, with a longer job_timeout")
    raise Failed(f"cannot copy {what}: the guest or the copy has ended; {_THERE}")


def pivot(connection: Connection, uuid: str, target: str) -> None:
    """Let the guest use the copy, and nothing else."""
    domain = libvirt_query.by_uuid(connection, uuid)
    deadline = time.monotonic() + _PIVOT_S
    with explained(f"switch disk {target} of", domain.name(), "the guest has its old disk; run again"):
        while True:
            try:
                domain.blockJobAbort(target, libvirt.VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT)
            except libvirt.libvirtError as error:
                if error.get_error_code() != libvirt.VIR_ERR_BLOCK_COPY_ACTIVE or time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_S)
            else:
                return
