# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts about disks of a guest, which of them are its own, the questions to its host, and the answers. Pure."""

from __future__ import annotations

import dataclasses
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import UNFINISHED_SUFFIX
from ansible_collections.corral.virt.plugins.module_utils._storage.model_header import Header
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import (
    EDITED,
    FileIdentity,
    OwnedVolume,
)


@dataclasses.dataclass(frozen=True)
class Owner:
    """A guest on a host, and the paths of the disks that its definition names."""

    name: str
    guest: str  # UUID
    host: str  # UUID
    disks: t.Collection[str] = ()

    def made(self, path: str) -> OwnedVolume:
        """The entry of a disk that this run makes; its identity is added once it is made."""
        return OwnedVolume(path, self.guest, self.host)


NOBODY = Owner("", "", "")


def counted(entries: t.Iterable[OwnedVolume], owner: Owner) -> tuple[str, ...]:
    """Paths of the entries that are not another guest's or another host's."""
    return tuple(one.path for one in entries if one.guest is None or one.is_of(owner.guest, owner.host))


def incomplete(entries: t.Iterable[OwnedVolume], owner: Owner, *, making: t.Collection[str] = ()) -> tuple[str, ...]:
    """Paths of the guest's disks whose entry is from an older version, without those that are being made.

    An entry that came with a migration counts by guest and host: to complete it would be a change in a run that has
    nothing to do.
    """
    return tuple(
        one.path for one in entries if one.guest is None and one.path in owner.disks and one.path not in making
    )


def tells(entries: t.Iterable[OwnedVolume], path: str, found: FileIdentity | None) -> bool:
    """True if the file at a path adds to what its entry says."""
    return bool(found and found.is_known) or any(one.path == path and one.guest is None for one in entries)


def adopted(
    entries: t.Sequence[OwnedVolume],
    owner: Owner,
    files: t.Mapping[str, FileIdentity | None],
    in_use: t.Collection[str],
) -> tuple[OwnedVolume, ...]:
    """The entries, with those completed whose disks only the guest uses.

    `files` maps the paths of incomplete ones to their files: None if unknown, no entry if there is none.
    """

    def completed(one: OwnedVolume) -> OwnedVolume:
        if one.path not in files or one.path in in_use:
            return one
        found = files[one.path]
        return OwnedVolume(one.path, owner.guest, owner.host, found if found and found.is_known else None)

    return tuple(map(completed, entries))


def doubt(entry: OwnedVolume, owner: Owner, found: FileIdentity | None) -> str:
    """Why a recorded disk is not deleted with the guest; empty if it is the guest's own. `found` is the file there."""
    if entry.guest is None:
        adopt = shlex.join(["ansible", "HOST", "-m", "corral.virt.virt_domain", "-a", f"name={owner.name}"])
        return (
            f"its entry is of an older version, and does not tell which file was created for {owner.name}; to have it "
            f"completed before the guest is removed: {adopt}"
        )
    if entry.guest == EDITED:
        return "its entry was edited, as when a definition is copied"
    if entry.guest != owner.guest:
        return f"it was created for the guest with UUID {entry.guest}; this definition is a copy"
    if entry.host != owner.host:
        return f"it was created on the host with UUID {entry.host}, and this definition was brought here by hand"
    if entry.path not in owner.disks:
        return f"{owner.name} does not have it any more"
    if entry.identity and found and not entry.identity.is_same(found):
        return f"another file than the one that was created for {owner.name} has this name"
    return ""


SEED = "-seed.iso"


@dataclasses.dataclass(frozen=True)
class DiskDevice:
    """A disk in the definition: the path of its bytes (empty if it has none), its target in the guest, its format."""

    path: str
    target: str
    volume: tuple[str, str] | None = None  # pool and name, where the definition names them instead of a path
    format: str = ""
    kind: str = "disk"  # or lun, cdrom, floppy


@dataclasses.dataclass(frozen=True)
class Known:
    """What a guest's definition and record say about its disks and seed; empty for a guest that does not exist."""

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
        """The facts from disks and record as read from the definition."""
        devices = {
            name: DiskDevice(
                (disk.get("source") or "").removesuffix(UNFINISHED_SUFFIX),
                disk.get("target") or "",
                (disk["pool"], disk["volume"]) if disk.get("pool") else None,
                disk.get("format") or "",
                disk.get("device") or "disk",
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
        """Paths of the images that were made for the guest."""
        return counted(self.owned, self.owner)

    def entries(self, made: t.Iterable[str], *, without: t.Collection[str] = ()) -> tuple[OwnedVolume, ...]:
        """The entries to record when the images `made` become the guest's; those in `without` are not its own yet."""
        new = dict.fromkeys(path for path in made if path not in self.volumes or path in without)
        kept = [one for one in self.owned if one.path not in without and one.path not in new]
        return (*kept, *map(self.owner.made, new))

    def is_own(self, path: str, found: FileIdentity | None) -> bool:
        """True if the image at the path was made for the guest, as far as the file there shows."""
        entries = [one.identity for one in self.owned if one.path == path]
        return path in self.volumes and all(not (one and found) or one.is_same(found) for one in entries)

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Images that an interrupted run was making.

        One that the running guest has is complete, whatever the record says.
        """
        return tuple(path for path in self.making if path.endswith(SEED) or path not in self.running)


@dataclasses.dataclass(frozen=True)
class SizeOf:
    """Question: how large is the volume at the path, or the one with this pool and name?"""

    path: str
    volume: tuple[str, str] | None = None
    seen_by: tuple[str, str] | None = None  # UUID of the guest that runs with it, and the target that it is there
    opened: bool = True  # False: only the type of its pool is asked for, which may be inactive


@dataclasses.dataclass(frozen=True)
class SiteOf:
    """Question: what exists where a disk would be made, and what is the image, or disk of another guest, that it would
    be made from?
    """

    pool: str | None  # None: that of `copy_of`
    name: str
    image: str | None = None
    copy_of: str | None = None  # its path
    image_pool: str | None = None  # None: `pool`
    thin_pool: str | None = None  # of its volume group; None: that of `copy_of`, if it goes into the same pool


@dataclasses.dataclass(frozen=True)
class VolumeGroup:
    """The LVM volume group of a pool of type logical, on this machine."""

    name: str
    extent_bytes: int
    free_bytes: int

    def rounded(self, size_bytes: int) -> int:
        """The size that a volume gets: whole extents."""
        return -(-size_bytes // self.extent_bytes) * self.extent_bytes


@dataclasses.dataclass(frozen=True)
class ThinPool:
    """A thin pool in a volume group; its volumes take room from it when they are written."""

    name: str
    group: str
    size_bytes: int
    virtual_bytes: int = 0  # of all its volumes
    data_percent: float | None = None  # in use; None: it is not active
    metadata_percent: float | None = None
    zeroes: bool = True  # what it gives out


@dataclasses.dataclass(frozen=True)
class Size:
    """The answer to `SizeOf`."""

    size_bytes: int | None  # None: no active pool has such a volume
    path: str | None = None  # of a volume that the definition names by its pool
    pool_type: str | None = None  # of that pool
    pool_name: str | None = None  # of a logical volume
    group: VolumeGroup | None = None  # of a logical volume
    seen_bytes: int | None = None  # by the running guest, of a logical volume
    thin: ThinPool | None = None  # of a thin volume


@dataclasses.dataclass(frozen=True)
class DiskOrigin:
    """An image or disk to create a disk from, as its host describes it."""

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
    """The answer to `SiteOf`."""

    pool: PoolDirectory
    size_bytes: int | None = None  # of the volume that has the name; None: there is none
    identity: FileIdentity | None = None  # of that, where it is a file of this machine
    origin: DiskOrigin | None = None
    image_pool: str = ""  # where the image was looked for
    group: VolumeGroup | None = None  # of a logical pool; None also where nobody can ask for it
    tags: tuple[str, ...] = ()  # of the logical volume that has the name
    thin: ThinPool | None = None  # that is asked for

    @property
    def pool_name(self) -> str:
        """The name of the pool."""
        return self.pool.name


HostKey = tuple[str, str]  # private and public


@dataclasses.dataclass(frozen=True)
class SeedDisk:
    """Question: what exists where a seed would be written, and which SSH host key does the guest get with it?"""

    pool: str
    name: str
    path: str  # where the guest has its seed already
    ours: bool  # the guest has a seed
    private: str | None = None  # the user's own key


@dataclasses.dataclass(frozen=True)
class Customizing:
    """Question: can this host apply a seed to a disk, and which SSH host key does the guest get with it?"""

    private: str | None = None


@dataclasses.dataclass(frozen=True)
class SeedSite:
    """The answer to `SeedDisk` or `Customizing`."""

    host_key: HostKey
    pool: PoolDirectory | None  # of a seed that the guest does not have yet
    exists: bool  # a volume of that name
    uri: str
    here: bool  # the files of that host are those of this machine
    pool_name: str = ""  # where it is or would be; empty: where it was asked for


Question = t.Union[SizeOf, SiteOf]
Answer = t.Union[Size, Site]
