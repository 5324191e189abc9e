# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What is known of the disks of a guest, what the host must be asked about them, and its answers."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import UNFINISHED_SUFFIX
from ansible_collections.corral.virt.plugins.module_utils._storage.model_header import Header
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_record import NOBODY, Owner, counted
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity, OwnedVolume

__all__ = [
    "SEED",
    "Answer",
    "Customizing",
    "DiskDevice",
    "DiskOrigin",
    "HostKey",
    "Known",
    "Question",
    "SeedDisk",
    "SeedSite",
    "Site",
    "SiteOf",
    "Size",
    "SizeOf",
]

SEED = "-seed.iso"


@dataclasses.dataclass(frozen=True)
class DiskDevice:
    """A disk of the definition: the path of its bytes (empty where that is none), and where the guest has it."""

    path: str
    target: str
    volume: tuple[str, str] | None = None  # pool and name, where the definition names them instead of a path


@dataclasses.dataclass(frozen=True)
class Known:
    """What a guest's definition and record tell of its disks and seed; of a guest that does not exist, nothing."""

    devices: t.Mapping[str, DiskDevice] = dataclasses.field(default_factory=dict)  # by name and by target
    owned: tuple[OwnedVolume, ...] = ()  # entries of images that were made for it, and of others that do not count
    making: tuple[str, ...] = ()  # paths of those that an interrupted run was making
    running: frozenset[str] = frozenset()  # paths that the running guest has
    seed: str | None = None  # digest of what it was seeded with
    active: bool = False
    owner: Owner = NOBODY
    adopted: bool = False  # whether these tell more than the record

    @classmethod
    def of(
        cls,
        disks: t.Mapping[str, t.Mapping[str, t.Any]],
        record: t.Mapping[str, t.Any],
        *,
        running: t.Collection[str],
        active: bool,
        owner: Owner = NOBODY,
        owned: t.Sequence[OwnedVolume] | None = None,
    ) -> Known:
        """The same of disks and record as they are read from the definition."""
        devices = {
            name: DiskDevice(
                (disk.get("source") or "").removesuffix(UNFINISHED_SUFFIX),
                disk.get("target") or "",
                (disk["pool"], disk["volume"]) if disk.get("pool") else None,
            )
            for name, disk in disks.items()
        }
        told, making = (tuple(record.get(kind) or ()) for kind in ("volumes", "making"))
        entries = told if owned is None else tuple(owned)
        return cls(
            devices,
            entries,
            making,
            frozenset(running),
            record.get("seed"),
            active=active,
            owner=owner,
            adopted=entries != told,
        )

    @property
    def volumes(self) -> tuple[str, ...]:
        """Paths of the images that were made for it."""
        return counted(self.owned, self.owner)

    def entries(self, made: t.Iterable[str], *, without: t.Collection[str] = ()) -> tuple[OwnedVolume, ...]:
        """What is recorded when the images with these paths are made for it, and those others are not its own yet."""
        new = dict.fromkeys(path for path in made if path not in self.volumes or path in without)
        kept = [one for one in self.owned if one.path not in without and one.path not in new]
        return (*kept, *map(self.owner.made, new))

    def is_own(self, path: str, found: FileIdentity | None) -> bool:
        """Whether the image with that path was made for it, as far as the file that is there tells."""
        entries = [one.identity for one in self.owned if one.path == path]
        return path in self.volumes and all(not (one and found) or one.is_same(found) for one in entries)

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Images that an interrupted run was making.

        One that the running guest has is kept as it is, whatever the record says.
        """
        return tuple(path for path in self.making if path.endswith(SEED) or path not in self.running)


@dataclasses.dataclass(frozen=True)
class SizeOf:
    """How large is the volume there, or the one of that pool and name?"""

    path: str
    volume: tuple[str, str] | None = None


@dataclasses.dataclass(frozen=True)
class SiteOf:
    """What is there where a disk would be made, and what is the image, or disk of another guest, that it would be
    made from?
    """

    pool: str | None  # None: that of `copy_of`
    name: str
    image: str | None = None
    copy_of: str | None = None  # its path


@dataclasses.dataclass(frozen=True)
class Size:
    """The answer to the one."""

    size_bytes: int | None  # None: no active pool has such a volume
    path: str | None = None  # of a volume that the definition names by its pool


@dataclasses.dataclass(frozen=True)
class DiskOrigin:
    """An image as its host shows it."""

    path: str  # as its pool names it
    content: str  # the file behind that name
    format: str  # in libvirt's words, which reads it from the first bytes
    capacity_bytes: int
    header: Header  # the first bytes of the content, or what libvirt says of them where they cannot be read
    managed: bool  # all that it stands on was brought by virt_image
    guest: str | None  # whose disk it is
    uri: str  # how the host is reached
    here: bool  # its files are those of this machine
    written: bool  # a process has it open for writing


@dataclasses.dataclass(frozen=True)
class Site:
    """The answer to the other."""

    pool: PoolDirectory
    size_bytes: int | None = None  # of the volume that has the name; None: there is none
    identity: FileIdentity | None = None  # of that, where it is a file of this machine
    origin: DiskOrigin | None = None


HostKey = tuple[str, str]  # private and public


@dataclasses.dataclass(frozen=True)
class SeedDisk:
    """What is there where a seed would be written, and which SSH host key does the guest get with it?"""

    pool: str
    name: str
    path: str  # where the guest has its seed already
    ours: bool  # the guest has a seed
    private: str | None = None  # the user's own key


@dataclasses.dataclass(frozen=True)
class Customizing:
    """Can this host apply a seed to a disk, and which SSH host key does the guest get with it?"""

    private: str | None = None


@dataclasses.dataclass(frozen=True)
class SeedSite:
    """The answer to either."""

    host_key: HostKey
    pool: PoolDirectory | None  # of a seed that the guest does not have yet
    exists: bool  # a volume of that name
    uri: str
    here: bool  # the files of that host are those of this machine


Question = t.Union[SizeOf, SiteOf]
Answer = t.Union[Size, Site]
