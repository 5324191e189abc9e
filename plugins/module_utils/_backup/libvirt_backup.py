# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Let libvirt back up a running guest, and keep its checkpoints."""

from __future__ import annotations

import contextlib
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup_steps import (
    DropCheckpoint,
    ForgetCheckpoints,
    PushDisks,
)
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Timeout, VirtError
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import Note
from ansible_collections.corral.virt.plugins.module_utils._snapshot.libvirt_snapshot import freeze

_LOOK_S = 0.3


def checkpoints(connection: Connection, uuid: str) -> list[tuple[str, str]]:
    """Names and documents of the guest's checkpoints; of a running one with the bytes that were written since."""
    domain = libvirt_query.by_uuid(connection, uuid)
    flags = libvirt.VIR_DOMAIN_CHECKPOINT_XML_NO_DOMAIN
    if domain.isActive():
        flags |= libvirt.VIR_DOMAIN_CHECKPOINT_XML_SIZE
    with explained("read the checkpoints of", domain.name()):
        return [(one.getName(), one.getXMLDesc(flags)) for one in domain.listAllCheckpoints()]


def checkpoint_document(connection: Connection, uuid: str, name: str) -> str:
    """The whole document of a checkpoint, from which it can be redefined."""
    domain = libvirt_query.by_uuid(connection, uuid)
    with explained(f"read checkpoint {name} of", domain.name()):
        found = domain.checkpointLookupByName(name)
        return t.cast(str, found.getXMLDesc(libvirt.VIR_DOMAIN_CHECKPOINT_XML_SECURE))


def redefine(connection: Connection, uuid: str, name: str, xml: str) -> Note | None:
    """Let libvirt know a checkpoint again, if its bitmaps are there; a note if they are not."""
    domain = libvirt_query.by_uuid(connection, uuid)
    flags = libvirt.VIR_DOMAIN_CHECKPOINT_CREATE_REDEFINE | libvirt.VIR_DOMAIN_CHECKPOINT_CREATE_REDEFINE_VALIDATE
    try:
        domain.checkpointCreateXML(xml, flags)
    except libvirt.libvirtError as error:
        return Note(f"checkpoint {name} of {domain.name()} is lost, so all of its disks are copied: {error}")
    return None


def drop(connection: Connection, step: DropCheckpoint) -> None:
    """Delete a checkpoint; its parent gets its changes. One whose bitmaps are lost leaves libvirt's list."""
    domain = libvirt_query.by_uuid(connection, step.uuid)
    with explained(f"delete checkpoint {step.name} of", step.guest):
        found = domain.checkpointLookupByName(step.name)
        try:
            found.delete()
        except libvirt.libvirtError:
            if not step.lost:
                raise
            found.delete(libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY)


def forget_checkpoints(connection: Connection, step: ForgetCheckpoints) -> None:
    """Forget checkpoints, and not the bitmaps of the disks that had them."""
    domain = libvirt_query.by_uuid(connection, step.uuid)
    for name in step.names:
        with explained(f"forget checkpoint {name} of", step.guest):
            found = domain.checkpointLookupByName(name)
            found.delete(libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY)


def begin(
    connection: Connection,
    step: PushDisks,
    documents: tuple[str, str | None],
    arm: t.Callable[[], None],
    *,
    bandwidth_mib_s: int,
) -> tuple[float | None, Note | None]:
    """Begin a backup with the documents of backup and checkpoint; returns for how many seconds the guest's filesystems
    were frozen, and a note.

    `arm` is called before they are frozen, to let them be thawed if this process dies.
    """
    domain = libvirt_query.by_uuid(connection, step.uuid)
    frozen, since, note = contextlib.ExitStack(), 0.0, None
    if step.quiesce:
        since, note = freeze(domain, f"backup {step.point.id} of {step.guest}", frozen, arm, required=step.required)
    with frozen, explained("back up", step.guest):
        domain.backupBegin(documents[0], documents[1], 0)
    took = round(time.monotonic() - since, 3) if step.quiesce and not note else None
    for disk in step.point.disks if bandwidth_mib_s else ():
        with contextlib.suppress(libvirt.libvirtError):  # it has ended
            domain.blockJobSetSpeed(disk.target, bandwidth_mib_s, 0)
    return took, note


def abort(connection: Connection, uuid: str) -> None:
    """Abort a backup, unless it has ended."""
    with contextlib.suppress(libvirt.libvirtError, VirtError):
        domain = libvirt_query.by_uuid(connection, uuid)
        if domain.isActive() and libvirt_query.backup_xml(domain):
            domain.abortJob()


def wait(connection: Connection, step: PushDisks, *, timeout_s: int, progress: t.Callable[[int, int], None]) -> None:
    """Until QEMU has copied all; raises Timeout, or Failed if it gave up."""
    domain, deadline = libvirt_query.by_uuid(connection, step.uuid), time.monotonic() + timeout_s
    cannot = f"cannot back up {step.guest}"
    with explained("back up", step.guest):
        while libvirt_query.backup_xml(domain):
            told = domain.jobStats()
            progress(told.get("disk_processed", 0), told.get("disk_total", 0))
            if time.monotonic() >= deadline:
                raise Timeout(f"{cannot} within {timeout_s} s; the job was aborted; run again, or raise job_timeout")
            time.sleep(_LOOK_S)
        ended = domain.jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED) if domain.isActive() else {}
    if not (ended.get("operation") == libvirt.VIR_DOMAIN_JOB_OPERATION_BACKUP and ended.get("success", False)):
        why = ended.get("errmsg") or "the guest or the job has ended"
        raise Failed(f"{cannot}: {why}; the next run removes what was copied, and copies again")
