# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resize disks of running guests, and flatten them with a block job."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused, Timeout
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt

_LOOK_S = 0.5  # progress; the end comes as an event
_RESUME_S = 30  # after which a guest whose run has died is resumed
_Armed = t.Callable[..., "contextlib.AbstractContextManager[None]"]


def grow(domain: t.Any, target: str, size_bytes: int) -> None:
    """Enlarge a disk of a running guest."""
    with explained(f"grow disk {target} of", domain.name()):
        domain.blockResize(target, size_bytes, libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)


def seen_bytes(connection: Connection, uuid: str, target: str) -> int:
    """The size of a disk, as the running guest sees it."""
    domain = libvirt_query.by_uuid(connection, uuid)
    with explained(f"read disk {target} of", domain.name()):
        return int(domain.blockInfo(target)[0])


def pull(
    connection: Connection,
    uuid: str,
    target: str,
    *,
    timeout_s: int,
    progress: t.Callable[[int, int], None],
    armed: _Armed,
) -> None:
    """Copy all that a disk reads from its backing files into it while the guest runs; if stopped half-way, the disk
    keeps its backing file and content.

    A job that a killed run left is waited for. `armed` takes a name, seconds and a program, and lets that run if this
    process has died by then, as the guest pauses for a moment at the end. Raises Timeout, or Failed if QEMU gives up.
    """
    domain = libvirt_query.by_uuid(connection, uuid)
    guest = domain.name()
    what = f"disk {target} of {guest}"
    with explained("flatten", what), watched_end(connection, domain, target) as ended, interruptible():
        job = domain.blockJobInfo(target)
        if job and job["type"] != libvirt.VIR_DOMAIN_BLOCK_JOB_TYPE_PULL:
            raise Refused(
                f"cannot flatten {what}: another block job is running on it (virsh blockjob {guest} {target}); wait "
                "for it to end"
            )
        if not job:
            domain.blockPull(target, 0, 0)
        try:
            _watch(domain, target, ended, timeout_s, progress)
        except BaseException:
            with contextlib.suppress(libvirt.libvirtError):  # it ended, or the guest did
                domain.blockJobAbort(target, 0)
            raise
        _flush(connection, domain, armed)


def _flush(connection: Connection, domain: t.Any, armed: _Armed) -> None:
    """Let QEMU write what it has in memory of disks, as it does whenever a guest pauses: until then, a disk that was
    pulled names no backing file any more, and has little of its content after a power cut.
    """
    if domain.state()[0] != libvirt.VIR_DOMAIN_RUNNING:
        return
    uuid = domain.UUIDString()
    resume = ("virsh", "--connect", connection.getURI(), "resume", uuid)
    with armed(f"corral-resume-{uuid}", _RESUME_S, *resume):
        try:
            domain.suspend()
        finally:
            domain.resume()


def _watch(domain: t.Any, target: str, ended: _End, timeout_s: int, progress: t.Callable[[int, int], None]) -> None:
    deadline = time.monotonic() + timeout_s
    what = f"disk {target} of {domain.name()}"
    while not ended.wait(_LOOK_S):
        if time.monotonic() >= deadline:
            remedy = "its backing file is unchanged; run again to continue, or raise job_timeout"
            raise Timeout(f"cannot flatten {what} within {timeout_s} s; {remedy}")
        job = domain.blockJobInfo(target)
        if job:
            progress(job["cur"], job["end"])
    if ended.status != libvirt.VIR_DOMAIN_BLOCK_JOB_COMPLETED:
        why = (
            "it was cancelled"
            if ended.status == libvirt.VIR_DOMAIN_BLOCK_JOB_CANCELED
            else "QEMU gave up; is there enough room for it?"
        )
        raise Failed(f"cannot flatten {what}: {why}; its backing file and content are unchanged")


class _End(threading.Event):
    """Set when the block job has ended."""

    status: int | None = None


@contextlib.contextmanager
def watched_end(connection: Connection, domain: t.Any, target: str) -> t.Iterator[_End]:
    """Yields an event for the end of the disk's jobs.

    The connection must be `watched`: an interrupt must not get lost in libvirt's callbacks.
    """
    ended = _End()

    def on_event(_connection: object, _domain: object, disk: str, _kind: int, status: int, _opaque: object) -> None:
        if disk == target and status != libvirt.VIR_DOMAIN_BLOCK_JOB_READY:
            ended.status = status
            ended.set()

    def on_off(_connection: object, _domain: object, event: int, _detail: int, _opaque: object) -> None:
        if event == libvirt.VIR_DOMAIN_EVENT_STOPPED:
            ended.set()

    callbacks = [
        connection.domainEventRegisterAny(domain, libvirt.VIR_DOMAIN_EVENT_ID_BLOCK_JOB_2, on_event, None),
        connection.domainEventRegisterAny(domain, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, on_off, None),
    ]
    try:
        yield ended
    finally:
        for callback in callbacks:
            connection.domainEventDeregisterAny(callback)


@contextlib.contextmanager
def interruptible() -> t.Iterator[None]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt, so that the job ends with the run."""

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
