# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What is known of the disks of a guest, what the host must be asked about them, and its answers."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._model.image import Header
from ansible_collections.corral.virt.plugins.module_utils._plan.pool_files import Pool

__all__ = ["SEED", "UNMADE", "Answer", "Device", "Known", "Origin", "Question", "Site", "SiteOf", "Size", "SizeOf"]

UNMADE = ".making"  # after the path of a disk that is not complete: libvirt finds no such file, and does not start the guest
SEED = "-seed.iso"


@dataclasses.dataclass(frozen=True)
class Device:
    """A disk of the definition: the path of its bytes (empty where that is none), and where the guest has it."""

    path: str
    target: str = ""


@dataclasses.dataclass(frozen=True)
class Known:
    """What a guest's definition and record tell of its disks; of a guest that does not exist, nothing."""

    devices: t.Mapping[str, Device] = dataclasses.field(default_factory=dict)  # by name and by target
    volumes: tuple[str, ...] = ()  # paths of images that were made for it
    making: tuple[str, ...] = ()  # paths of those that an interrupted run was making
    running: frozenset[str] = frozenset()  # paths that the running guest has
    there: bool = False  # the guest
    active: bool = False

    @classmethod
    def of(
        cls,
        disks: t.Mapping[str, t.Mapping[str, t.Any]],
        record: t.Mapping[str, t.Any],
        *,
        running: t.Collection[str] = (),
        active: bool = False,
    ) -> Known:
        """The same of disks and record as they are read from the definition."""
        devices = {name: Device((disk.get("source") or "").removesuffix(UNMADE), disk.get("target") or "") for name, disk in disks.items()}
        volumes, making = (tuple(record.get(kind) or ()) for kind in ("volumes", "making"))
        return cls(devices, volumes, making, frozenset(running), there=True, active=active)

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Images that an interrupted run was making; one that the running guest has is kept as it is, whatever the record says."""
        return tuple(path for path in self.making if path.endswith(SEED) or path not in self.running)


@dataclasses.dataclass(frozen=True)
class SizeOf:
    """How large is the volume there?"""

    path: str


@dataclasses.dataclass(frozen=True)
class SiteOf:
    """What is there where a disk would be made, and what is the image that it would be made from?"""

    pool: str
    name: str
    image: str | None = None


@dataclasses.dataclass(frozen=True)
class Size:
    """The answer to the one."""

    size_bytes: int | None  # None: no active pool has such a volume


@dataclasses.dataclass(frozen=True)
class Origin:
    """An image as its host shows it."""

    path: str  # as its pool names it
    content: str  # the file behind that name
    format: str  # in libvirt's words, which reads it from the first bytes
    capacity_bytes: int
    header: Header  # the first bytes of the content, or what libvirt says of them where they cannot be read
    managed: bool = False  # all that it stands on was brought by virt_image
    guest: str | None = None  # whose disk it is
    uri: str = "qemu:///system"  # how the host is reached
    here: bool = True  # its files are those of this machine


@dataclasses.dataclass(frozen=True)
class Site:
    """The answer to the other."""

    pool: Pool
    size_bytes: int | None = None  # of the volume that has the name; None: there is none
    origin: Origin | None = None


Question = t.Union[SizeOf, SiteOf]
Answer = t.Union[Size, Site]
