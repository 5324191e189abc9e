# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what is done with a disk that was moved aside to be deleted, after a look at its users. Pure."""

from __future__ import annotations

import dataclasses
import os.path
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._core.step import Look
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import GuestStep
from ansible_collections.corral.virt.plugins.module_utils._storage.model_removed_disk import (
    DiskAside,
    Moment,
    RemovedDisk,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_removed_disks import kept
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

    template = "{0.what} disk {0.path}, which was moved to {0.place}"
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


@dataclasses.dataclass(frozen=True)
class DiskSight:
    """What is seen of a disk that is about to be deleted or replaced."""

    user: str | None = None  # a guest, its snapshot or backup, another volume or a loop device
    opened: bool = False  # a QEMU process has it open
    same: bool = True  # it is the file that the removal began with


def command(uri: str | None, path: str) -> str:
    """The command that deletes a disk by hand; without a URI, for a file that is in no pool."""
    return shlex.join(["virsh", "--connect", uri, "vol-delete", path] if uri else ["rm", path])


def check_identity(
    path: str, guest: str, expected: FileIdentity | None, found: FileIdentity, *, verb: str = "delete"
) -> None:
    """Raise Refused if the disk is another file than the one that was created for the guest."""
    if expected is not None and not expected.is_same(found):
        raise Refused(
            f"cannot {verb} disk {path} of {guest}: another file than the one that was created for {guest} has this "
            "name; inspect it, and delete it by hand if nobody needs it"
        )


def check_note(place: str, expected: FileIdentity | None, found: FileIdentity) -> None:
    """Raise Refused if the note on a disk that was moved aside tells of another file than the plan has seen."""
    if expected is not None and expected != found:
        raise Refused(
            f"cannot finish the removal of {place}: its note tells of another file since this run has read it; it is "
            "left as it is; inspect it, and run again"
        )


def check_sight(
    path: str,
    guest: str,
    sight: DiskSight,
    *,
    uri: str,
    pooled: bool = True,
    left: t.Sequence[str] = (),
    place: str = "",
    give_back: t.Callable[[], bool] | None = None,
    verb: str = "delete",
) -> None:
    """Raise Refused if somebody uses the disk, or it is another file, after giving it back from `place`.

    `left` are disks of the guest that would be deleted after it. `give_back` is False if another file has its name.
    """
    reason = _obstacle(path, sight)
    if not reason:
        return
    if give_back is None or give_back():
        where = f"it is kept; to delete it when nobody needs it: {command(uri if pooled else None, path)}"
    else:
        where = (
            f"it is kept as {place}, because another file has its name by now; compare the two, and delete one of them"
        )
    others = "".join(f"; {one} is kept, too: {command(uri, one)}" for one in left)
    raise Refused(f"cannot {verb} disk {path}{guest and ' of '}{guest}: {reason}; {where}{others}")


def _obstacle(path: str, sight: DiskSight) -> str:
    if not sight.same:
        return "another file was given its name in the meantime"
    if sight.user:
        return f"{sight.user} uses it by now"
    if sight.opened:
        return f"a process that libvirt does not know has it open by now (see `{shlex.join(['fuser', '-v', path])}`)"
    return ""


def is_given_back(sight: DiskSight, *, returned: bool) -> bool:
    """True if an interrupted removal is undone, as somebody uses the disk; else it is finished.

    `returned`: True if the disk still has its name.
    """
    return returned or bool(_obstacle("", sight))


def check_given_back(place: str, path: str, *, done: bool) -> None:
    """Raise Refused if another file has the name of a disk that must be given back."""
    if not done:
        raise Refused(
            f"cannot bring disk {path} back from {place}: another file has its name by now; compare the two, and "
            "delete one of them"
        )


def steps_and_notes(guest: str, found: t.Iterable[DiskAside]) -> tuple[list[FinishRemoval], list[str]]:
    """Steps that finish interrupted and expired removals, as a part of the removal of this guest; and notes."""
    made, notes = [], []
    for one in found:
        note = t.cast(RemovedDisk, one.note)
        if one.taken and one.moved:
            notes.append(kept(one, note.host_uuid, Moment(note.since, "", 0)))
        else:
            made.append(FinishRemoval(guest, one.place, note.path, _verb(one), note.identity))
    return made, notes


def _verb(one: DiskAside) -> str:
    if not one.moved:
        return FORGET
    return GIVE_BACK if one.user else DELETE
