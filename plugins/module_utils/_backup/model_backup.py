# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Points of a repository: what is in each, and what it stands on.

A point is a folder `UUID/ID` with a qcow2 for each disk, the guest's definition and other state, and `manifest.json`,
which is written last. A qcow2 that holds only what was changed since another point names that point's file as its
backing file, relative to itself, so that qemu-img reads each point without this collection.
"""

from __future__ import annotations

import dataclasses
import json
import re
import typing as t

MARKER, MANIFEST, DEFINITION, CHECKPOINT = "corral-backup.json", "manifest.json", "domain.xml", "checkpoint.xml"
PROOF = "proof.json"  # in the folder of a point: how its last restore to prove it went
PIN = "instant-"  # in the folder of a point, with a UUID: the guest that runs on the point
PART = ".part"  # ending of the folder of a point that is being made
UNREADABLE = "missing or unreadable"  # what damages say of a file that may be whole
VERSION = 1  # of manifests
_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")
_PROOF_NAME = re.compile(r"corral-proof-[0-9a-f]{8}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclasses.dataclass(frozen=True)
class BackupDisk:
    """A disk in a point."""

    target: str
    size_bytes: int  # as the guest sees it
    source: str  # the file or device then; empty: neither
    format: str  # of that
    reason: str = ""  # why all of it was copied; empty: only what was changed since `parent`
    parent: str | None = None  # the ID of the point that it stands on
    inode: int = 0  # of the source
    written_ns: int = 0  # when the source of a guest that is off was written last
    stored_bytes: int = 0
    sha256: str = ""

    @property
    def file(self) -> str:
        """The name of its file in the folder of the point."""
        return f"{self.target}.qcow2"


@dataclasses.dataclass(frozen=True)
class BackupPoint:
    """One moment of a guest."""

    id: str  # its time in UTC, and a random word
    guest: str  # its name then
    uuid: str
    created_s: int
    host: str  # the UUID of the host then
    disks: tuple[BackupDisk, ...] = ()
    checkpoint: str | None = None  # libvirt's, from which on the disks' bitmaps tell what is changed
    running: bool = True
    quiesced: bool = False
    files: tuple[tuple[str, str], ...] = ()  # names of the other files in the folder, each with its SHA-256
    states: tuple[tuple[str, str], ...] = ()  # where UEFI variables, TPM state and seed were, each with its file's name

    @property
    def name(self) -> str:
        """The ID of the point, as the retention names it."""
        return self.id

    @property
    def parents(self) -> set[str]:
        """IDs of the points that it stands on."""
        return {disk.parent for disk in self.disks if disk.parent}

    @property
    def stored_bytes(self) -> int:
        """The bytes that its disks take."""
        return sum(disk.stored_bytes for disk in self.disks)

    def disk(self, target: str) -> BackupDisk | None:
        """The disk with this target."""
        return next((disk for disk in self.disks if disk.target == target), None)


@dataclasses.dataclass(frozen=True)
class Proof:
    """How the last restore of a point went that was to prove it."""

    ended_s: int
    host: str  # the UUID of the host
    evidence: str = ""  # agent, login or probe; empty: the backup could not be restored
    seconds: float = 0.0  # from the start of the guest to its evidence
    why: str = ""  # why it is no proof; empty: it is one

    @property
    def ok(self) -> bool:
        """True if the restored guest has shown that it works."""
        return not self.why


@dataclasses.dataclass(frozen=True)
class Pin:
    """A guest that runs on a point, until all of it is copied."""

    guest: str  # its name
    uuid: str
    host: str  # the UUID of its host
    since_s: int

    @property
    def file(self) -> str:
        """The name of its file in the folder of the point."""
        return f"{PIN}{self.uuid}.json"


class BrokenPoint(t.NamedTuple):
    """A folder of a point that cannot be used."""

    id: str
    uuid: str
    why: str
    parents: frozenset[str] = frozenset()  # IDs of the points that it stands on, if its manifest can be read


class Repository(t.NamedTuple):
    """What a directory with backups holds of some guests, oldest points first."""

    id: str  # empty: it is new
    points: tuple[BackupPoint, ...] = ()
    broken: tuple[BrokenPoint, ...] = ()
    unfinished: tuple[BackupPoint, ...] = ()  # whose folders an interrupted run has left
    proofs: t.Mapping[str, Proof] = {}  # by the ID of the point
    pins: t.Mapping[str, tuple[Pin, ...]] = {}  # the same

    def of(self, uuid: str) -> list[BackupPoint]:
        """The points of one guest."""
        return [point for point in self.points if point.uuid == uuid]


class RepositoryFacts(t.NamedTuple):
    """What a path is, that may be a repository."""

    is_directory: bool
    marker: str | None = None  # the content of its marker
    others: tuple[str, ...] = ()  # names in it, if it has no marker
    closed: str | None = None  # the directory on the way that QEMU's user cannot pass
    device: int = 0  # the filesystem
    is_open: bool = False  # other users than its owner may put files there
    closes_itself: bool = False  # `closed` is the directory itself


def children(points: t.Iterable[BackupPoint | BrokenPoint], ident: str) -> list[BackupPoint | BrokenPoint]:
    """The points that stand right on one, also damaged ones."""
    return [point for point in points if ident in point.parents]


def chains(points: t.Sequence[BackupPoint]) -> dict[tuple[str, str], int]:
    """How many points each disk of each point stands on, by ID and target; -1 if one of them is missing."""
    by_id, found = {point.id: point for point in points}, dict[tuple[str, str], int]()
    for point in sorted(points, key=lambda one: one.created_s):
        for disk in point.disks:
            depth, below = 0, disk
            seen = {point.id}
            while below.parent:
                parent = by_id.get(below.parent)
                under = parent.disk(disk.target) if parent and parent.id not in seen else None
                if parent is None or under is None:
                    depth = -1
                    break
                seen.add(parent.id)
                depth, below = depth + 1, under
            found[point.id, disk.target] = depth
    return found


def needed(points: t.Iterable[BackupPoint], ident: str) -> list[BackupPoint]:
    """A point and all that it stands on; those that are missing are left out."""
    by_id, found, next_ones = {point.id: point for point in points}, dict[str, BackupPoint](), {ident}
    while next_ones:
        found.update({one: by_id[one] for one in next_ones if one in by_id})
        next_ones = {parent for one in next_ones if one in by_id for parent in by_id[one].parents} - found.keys()
    return list(found.values())


def text_of(record: BackupPoint | Proof | Pin) -> str:
    """The content of the point's file."""
    return json.dumps({"version": VERSION, **dataclasses.asdict(record)}, indent=2, sort_keys=True) + "\n"


def read_pin(content: str, uuid: str) -> Pin:
    """The pin in the file of the guest with this UUID; one that cannot be read holds for ever, as that of an unknown
    host.
    """
    try:
        told = json.loads(content)
        return Pin(str(told["guest"]), uuid, str(told["host"]), int(told["since_s"]))
    except (ValueError, TypeError, KeyError):
        return Pin(uuid, uuid, "", 0)


def proof_name(uuid: str) -> str:
    """The name of the guest that is made to prove a backup of the guest with this UUID."""
    return f"corral-proof-{uuid[:8]}"


def is_proof_name(name: str) -> bool:
    """True if a guest of this name was made to prove a backup."""
    return bool(_PROOF_NAME.fullmatch(name))


def read_proof(content: str) -> Proof | None:
    """The proof in a file; None if it cannot be read, so that the point counts as not proven."""
    try:
        told = json.loads(content)
        known = told.pop("version") == VERSION
        texts = {key: str(told[key]) for key in ("host", "evidence", "why")}
        return Proof(ended_s=int(told["ended_s"]), seconds=float(told["seconds"]), **texts) if known else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def read_manifest(content: str, folder: str) -> BackupPoint | str:
    """The point of a manifest in the folder of this name; or why it cannot be read."""
    try:
        told = json.loads(content)
        if told.pop("version") != VERSION:
            return "its manifest is of another version of the collection; read it with that version"
        disks = tuple(BackupDisk(**disk) for disk in told.pop("disks"))
        files, states = (tuple((name, value) for name, value in told.pop(key)) for key in ("files", "states"))
        point = BackupPoint(**told, disks=disks, files=files, states=states)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return f"its manifest is damaged ({error})"
    names = [point.id, *point.parents]
    files_named = [*(disk.file for disk in disks), *(name for name, _sum in files), *(name for _at, name in states)]
    if not all(_ID.fullmatch(name) for name in names) or not all(_FILE.fullmatch(name) for name in files_named):
        return "its manifest names files outside of the repository"
    if folder.removesuffix(PART) != point.id:
        return f"its manifest is that of point {point.id}"
    return point
