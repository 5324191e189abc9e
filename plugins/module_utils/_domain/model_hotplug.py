# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts that decide if a running guest can get a device: the device, and the guest's PCI slots and USB ports."""

from __future__ import annotations

import dataclasses
import typing as t

# A network filter of libvirt, as far as it matters where the kernel looks at its rules.


@dataclasses.dataclass(frozen=True)
class NetworkFilter:
    """A network filter: the `protocols` of its own rules, and the filters that it refers to."""

    protocols: frozenset[str]
    references: tuple[str, ...] = ()


PCI, EXPRESS = "PCI", "PCI Express"  # kinds of slots

Slot = tuple[int, int]  # number of the bus, and of the slot on it


@dataclasses.dataclass(frozen=True)
class Plug:
    """A device: its element, its type (of a disk, the bus), and its model."""

    what: str
    kind: str
    model: str = ""
    drive: str = ""  # of a disk: disk, lun, cdrom or floppy
    empty: bool = False  # a drive without a medium
    slot: Slot | None = None  # where it is, or shall be


@dataclasses.dataclass(frozen=True)
class Buses:
    """The PCI buses of a running guest that take devices while it runs."""

    slots: t.Mapping[Slot, str]  # all of them, with their kind
    used: t.Mapping[Slot, int]  # by how many devices, on any bus
    express: bool = False  # whether its root is PCI Express, as that of a q35 machine
    scsi: bool = False  # whether it has a controller for SCSI disks
    usb: int | None = None  # free USB ports; None: nobody can tell
    no_usb: bool = False  # it has no USB controller
