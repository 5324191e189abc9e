# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps that create and grow disks of guests, as data."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.step import Look
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Volume
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import GuestStep
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity


@dataclasses.dataclass(frozen=True)
class Claim:
    """The guest's record, our element of its metadata, without and with a file that is about to be made."""

    without_file: str
    with_file: str


_REPLACES = Look(
    at="what has its name, where an interrupted run is gone on with: who uses it, as for a disk that is deleted",
    holds="the file, moved to .corral/.removed of its directory; remotely nothing",
    leaves="the file, under its name; its user",
    by=("expected",),
)


@dataclasses.dataclass(frozen=True)
class _OfVolume(GuestStep):
    """What makes a file or volume of a guest."""

    volume: Volume

    @property
    def path(self) -> str:
        """The path of the volume."""
        return self.volume.path


@dataclasses.dataclass(frozen=True)
class CreateVolume(_OfVolume):
    """Make a disk image; `replace` only for one that an interrupted run of ours left."""

    look: t.ClassVar[Look | None] = _REPLACES

    xml: str = dataclasses.field(repr=False)
    replace: bool = False
    claim: Claim | None = dataclasses.field(default=None, repr=False)
    expected: FileIdentity | None = dataclasses.field(default=None, repr=False)  # what is replaced; None: not known

    def __str__(self) -> str:
        volume = self.volume
        what = f"create disk {volume.path} ({bytes_text(volume.capacity_bytes)}, {volume.format}"
        if volume.backing_path:
            return f"{what}, on {volume.backing_path})"
        return f"{what}, copy of {volume.copy_of})" if volume.copy_of else f"{what})"


@dataclasses.dataclass(frozen=True)
class CreateLogicalVolume(_OfVolume):
    """Make a logical volume with all its space, and fill it: with a copy and zeros, or with zeros. A thin one reads as
    zeros by itself.
    """

    look: t.ClassVar[Look | None] = Look(
        at="the volume that an interrupted run left there: its UUID, and who uses it, as for a disk that is deleted",
        holds="",
        leaves="the volume; its user",
        by=("expected",),
    )

    group: str
    copy_format: str = ""  # of `volume.copy_of`
    copy_bytes: int = 0
    replace: bool = False
    claim: Claim | None = dataclasses.field(default=None, repr=False)
    expected: FileIdentity | None = dataclasses.field(default=None, repr=False)  # what is replaced; None: not known
    thin_pool: str = ""

    def __str__(self) -> str:
        volume = self.volume
        kind = f"thin volume of {self.group}/{self.thin_pool}" if self.thin_pool else "logical volume"
        made = f"create disk {volume.path} ({bytes_text(volume.capacity_bytes)}, {kind} in pool {volume.pool})"
        return f"{made}, and copy {volume.copy_of} ({bytes_text(self.copy_bytes)}) onto it" if volume.copy_of else made


@dataclasses.dataclass(frozen=True)
class WriteSeed(_OfVolume):
    """Write the cloud-init seed image."""

    template = "write cloud-init seed {0.volume.path}"
    look: t.ClassVar[Look | None] = Look(
        at="who but the guest uses the seed that it has",
        holds="",
        leaves="the seed as it is; its user",
        by=("uuid", "path"),
    )

    files: t.Mapping[str, str] = dataclasses.field(repr=False)
    replace: bool = True
    claim: Claim | None = dataclasses.field(default=None, repr=False)
    uuid: str = dataclasses.field(default="", repr=False)  # of the guest, which is no user of its own seed


@dataclasses.dataclass(frozen=True)
class Customize(GuestStep):
    """Apply the seed to a disk that nobody has booted from; until then it is named `source`."""

    template = "apply cloud-init seed to disk {0.path} (virt-customize)"
    look: t.ClassVar[Look | None] = _REPLACES

    pool: str
    source: str
    path: str
    commands: tuple[tuple[str, str], ...] = dataclasses.field(repr=False)
    replace: bool = False
    claim: Claim | None = dataclasses.field(default=None, repr=False)
    expected: FileIdentity | None = dataclasses.field(default=None, repr=False)  # what is replaced; None: not known


MAKING = (CreateVolume, CreateLogicalVolume, WriteSeed, Customize)  # what makes a file or volume of the guest


@dataclasses.dataclass(frozen=True)
class GrowDisk(GuestStep):
    """Enlarge a disk that nobody uses now."""

    path: str
    size_bytes: int

    def __str__(self) -> str:
        return f"grow disk {self.path} to {bytes_text(self.size_bytes)}"


@dataclasses.dataclass(frozen=True)
class GrowLogicalVolume(GuestStep):
    """Enlarge a logical volume, also one that is in use; what it gets is zeros."""

    path: str
    pool: str
    before_bytes: int
    size_bytes: int

    def __str__(self) -> str:
        return f"grow logical volume {self.path} to {bytes_text(self.size_bytes)}"


@dataclasses.dataclass(frozen=True)
class GrowThinVolume(GrowLogicalVolume):
    """Enlarge a thin volume, also one that is in use; what it gets reads as zeros by itself."""

    def __str__(self) -> str:
        return f"grow thin volume {self.path} to {bytes_text(self.size_bytes)}"


@dataclasses.dataclass(frozen=True)
class GrowRunningDisk(GrowDisk):
    """Enlarge a disk of a running guest, where it is `target`."""

    target: str

    def __str__(self) -> str:
        return f"{super().__str__()} while it runs"
