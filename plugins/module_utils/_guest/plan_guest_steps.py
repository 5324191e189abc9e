# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps on a guest: plain data with a readable text; other modules carry them out."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._address.plan_address_steps import (
    RecordAddresses,
    WaitForAddress,
)
from ansible_collections.corral.virt.plugins.module_utils._core.changes import size_text
from ansible_collections.corral.virt.plugins.module_utils._core.step import Look
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import (
    Destroy,
    GuestStep,
    Reboot,
    Reset,
    Resume,
    Seen,
    Shutdown,
    Start,
    Suspend,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_steps import (
    MAKING,
    Claim,
    CreateLogicalVolume,
    CreateVolume,
    Customize,
    GrowDisk,
    GrowLogicalVolume,
    GrowRunningDisk,
    GrowThinVolume,
    WriteSeed,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disposal import (
    DeleteVolume,
    FinishRemoval,
)

__all__ = [
    "MAKING",
    "Attach",
    "Claim",
    "CreateLogicalVolume",
    "CreateVolume",
    "Customize",
    "Define",
    "DeleteVolume",
    "Destroy",
    "Detach",
    "FinishRemoval",
    "GrowDisk",
    "GrowLogicalVolume",
    "GrowRunningDisk",
    "GrowThinVolume",
    "GuestStep",
    "Pin",
    "Reboot",
    "RecordAddresses",
    "Rename",
    "Reset",
    "Resume",
    "Seen",
    "SetAutostart",
    "SetIothreads",
    "SetLifecycle",
    "SetMemory",
    "SetMetadata",
    "SetParameters",
    "SetStatsPeriod",
    "SetVcpus",
    "Shutdown",
    "Start",
    "Suspend",
    "Undefine",
    "UpdateDevice",
    "WaitForAddress",
    "WriteSeed",
]


@dataclasses.dataclass(frozen=True)
class Define(GuestStep):
    """Store the definition; a running guest goes on as it is."""

    look: t.ClassVar[Look | None] = Look(
        at="UUID, and the whole stored definition without our record of it",
        holds="",
        leaves="the definition as others have changed it; which parts they changed",
        by=("uuid", "seen"),
    )

    xml: str = dataclasses.field(repr=False)
    why: str = ""
    uuid: str = dataclasses.field(default="", repr=False)
    seen: str = dataclasses.field(default="", repr=False)  # fingerprint of the definition before; empty: no guest

    def __str__(self) -> str:
        return f"define {self.guest}{f' ({self.why})' if self.why else ''}"


@dataclasses.dataclass(frozen=True)
class Rename(GuestStep):
    """Give a guest that is off another name; its UUID and its files stay."""

    template = "rename {0.guest} to {0.to}"
    to: str


@dataclasses.dataclass(frozen=True)
class Attach(GuestStep):
    """Plug a device into the running guest."""

    template = "attach {0.what} to running {0.guest}"
    what: str
    xml: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Detach(Attach):
    """Unplug a device from the running guest."""

    template = "detach {0.what} from running {0.guest}"


@dataclasses.dataclass(frozen=True)
class SetVcpus(GuestStep):
    """Change the number of vCPUs of the running guest."""

    template = "set {0.count} vcpus on running {0.guest}"
    count: int


@dataclasses.dataclass(frozen=True)
class SetMemory(GuestStep):
    """Balloon the running guest; where it does not follow, remember that it was asked."""

    kib: int
    record: str = dataclasses.field(default="", repr=False)

    def __str__(self) -> str:
        return f"set memory of running {self.guest} to {bytes_text(self.kib * 1024)}"


@dataclasses.dataclass(frozen=True)
class SetMetadata(GuestStep):
    """Give the running guest its new title, description, operating system and record of ours."""

    template = "set metadata of running {0.guest}"
    title: str | None = None
    description: str | None = None
    record: str = dataclasses.field(default="", repr=False)
    osinfo: str | None = None  # libosinfo's element; None leaves it alone


@dataclasses.dataclass(frozen=True)
class UpdateDevice(GuestStep):
    """Change what a device of the running guest allows to be changed: its medium, its cable, its password."""

    template = "update {0.what} of running {0.guest} ({0.fields})"
    what: str
    xml: str = dataclasses.field(repr=False)
    fields: str = ""


@dataclasses.dataclass(frozen=True)
class SetParameters(GuestStep):
    """Change limits of the running guest: `scheduler`, `memory`, `numa`, or `iotune` of a disk."""

    kind: str
    values: t.Mapping[str, int | str]  # by libvirt's names
    target: str = ""

    def __str__(self) -> str:
        what = f"{self.kind}{f' of {self.target}' if self.target else ''}"
        return (
            f"set {what} of running {self.guest} "
            f"({', '.join(f'{name}={self._shown(value)}' for name, value in self.values.items())})"
        )

    def _shown(self, value: object) -> object:
        return size_text(value) if self.kind == "memory" and isinstance(value, int) else value


@dataclasses.dataclass(frozen=True)
class Pin(GuestStep):
    """Let a thread of the running guest run on these CPUs of the host only."""

    kind: str  # vcpu, iothread or emulator
    number: int
    cpuset: str

    def __str__(self) -> str:
        return (
            f"pin {self.kind}{'' if self.kind == 'emulator' else f' {self.number}'} of running {self.guest} to "
            f"{self.cpuset}"
        )


@dataclasses.dataclass(frozen=True)
class SetIothreads(GuestStep):
    """Add IO threads to the running guest, or take the last ones away."""

    template = "set {0.count} iothreads on running {0.guest}"
    before: int
    count: int


@dataclasses.dataclass(frozen=True)
class SetLifecycle(GuestStep):
    """What follows when the running guest powers off, reboots or crashes."""

    template = "set on_{0.event} of running {0.guest} to {0.action}"
    event: str
    action: str


@dataclasses.dataclass(frozen=True)
class SetStatsPeriod(GuestStep):
    """How often the running guest's balloon reports."""

    template = "set the balloon of running {0.guest} to report every {0.period_s} s"
    period_s: int


@dataclasses.dataclass(frozen=True)
class SetAutostart(GuestStep):
    """Start with the host, or not."""

    on: bool

    def __str__(self) -> str:
        return f"set autostart of {self.guest} {'on' if self.on else 'off'}"


@dataclasses.dataclass(frozen=True)
class Undefine(GuestStep):
    """Remove the definition and what libvirt keeps with it; without being told, libvirt refuses."""

    look: t.ClassVar[Look | None] = Look(
        at="UUID, the whole stored definition without our record of it, that it is stored, and that it is off",
        holds="",
        leaves="the guest and its disks; which parts of its definition others have changed, or that it was started",
        by=("uuid", "seen"),
    )

    managed_state: tuple[str, ...] = ()
    uuid: str = dataclasses.field(default="", repr=False)
    seen: str = dataclasses.field(default="", repr=False)  # fingerprint of the definition

    def __str__(self) -> str:
        gone = ", ".join(kind for kind in self.managed_state if not kind.startswith("keep_"))
        return f"undefine {self.guest}" + (f" with its {gone}" if gone else "")
