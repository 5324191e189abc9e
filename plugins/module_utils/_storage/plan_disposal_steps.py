# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps that delete disks of guests."""

from __future__ import annotations

import dataclasses
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.step import Look
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import GuestStep
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity

DELETE, GIVE_BACK, FORGET = "delete", "give back", "forget the removal of"
_USERS = (
    "who uses it: definitions of all guests of the host, running, stored and saved, their snapshots and backup jobs, "
    "with all backing chains; volumes; loop devices; locks of QEMU"
)


@dataclasses.dataclass(frozen=True)
class DeleteVolume(GuestStep):
    """Remove a disk image that the guest owns."""

    look: t.ClassVar[Look | None] = Look(
        at=f"inode, time of birth and mark of the file, or the volume's key where it is none here; {_USERS}",
        holds="the file, moved to .corral/.removed of its directory; remotely nothing",
        leaves="the disk, under its name; its user, and the command that deletes it",
        by=("expected", "key"),
    )

    path: str
    expected: FileIdentity | None = dataclasses.field(default=None, repr=False)  # which file was created for the guest
    others: tuple[str, ...] = dataclasses.field(default=(), repr=False)  # all disks that go with the guest
    keep_h: int = 0  # how long it is kept aside, in hours
    key: str | None = dataclasses.field(default=None, repr=False)  # of the volume, in libvirt's words

    def __str__(self) -> str:
        kept = f", after {self.keep_h} h in {os.path.dirname(self.path)}/.corral/.removed" if self.keep_h else ""
        return f"delete disk {self.path}{kept}"

    @property
    def left(self) -> tuple[str, ...]:
        """Disks that later steps delete."""
        return self.others[self.others.index(self.path) + 1 :] if self.path in self.others else ()


@dataclasses.dataclass(frozen=True)
class FinishRemoval(GuestStep):
    """Delete a disk that an interrupted run moved aside, or whose time is over; give it back if somebody uses it."""

    look: t.ClassVar[Look | None] = Look(
        at=f"inode, time of birth and mark of the file, as its note tells; {_USERS}",
        holds="a lock on the note, and the file, which has no name that guests know",
        leaves="the disk, under its own name again; where another file has that, both",
        by=("expected",),
    )

    place: str  # where the disk is now
    path: str  # where it was
    what: str = DELETE
    expected: FileIdentity | None = dataclasses.field(default=None, repr=False)  # which file the note tells of

    def __str__(self) -> str:
        return f"{self.what} disk {self.path}, which was moved to {self.place}"
