# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take, merge, change and restore snapshots in libvirt."""

from __future__ import annotations

import contextlib
import threading
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused, Timeout, VirtError
from ansible_collections.corral.virt.plugins.module_utils._disk_move import libvirt_disk_move
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import Note
from ansible_collections.corral.virt.plugins.module_utils._snapshot.plan_snapshot_steps import (
    DropSnapshot,
    Merge,
    Revert,
    TakeSnapshot,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.libvirt_blockjob import watched_end

_FREEZE_S = 5  # an agent that is silent for so long does not answer
_THAW_S = 60  # what it has frozen, it thaws: busy disks take their time
_LOOK_S = 0.5


def _snapshot(domain: t.Any, name: str) -> t.Any:
    with explained(f"find snapshot {name} of", domain.name()):
        return domain.snapshotLookupByName(name)


def take(connection: Connection, step: TakeSnapshot, arm: t.Callable[[], None]) -> tuple[float | None, Note | None]:
    """Take the snapshot; returns for how many seconds the guest's filesystems were frozen, and a note.

    `arm` is called before they are frozen, to let them be thawed if this process dies.
    """
    domain = libvirt_query.by_uuid(connection, step.uuid)
    flags = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_ATOMIC
    if step.kind == "external":
        disks, memory = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_DISK_ONLY, libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_LIVE
        flags |= memory if step.memory else disks
    frozen, since, note = contextlib.ExitStack(), 0.0, None
    if step.quiesce:
        since, note = freeze(domain, step.what, frozen, arm, required=step.required)
    with frozen, explained(f"take snapshot {step.name} of", step.guest):
        domain.snapshotCreateXML(step.xml, flags)
    quiesced = step.quiesce and not note
    return (round(time.monotonic() - since, 3) if quiesced else None), note


def freeze(
    domain: t.Any, what: str, frozen: contextlib.ExitStack, arm: t.Callable[[], None], *, required: bool
) -> tuple[float, Note | None]:
    """Freeze the guest's filesystems until the stack is closed: since when; a note if they are not, and need not be."""
    since = time.monotonic()
    try:
        arm()
        since = time.monotonic()
        with explained("freeze the filesystems of", domain.name()), _answers_within(domain, _FREEZE_S):
            domain.fsFreeze()
    except VirtError as error:
        if required:
            raise Failed(f"{error}; {what} was not taken; see to its agent, or use quiesce: auto") from error
        return since, Note(f"{what} is like a disk after a power cut: {error}")
    frozen.callback(_thaw, domain)
    return since, None


def _thaw(domain: t.Any) -> None:
    remedy = f"`virsh domfsthaw {domain.name()}`"
    with explained("thaw the filesystems of", domain.name(), remedy), _answers_within(domain, _THAW_S):
        domain.fsThaw()


@contextlib.contextmanager
def _answers_within(domain: t.Any, seconds: int) -> t.Iterator[None]:
    """Let the agent have so long to answer, and no limit afterwards, which is libvirt's default.

    libvirt keeps the limit as long as the guest runs: somebody else's freeze would fail by it, and stay frozen.
    """
    domain.agentSetResponseTimeout(seconds)
    try:
        yield
    finally:
        with contextlib.suppress(libvirt.libvirtError):  # the guest is off by now
            domain.agentSetResponseTimeout(libvirt.VIR_DOMAIN_AGENT_RESPONSE_TIMEOUT_BLOCK)


def merge(
    connection: Connection,
    step: Merge,
    *,
    bandwidth_mib_s: int,
    timeout_s: int,
    progress: t.Callable[[int, int], None],
) -> None:
    """Let QEMU merge an overlay into its base; a merge that is under way is waited for. Raises Timeout or Failed.

    It goes on in QEMU if this process dies, and ends with its time.
    """
    domain = libvirt_query.by_uuid(connection, step.uuid)
    what = f"merge disk {step.target} of {step.what}"
    with explained(what, "into its base"), watched_end(connection, domain, step.target) as end:
        if not domain.blockJobInfo(step.target):
            flags = libvirt.VIR_DOMAIN_BLOCK_COMMIT_ACTIVE if step.active else 0
            domain.blockCommit(step.target, step.base, step.overlay, bandwidth_mib_s, flags)
        elif bandwidth_mib_s:
            domain.blockJobSetSpeed(step.target, bandwidth_mib_s, 0)
        try:
            _wait(domain, step, end, timeout_s, progress)
        except Timeout:
            with contextlib.suppress(libvirt.libvirtError):  # it ended
                domain.blockJobAbort(step.target, 0)
            raise
    if step.active:
        libvirt_disk_move.pivot(connection, step.uuid, step.target)


def _wait(
    domain: t.Any, step: Merge, end: threading.Event, timeout_s: int, progress: t.Callable[[int, int], None]
) -> None:
    """Until an overlay below others is merged, or that of the guest follows each write."""
    cannot, deadline = f"cannot merge disk {step.target} of {step.what}", time.monotonic() + timeout_s
    finish = "the guest goes on, and the snapshot can only be deleted: run again to finish"
    while not end.wait(_LOOK_S):
        found = domain.blockJobInfo(step.target)
        if found:
            progress(found["cur"], found["end"])
            if step.active and found["cur"] == found["end"]:
                return
        if time.monotonic() >= deadline:
            raise Timeout(f"{cannot} within {timeout_s} s; {finish}, with a longer job_timeout")
    if step.active or getattr(end, "status", None) != libvirt.VIR_DOMAIN_BLOCK_JOB_COMPLETED:
        raise Failed(f"{cannot}: the guest or the merge has ended; is there room below {step.base}? {finish}")


def document(connection: Connection, uuid: str, name: str) -> tuple[str, bool]:
    """libvirt's document of a snapshot, with secrets, and whether it is the current one."""
    domain = libvirt_query.by_uuid(connection, uuid)
    with explained(f"read snapshot {name} of", domain.name()):
        found = _snapshot(domain, name)
        return found.getXMLDesc(libvirt.VIR_DOMAIN_SNAPSHOT_XML_SECURE), bool(found.isCurrent())


def redefine(connection: Connection, uuid: str, name: str, xml: str, *, current: bool) -> None:
    """Replace libvirt's document of a snapshot."""
    domain = libvirt_query.by_uuid(connection, uuid)
    flags = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE
    flags |= libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_CURRENT if current else 0
    with explained(f"record the files of snapshot {name} of", domain.name()):
        domain.snapshotCreateXML(xml, flags)


def check_created(step: DropSnapshot | Revert, created_s: int) -> None:
    """Raise Refused if another snapshot has the name by now."""
    if created_s != step.created_s:
        raise Refused(f"cannot delete or revert to {step.what}: another one has its name by now; run again")


def drop(connection: Connection, step: DropSnapshot) -> None:
    """Delete an internal snapshot, or libvirt's entry of an external one that is merged."""
    domain = libvirt_query.by_uuid(connection, step.uuid)
    flags = 0 if step.internal else libvirt.VIR_DOMAIN_SNAPSHOT_DELETE_METADATA_ONLY
    with explained(f"delete snapshot {step.name} of", step.guest):
        _snapshot(domain, step.name).delete(flags)


def revert(connection: Connection, step: Revert) -> None:
    """Go back to a snapshot, and run or be off then, as asked."""
    domain = libvirt_query.by_uuid(connection, step.uuid)
    flags = libvirt.VIR_DOMAIN_SNAPSHOT_REVERT_RUNNING if step.running else 0
    with explained(f"revert to snapshot {step.name} of", step.guest):
        domain.revertToSnapshot(_snapshot(domain, step.name), flags)


def stop(connection: Connection, uuid: str, guest: str) -> None:
    """Switch the guest off; one that is off by itself at this moment is no error."""
    domain = libvirt_query.by_uuid(connection, uuid)
    with explained("switch off", guest):
        try:
            domain.destroy()
        except libvirt.libvirtError:
            if domain.isActive():
                raise


def start(connection: Connection, uuid: str, guest: str) -> None:
    """Start the guest, unless it runs."""
    domain = libvirt_query.by_uuid(connection, uuid)
    with explained("start", guest):
        try:
            domain.create()
        except libvirt.libvirtError:
            if not domain.isActive():
                raise
