# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps that move a disk of a guest to another place of its host, as data."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.step import Look
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Volume
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import GuestStep
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity

_AGAIN = " (again: an interrupted run has left a part)"


@dataclasses.dataclass(frozen=True)
class Begin(GuestStep):
    """Make the empty file that the disk moves into, and the mark beside it."""

    look: t.ClassVar[Look | None] = Look(
        at="of the part that is replaced: inode and birth of the file, as its mark tells, and who uses it",
        holds="the part, moved aside",
        leaves="the file; its user",
        by=("part",),
    )

    volume: Volume
    mark: str = dataclasses.field(repr=False)
    part: FileIdentity | None = None  # the file that an interrupted run has left in its place

    def __str__(self) -> str:
        return f"create disk {self.volume.path}{_AGAIN if self.part else ''}"


@dataclasses.dataclass(frozen=True)
class BeginLogical(GuestStep):
    """Make the logical or thin volume that the disk moves onto; a tag is the mark. Behind the content it is zeros."""

    look: t.ClassVar[Look | None] = Look(
        at="of the part that is replaced: UUID of the volume, as its tag tells, and who uses it or has it open",
        holds="",
        leaves="the volume; its user",
        by=("part",),
    )

    volume: Volume
    group: str
    tags: tuple[str, ...] = dataclasses.field(repr=False)
    content_bytes: int = 0  # what the copy writes
    part: FileIdentity | None = None
    thin_pool: str = ""

    def __str__(self) -> str:
        kind = f"thin volume of {self.group}/{self.thin_pool}" if self.thin_pool else "logical volume"
        made = f"{bytes_text(self.volume.capacity_bytes)}, {kind} in pool {self.volume.pool}"
        return f"create disk {self.volume.path} ({made}){_AGAIN if self.part else ''}"


@dataclasses.dataclass(frozen=True)
class CopyRunning(GuestStep):
    """Let the running guest's QEMU copy the disk, and write what the guest writes to both."""

    uuid: str = dataclasses.field(repr=False)
    target: str
    to: str
    format: str
    shallow: bool
    size_bytes: int
    goes_on: bool = False  # an interrupted run has begun it
    becomes: str = ""  # another format than it has
    flattens: str = ""  # the backing file that it stands on no more

    def __str__(self) -> str:
        how = "go on copying" if self.goes_on else "copy"
        size = _content(self.size_bytes, self.flattens)
        return f"{how} disk {self.target} of running {self.guest} ({size}) to {self.to}{_as(self.becomes)}"


@dataclasses.dataclass(frozen=True)
class CopyOff(GuestStep):
    """Copy the file of a guest that is off, and compare both."""

    path: str
    to: str
    size_bytes: int

    def __str__(self) -> str:
        return f"copy disk {self.path} ({bytes_text(self.size_bytes)}) to {self.to}, and compare"


@dataclasses.dataclass(frozen=True)
class ConvertOff(GuestStep):
    """Copy the content of a disk of a guest that is off into another format, or to or from a device; compare both."""

    path: str
    to: str
    size_bytes: int
    format: str  # that it has
    to_format: str
    flattens: str = ""
    empty: bool = True  # `to` reads as zeros, as new files do and logical volumes do not

    def __str__(self) -> str:
        becomes = _as(self.to_format if self.to_format != self.format else "")
        return f"copy disk {self.path} ({_content(self.size_bytes, self.flattens)}) to {self.to}{becomes}, and compare"


def _content(size_bytes: int, flattens: str) -> str:
    return bytes_text(size_bytes) + (f", with what it reads of {flattens}" if flattens else "")


def _as(form: str) -> str:
    return f" as {form}" if form else ""


@dataclasses.dataclass(frozen=True)
class Pivot(GuestStep):
    """Let the running guest use the copy alone."""

    template = "switch disk {0.target} of running {0.guest} to {0.to}"
    look: t.ClassVar[Look | None] = Look(
        at="UUID; that the disk is still the one that is copied, into the file that the mark tells of",
        holds="the copy follows each write until then",
        leaves="the guest on its old disk; the job",
        by=("uuid", "path", "to"),
    )

    uuid: str = dataclasses.field(repr=False)
    target: str
    path: str
    to: str
    pool: str = dataclasses.field(default="", repr=False)  # of the copy, and its mark


@dataclasses.dataclass(frozen=True)
class Remember(GuestStep):
    """Record that the new file was made for the guest, and the old one is no longer its."""

    template = "record that disk {0.to} is of {0.guest}"
    uuid: str = dataclasses.field(repr=False)
    path: str
    to: str


@dataclasses.dataclass(frozen=True)
class Finish(GuestStep):
    """Remove the mark."""

    template = "record that {0.name} of pool {0.pool} is complete"
    pool: str
    name: str


@dataclasses.dataclass(frozen=True)
class FinishLogical(GuestStep):
    """Remove the mark of a logical volume."""

    template = "record that {0.path} of pool {0.pool} is complete"
    pool: str
    path: str
    tag: str = dataclasses.field(repr=False)
