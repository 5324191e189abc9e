# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps that take, merge and restore snapshots of a guest."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.step import Look
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text
from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import SnapshotRecord
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import GuestStep

# What backups say too, which store a guest's disks as well.
NEEDS_AGENT = "quiesce: required needs a running guest whose agent is connected"


def another_run(deed: str) -> str:
    """The error for a run that finds another one at work on the guest; `deed`: "back up web1"."""
    return f"cannot {deed}: another run works on its disks, or migrates it; wait for that run, and run again"


def not_frozen(what: str) -> str:
    """The note on disks that were stored while the guest wrote to them."""
    return (
        f"the disks in {what} are as after a power cut: no guest agent answers that could freeze its filesystems; "
        "install qemu-guest-agent in it"
    )


@dataclasses.dataclass(frozen=True)
class SnapshotStep(GuestStep):
    """One change of the guest with this UUID that is about one of its snapshots."""

    uuid: str = dataclasses.field(repr=False)
    name: str

    @property
    def what(self) -> str:
        """The snapshot, and whose it is."""
        return f"snapshot {self.name} of {self.guest}"


_PHASES = {
    SnapshotRecord.TAKING: "record that {} is being taken",
    SnapshotRecord.MADE: "record {}",
    SnapshotRecord.DELETING: "record that {} is being deleted",
}


@dataclasses.dataclass(frozen=True)
class RecordSnapshot(SnapshotStep):
    """Store an entry in the guest's record; files that are made by now become disks of the guest."""

    entry: SnapshotRecord
    made: tuple[str, ...] = ()

    def __str__(self) -> str:
        return _PHASES[self.entry.phase].format(self.what)


@dataclasses.dataclass(frozen=True)
class ForgetSnapshot(SnapshotStep):
    """Remove its entry from the guest's record, with the disks that are gone."""

    template = "record that {0.what} is deleted"
    gone: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class CopyState(SnapshotStep):
    """Copy UEFI variables or TPM state beside the disks: libvirt keeps neither in a snapshot without memory."""

    template = "copy {0.path} beside the disks of {0.guest}"
    path: str
    to: str


@dataclasses.dataclass(frozen=True)
class TakeSnapshot(SnapshotStep):
    """Let all disks of the guest stand still in one moment, and the guest write to new files."""

    xml: str = dataclasses.field(repr=False)
    kind: str  # external, internal
    memory: bool = False
    live: bool = False  # the guest runs
    quiesce: bool = False  # it has an agent, which is asked
    required: bool = False  # no snapshot without it

    def __str__(self) -> str:
        more = [self.kind, *(["with memory"] if self.memory else []), *(["quiesced"] if self.quiesce else [])]
        return f"take {self.what} ({', '.join(more)})"


@dataclasses.dataclass(frozen=True)
class Merge(SnapshotStep):
    """Let the running guest's QEMU write what stands in an overlay into the file below it."""

    look: t.ClassVar[Look | None] = Look(
        at="UUID; that the overlay still stands right on that file, in the running guest's chain",
        holds="QEMU's block job",
        leaves="the guest on its chain",
        by=("uuid", "overlay", "base"),
    )

    target: str
    overlay: str
    base: str
    size_bytes: int
    active: bool = False  # the guest writes to the overlay
    goes_on: bool = False  # an interrupted run has begun it

    def __str__(self) -> str:
        verb = "go on merging" if self.goes_on else "merge"
        return f"{verb} disk {self.target} of {self.what} ({bytes_text(self.size_bytes)})"


@dataclasses.dataclass(frozen=True)
class MergeOff(SnapshotStep):
    """Write what stands in an overlay of a guest that is off into the file below it."""

    look: t.ClassVar[Look | None] = Look(
        at="that the guest is off, and the overlay still stands right on that file",
        holds="QEMU's locks on both files",
        leaves="both files",
        by=("uuid", "overlay", "base"),
    )

    target: str
    overlay: str
    base: str
    base_format: str
    size_bytes: int
    above: str | None = None  # what stands on the overlay; None: the guest's disk is it

    def __str__(self) -> str:
        return f"merge disk {self.target} of {self.what} ({bytes_text(self.size_bytes)})"


@dataclasses.dataclass(frozen=True)
class ForgetChains(SnapshotStep):
    """Let the stored definition of a running guest not name files that are merged, below its disks."""

    template = "record the disks of {0.guest}"
    merged: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Redefine(SnapshotStep):
    """Replace libvirt's document of a snapshot by one with other files."""

    template = "record the files of {0.what}"
    moved: tuple[tuple[str, str, str], ...] = ()  # a disk of then: its path, another one, and the format of that
    overlays: tuple[tuple[str, str], ...] = ()  # by target, what the guest writes to since then


@dataclasses.dataclass(frozen=True)
class DropSnapshot(SnapshotStep):
    """Remove a snapshot from libvirt: its entry, and what an internal one holds within the disks."""

    template = "delete {0.what}"
    look: t.ClassVar[Look | None] = Look(
        at="UUID, and the snapshot's time",
        holds="",
        leaves="the snapshot",
        by=("uuid", "created_s"),
    )

    created_s: int
    internal: bool = False


@dataclasses.dataclass(frozen=True)
class CreateOverlay(SnapshotStep):
    """Create an empty file on the content of then."""

    template = "create a file for disk {0.target} of {0.guest} on {0.base}"
    target: str
    path: str
    base: str
    base_format: str


@dataclasses.dataclass(frozen=True)
class PowerOff(SnapshotStep):
    """Switch the guest off; if the run dies, the host starts it again."""

    template = "switch off {0.guest}"
    look: t.ClassVar[Look | None] = Look(
        at="UUID, and the files that the running guest writes to",
        holds="",
        leaves="the guest running, on its present content",
        by=("uuid", "files"),
    )

    files: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class PutBack(SnapshotStep):
    """Replace UEFI variables or TPM state by those of then."""

    template = "restore {0.path} from {0.copy}"
    copy: str
    path: str


@dataclasses.dataclass(frozen=True)
class Revert(SnapshotStep):
    """Let libvirt go back to a snapshot. What the guest has written since gets another name before."""

    look: t.ClassVar[Look | None] = Look(
        at="UUID, the snapshot's time, and the files that the guest writes to",
        holds="",
        leaves="the guest as it is, on its present content",
        by=("uuid", "created_s", "thrown_away"),
    )

    created_s: int
    running: bool
    thrown_away: tuple[tuple[str, str], ...] = ()  # each file, and the name by which it is kept
    spared: tuple[tuple[str, str], ...] = ()  # files that libvirt would remove, too, and their names until then

    def __str__(self) -> str:
        return f"revert {self.guest} to snapshot {self.name}{', running' if self.running else ''}"


@dataclasses.dataclass(frozen=True)
class DropName(GuestStep):
    """Remove a second name of a file, which a run that was killed gave it; the file keeps its first."""

    template = "remove {0.name}, a second name of {0.path}"
    name: str
    path: str


@dataclasses.dataclass(frozen=True)
class GiveBack(GuestStep):
    """Let a file have its name again, which a revert was to spare, and whose run was killed."""

    template = "bring {0.path} back from {0.name}"
    name: str
    path: str


@dataclasses.dataclass(frozen=True)
class StartAgain(SnapshotStep):
    """Start the guest on the content of then."""

    template = "start {0.guest}"


@dataclasses.dataclass(frozen=True)
class StayOff(SnapshotStep):
    """Leave the guest off, on the content of then: the host does not start it any more, whatever happens later."""

    template = "leave {0.guest} off"
    changes: t.ClassVar[bool] = False
