# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest that migrates: the requested move, the facts of both hosts, and how each disk is transferred."""

from __future__ import annotations

import dataclasses
import typing as t
import urllib.parse

from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Volume
from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import Snapshot, SnapshotRecord
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import LOGICAL, FileIdentity

SHARED, DELTA, FULL, COPY = "shared", "delta", "full", "copy"
COPIED = (DELTA, FULL)  # by QEMU, while the guest writes


@dataclasses.dataclass(frozen=True)
class Pool:
    """An active storage pool of the destination that keeps its volumes in a directory, or is a volume group."""

    name: str
    path: str
    available_bytes: int
    capacity_bytes: int = 0
    logical: bool = False  # its volumes are logical volumes, below /dev


@dataclasses.dataclass(frozen=True)
class MigrationHost:
    """The facts about one host that a preflight needs."""

    name: str
    uuid: str
    arch: str
    libvirt_version: int  # 9000000 is 9.0.0
    qemu_version: int
    memory_free_mib: int
    cpu_xml: str  # the host's own processor, as its capabilities have it
    machines: tuple[str, ...]
    virt_types: tuple[str, ...]
    guests: t.Mapping[str, tuple[str, str]]  # name -> (uuid, state)
    pools: tuple[Pool, ...] = ()
    links: frozenset[str] | None = None  # network interfaces, bridges among them; None: not known
    unusable_pools: t.Mapping[str, str] = dataclasses.field(default_factory=dict)  # name -> why no disk is copied there
    maintenance: str | None = None  # the reason, while it takes no guests
    emulators: tuple[str, ...] = ()  # programs that libvirt knows to be there


@dataclasses.dataclass(frozen=True)
class MigratingGuest:
    """The facts about the guest that a preflight needs."""

    name: str
    uuid: str
    state: str
    memory_mib: int
    machine: str
    virt_type: str
    cpu_mode: str = ""
    bridges: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()  # of the host, given to the guest: they stay behind
    local_state: tuple[
        tuple[str, str | None], ...
    ] = ()  # what it writes beside its disks; shared storage that holds it
    managed_state: tuple[str, ...] = ()  # managed_save, snapshots, checkpoints
    backups: tuple[str, ...] = ()  # names of its checkpoints, if all of them are of our backups
    snapshots: tuple[Snapshot, ...] = ()
    snapshot_records: tuple[SnapshotRecord, ...] = ()  # what the collection records of them
    job: str = ""  # what libvirt is at work on
    held: str = ""  # the remedy, if it runs on a backup


@dataclasses.dataclass(frozen=True)
class DiskMove:
    """How one disk gets to the destination.

    `shared`: it is there already. `delta`: its base is there, only its own clusters are copied. `full`: all is copied.
    `copy`: nobody writes to it (seed, CD-ROM, any disk of a guest that is off), so it is copied as a file beforehand.
    """

    target: str
    path: str
    how: str
    why: str
    volume: Volume | None = None  # what is made on the destination
    bytes_to_move: int = 0
    room_bytes: int = 0  # it will take on the destination
    base: str | None = None  # an image of virt_image that the destination lacks
    flatten: bool = False  # its base is not there, so all of it must travel
    replace: bool = False  # an earlier run of ours left something there
    delete_source: bool = True  # after the guest has arrived
    stays_on: str = ""  # the kind of shared filesystem where the source's copy stays
    vouched: bool = False  # only the user says that it is shared: libvirt would not move it

    @property
    def dest_path(self) -> str:
        """The path of the disk on the destination."""
        return self.volume.path if self.volume else self.path


class SavedSnapshot(t.NamedTuple):
    """A snapshot as libvirt keeps it."""

    name: str
    xml: str  # with secrets: it is never shown
    current: bool  # the guest's disks stand on it


@dataclasses.dataclass(frozen=True)
class Made:
    """A file that a migration made on the destination, as the guest's record holds it: its phase and how to recognise
    it.
    """

    phase: str
    size_bytes: int  # of the disk, or of the file
    changed: str  # when, in the words of the destination; empty while it is not known
    path: str
    # random, in the header of a qcow2, or the UUID of a logical volume: whoever replaces it does not have that
    mark: str = ""
    origin: str = ""  # path of the disk on the source, where it is another

    MAKING: t.ClassVar[str] = "making"  # asked for: libvirt makes it only where nothing is
    MADE: t.ClassVar[str] = "made"  # and nobody wrote to it since
    COPYING: t.ClassVar[str] = "copying"  # made, and filled by us: it is what the file on the source begins with
    OPEN: t.ClassVar[str] = "open"  # made, and written to by QEMU: only its mark tells

    def __str__(self) -> str:
        known = f"{self.mark or '-'}:{urllib.parse.quote(self.origin)}" if self.origin else self.mark or "-"
        return f"{self.phase} {self.size_bytes} {self.changed or '-'} {known} {self.path}"

    @classmethod
    def parse(cls, text: str) -> Made:
        """The entry of a record; a path alone, from earlier versions, was only planned."""
        if text.startswith("/"):
            return cls(cls.MADE, -1, "", text)
        phase, size, changed, rest = text.split(" ", 3)
        known, path = ("", rest) if rest.startswith("/") else rest.split(" ", 1)  # earlier versions knew no mark
        mark, _colon, origin = known.partition(":")
        return cls(phase, int(size), changed.strip("-"), path, mark.strip("-"), urllib.parse.unquote(origin))

    @property
    def is_volume(self) -> bool:
        """True if it is a logical volume."""
        return self.path.startswith("/dev/")

    @property
    def volume(self) -> FileIdentity | None:
        """The identity of a logical volume; None of a file, and of a volume that is not known to be made."""
        known = self.is_volume and self.mark
        return FileIdentity(0, mark=LOGICAL + self.mark.replace("-", "")) if known else None

    @property
    def source_path(self) -> str:
        """The path of the disk on the source."""
        return self.origin or self.path


@dataclasses.dataclass(frozen=True)
class LeftDisk:
    """A disk or file with UEFI variables to delete on the source after the guest has arrived, as recorded."""

    path: str
    identity: FileIdentity | None = None  # what file it was when it was planned

    def __str__(self) -> str:
        known = self.identity
        return f"{known.inode} {known.born_ns or '-'} {known.mark or '-'} {self.path}" if known else self.path

    @classmethod
    def parse(cls, text: str) -> LeftDisk:
        """The entry of a record; earlier versions wrote the path alone."""
        if text.startswith("/"):
            return cls(text)
        inode, born, mark, path = text.split(" ", 3)
        return cls(path, FileIdentity(int(inode), None if born == "-" else int(born), mark.strip("-") or None))


@dataclasses.dataclass(frozen=True)
class Observation:
    """The states of one guest, by its UUID, on both hosts; other guests of its name do not count.

    States: running, paused, shutdown, crashed, absent, unreachable, unknown; postcopy (of the source: a part of it is
    here) and migrated (off, sent away); of the destination also incoming (not all of it is there) and reserved (nobody
    can start it).
    """

    source: str
    dest: str
    was_paused: bool = False  # its owner wants it so, since before the move or on the way
    job_active: bool = False  # libvirt is at work on it on the source
    # it was let run on the destination after it had ended on the source, and nobody wrote to its disks here since
    superseded: bool = False
    complete: bool = False  # after a post-copy: all its memory is on the destination, where it runs
    # libvirt may change the owner or the label of disks that the destination uses, if it ends the copy on the source
    takes_back: bool = False
    begun: str = "here"  # a move of it from here: none, here (to this destination), elsewhere
    again: bool = False  # it is looked at by a run that did not send it
    same_host: bool = False  # both ends are one


@dataclasses.dataclass(frozen=True)
class Tuning:
    """How a running guest is sent to the destination."""

    transport: str = "tls"
    bandwidth_mib_s: int | None = None
    max_downtime_ms: int | None = None
    auto_converge: bool = True
    postcopy: bool = False
    postcopy_after_s: int | None = None
    postcopy_after_passes: int | None = None
    parallel: int | None = None  # connections
    compression: tuple[str, ...] = ()
    schedule: str | None = None
    timeout_s: int = 1800
    timeout_action: str = "abort"
    stall_timeout_s: int = 120


@dataclasses.dataclass(frozen=True)
class Move:
    """The requested move of a guest, and what follows from the request."""

    guest: str  # its name, for people
    uuid: str  # who it is: both ends are asked for this, never for the name
    dest: str
    dest_uri: str
    tuning: Tuning = Tuning()
    source_uuid: str = ""
    seen: str = ""  # fingerprint of the definition that was planned with
    active: bool = True  # it runs or is paused; else it is shut off
    paused: bool = False  # the guest was paused before, and stays so
    autostart: bool = False
    keep_source_storage: bool = False
    reserve_bytes: int | None = None  # of room in the destination's pools that stays free; None: as always
    disks: tuple[DiskMove, ...] = ()
    refused: tuple[str, ...] = ()  # why others cannot be transferred
    files: tuple[str, ...] = ()  # beside the disks of a guest that is off: UEFI variables, TPM state
    variables: tuple[LeftDisk, ...] = ()  # UEFI variables of a running guest: QEMU sends them, and the file is left
    kept: tuple[tuple[str, str], ...] = ()  # those of them that stay on the source, and why
    firmware: tuple[tuple[str, str], ...] = ()  # paths on the source and on the destination, where they differ
    snapshots: tuple[str, ...] = ()  # names of the guest's snapshots, parents first
    snapshots_seen: str = ""  # fingerprint of their documents
    backups: tuple[str, ...] = ()  # names of the checkpoints of our backups, whose documents are in the repository

    @property
    def renamed(self) -> dict[str, str]:
        """Paths of disks here that are others on the destination, with these."""
        return {disk.path: disk.dest_path for disk in self.disks if disk.path != disk.dest_path}

    @property
    def mode(self) -> str:
        """live, cold (a guest that is off, with its disks) or offline (its definition alone)."""
        if self.active:
            return "live"
        return "cold" if self.files or any(disk.volume for disk in self.disks) else "offline"
