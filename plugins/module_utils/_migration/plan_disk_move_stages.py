# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide which questions about a migrating guest's disk the hosts must answer, and if its base there is usable. Pure.

From `DiskMoveFacts` the stages reach what is known of the disk, or the next open question; no question is asked whose
answer decides nothing.
"""

from __future__ import annotations

import dataclasses
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.questions import Answers, OpenQuestion, asks
from ansible_collections.corral.virt.plugins.module_utils._core.units import is_content
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Manifest
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import Pool
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migrating_disk import (
    ChainFile,
    Described,
    MigratingDisk,
    VolumeFile,
    volume_of,
)

__all__ = [
    "DigestThere",
    "DiskMoveFacts",
    "FindDataFilesHere",
    "FindFileBesideDisks",
    "FindFileHere",
    "FindFileThere",
    "FindImportThere",
    "FindNewFileHere",
    "FindRelabelling",
    "FindSharedFileThere",
    "FindSharedFilesystem",
    "FindVolumePathHere",
    "FindVolumePathThere",
    "ImportedImage",
    "IsTakenThere",
    "SeenDisk",
    "TakenBackFacts",
    "VariablesFacts",
    "as_defined",
    "disk",
    "taken_back",
    "why_kept",
]

_CACHED_S = 60  # a client of a shared filesystem may tell a file's time so late
_DEPTH = 64  # files below a disk
_CLOCK_S = 2  # between a file's time and that in its manifest


@dataclasses.dataclass(frozen=True)
class ImportedImage:
    """An image on the destination, with its manifest."""

    manifest: Manifest
    modified_s: float
    changed_ns: int
    physical_bytes: int
    identity: tuple[t.Any, ...]  # by which a run knows again what it has verified
    verified: bool  # by this run


@dataclasses.dataclass(frozen=True)
class _OfPath:
    path: str


@dataclasses.dataclass(frozen=True)
class _OfVolume:
    pool: str
    name: str


@dataclasses.dataclass(frozen=True)
class _OfPathInPool:
    pool: str
    path: str


class FindSharedFilesystem(_OfPath, OpenQuestion[t.Optional[str]]):
    """Question: which shared filesystem, or directory that qemu.conf declares shared, holds a path?"""


@dataclasses.dataclass(frozen=True)
class FindRelabelling(OpenQuestion[tuple[str, ...]]):
    """Question: what does the source's libvirt do to a guest's disks when the guest ends there?"""


class IsTakenThere(_OfVolume, OpenQuestion[bool]):
    """Question: does a pool of the destination have a volume of this name?"""


class FindFileHere(_OfPath, OpenQuestion[t.Optional[VolumeFile]]):
    """Question: which volume of the source is at this path?"""


class FindNewFileHere(_OfPath, OpenQuestion[t.Optional[VolumeFile]]):
    """Question: which volume of the source is at this path after its pool was refreshed?"""


class FindFileThere(_OfPath, OpenQuestion[t.Optional[VolumeFile]]):
    """Question: which volume of the destination is at this path?"""


@dataclasses.dataclass(frozen=True)
class FindFileBesideDisks(OpenQuestion[tuple[bool, t.Optional[VolumeFile]]]):
    """Question: can libvirt of the source or destination (`there`) list the directory of a path, and what is at the
    path?
    """

    path: str
    there: bool


class FindDataFilesHere(_OfPath, OpenQuestion[tuple[str, ...]]):
    """Question: which other files hold the content of an image of the source?"""


class FindSharedFileThere(_OfPathInPool, OpenQuestion[t.Optional[VolumeFile]]):
    """Question: what is at the path of a shared disk in a pool of the destination?"""


class FindVolumePathHere(_OfVolume, OpenQuestion[t.Optional[str]]):
    """Question: what is the path of a volume of the source? In a pool with a directory, the path that it would have."""


class FindVolumePathThere(_OfVolume, OpenQuestion[t.Optional[str]]):
    """Question: what is the path of a volume in an active pool of the destination, which is refreshed first?"""


class FindImportThere(_OfPathInPool, OpenQuestion[t.Optional[ImportedImage]]):
    """Question: what does the manifest of an image in a pool of the destination say? None if either is missing."""


class DigestThere(_OfVolume, OpenQuestion[str]):
    """Question: what is the SHA-256 of a volume of the destination? The volume is read in full."""


@dataclasses.dataclass(frozen=True)
class DiskMoveFacts:
    """A disk as the guest's definition has it, and the destination's pools."""

    disk: MigratingDisk
    raw: bool
    pools: t.Mapping[str, Pool]  # by directory
    ours: t.Collection[str]  # paths that an earlier run of this move made there
    active: bool  # whether the guest runs
    answers: Answers = dataclasses.field(default_factory=Answers)

    def pool(self, path: str) -> Pool | None:
        """The destination's pool for the directory of a file."""
        return self.pools.get(os.path.normpath(os.path.dirname(path)))


@dataclasses.dataclass(frozen=True)
class SeenDisk:
    """What is known of the disk, and the identity of the base that this run has verified for it."""

    disk: MigratingDisk
    verified: tuple[tuple[t.Any, ...], ...] = ()


@asks
def disk(facts: DiskMoveFacts) -> SeenDisk:
    """What both hosts have of a disk; for one that stays where it is, neither file nor base."""
    known, answers = _located(facts.disk, facts.answers), facts.answers
    path, mode = known.path, known.mode
    if known.network or not path:
        return SeenDisk(known)
    shared_on = answers.of(FindSharedFilesystem(path))
    known = dataclasses.replace(known, shared_on=shared_on)
    if mode == "shared" and shared_on is None and not _is_device(path):
        relabelled = answers.of(FindRelabelling())
        known = dataclasses.replace(known, vouched=True, relabelled=" and ".join(relabelled))
    pool = facts.pool(path)
    if mode == "shared" or (mode == "auto" and shared_on):
        data, elsewhere = _local_data(facts, known), _elsewhere(facts, known, pool)
        return SeenDisk(dataclasses.replace(known, data_files=data, elsewhere=elsewhere))
    if pool is None:
        return SeenDisk(known)
    taken = answers.of(IsTakenThere(pool.name, known.name))
    file = answers.of(FindFileHere(path)) or answers.of(FindNewFileHere(path))
    file = as_defined(file, raw=facts.raw)
    data = answers.of(FindDataFilesHere(path)) if file and file.format != "raw" else ()
    known = dataclasses.replace(known, pool=pool, taken=taken, ours=path in facts.ours, file=file, data_files=data)
    return SeenDisk(known) if file is None or not file.backing_path else _on_base(facts, known, file.backing_path)


def _local_data(facts: DiskMoveFacts, known: MigratingDisk) -> tuple[str, ...]:
    """Data files of a disk on shared storage that are not on shared storage themselves."""
    answers = facts.answers
    if facts.raw or not known.shared_on or _is_device(known.path):
        return ()
    data = [path for path in answers.of(FindDataFilesHere(known.path)) if os.path.isabs(path)]
    return tuple(path for path in data if not answers.of(FindSharedFilesystem(path)))


def _elsewhere(facts: DiskMoveFacts, known: MigratingDisk, pool: Pool | None) -> str | None:
    """Why a disk on shared storage is not the destination's file at its path; None as far as its pool tells."""
    answers = facts.answers
    if pool is None or _is_device(known.path):
        return None
    here = as_defined(answers.of(FindFileHere(known.path)), raw=facts.raw)
    there = as_defined(answers.of(FindSharedFileThere(pool.name, known.path)), raw=facts.raw)
    if there is None:
        return f"pool {pool.name} of the destination does not have it"
    if here and not _may_be_one(here, there, fixed=known.fixed, active=facts.active):
        return f"pool {pool.name} of the destination has another file there"
    return None


def _may_be_one(here: VolumeFile, there: VolumeFile, *, fixed: bool, active: bool) -> bool:
    """True if both hosts may see one file. A running guest writes to it between two looks; copies of a file that nobody
    writes to are as good.
    """
    said = [(one.format, one.capacity_bytes, one.backing_path) for one in (here, there)]
    if said[0] != said[1] or (here.physical_bytes != there.physical_bytes and not active):
        return False
    later_s = there.modified_s - here.modified_s
    return fixed or (later_s >= -_CACHED_S and (active or later_s <= _CACHED_S))


def _located(known: MigratingDisk, answers: Answers) -> MigratingDisk:
    """The disk with the path of its volume on both hosts; volumes of a network pool have none."""
    if known.volume is None:
        return known
    path = answers.of(FindVolumePathHere(*known.volume)) or ""
    there = answers.of(FindVolumePathThere(*known.volume)) if path else None
    network = f"pool {known.volume[0]}" if path and not os.path.isabs(path) else None
    return dataclasses.replace(known, path=path, volume_there=there, network=network)


@dataclasses.dataclass(frozen=True)
class TakenBackFacts:
    """The disks of a guest on the source."""

    disks: tuple[Described, ...]
    answers: Answers = dataclasses.field(default_factory=Answers)


@asks
def taken_back(facts: TakenBackFacts) -> tuple[str, ...]:
    """Shared disks that libvirt may take from the destination if it ends the guest's copy on the source.

    It spares them only at the end of a migration that succeeded (VIR_QEMU_PROCESS_STOP_MIGRATED). Disks that are
    read-only or shareable are never taken.
    """
    written = [disk for disk in facts.disks if not (disk.get("readonly") or disk.get("shareable"))]
    files = [path for path in _paths(written, facts.answers) if not _is_device(path)]
    shared = tuple(path for path in files if facts.answers.of(FindSharedFilesystem(path)))
    return shared if shared and facts.answers.of(FindRelabelling()) else ()


@dataclasses.dataclass(frozen=True)
class VariablesFacts:
    """The file with the UEFI variables of a running guest."""

    path: str
    answers: Answers = dataclasses.field(default_factory=Answers)


@asks
def why_kept(facts: VariablesFacts) -> str:
    """Why the file stays on the source when the guest has left; empty if it is deleted.

    The guest keeps using the file if both hosts see the same one. That a filesystem is shared is not always known, so
    what the destination has at that path before the guest arrives is compared, as for a disk.
    """
    path, answers = facts.path, facts.answers
    if shared_on := answers.of(FindSharedFilesystem(path)):
        return f"it is on shared storage ({shared_on})"
    is_seen, there = answers.of(FindFileBesideDisks(path, there=True))
    if not is_seen:
        return "libvirt cannot tell whether the destination has the same file; remove it if it has not"
    if there is None:
        return ""
    is_seen, here = answers.of(FindFileBesideDisks(path, there=False))
    if is_seen and here and not _may_be_one(here, there, fixed=False, active=True):
        return ""
    return "the destination already had a file there, which may be the same one; remove it if it is not"


def _paths(disks: t.Iterable[Described], answers: Answers) -> t.Iterator[str]:
    """Paths of disks that are files, block devices, or volumes of these kinds."""
    for disk in disks:
        volume = volume_of(disk)
        path = answers.of(FindVolumePathHere(*volume)) if volume else disk.get("source")
        if path and os.path.isabs(path) and disk["type"] != "network":
            yield path


def _is_device(path: str) -> bool:
    return path.startswith("/dev/")


def as_defined(file: VolumeFile | None, *, raw: bool) -> VolumeFile | None:
    """The file as the guest's definition has it: a raw disk has no base, whatever libvirt reads in the guest's data."""
    if file is None or not raw:
        return file
    return dataclasses.replace(
        file,
        format="raw",
        capacity_bytes=file.physical_bytes or file.capacity_bytes,
        backing_path=None,
        backing_format=None,
    )


def _on_base(facts: DiskMoveFacts, known: MigratingDisk, base: str) -> SeenDisk:
    """The disk with what is known of its base."""
    verdict, verified = _compared(facts, base)
    known = dataclasses.replace(
        known,
        base=facts.answers.of(FindFileHere(base)),
        base_there=facts.answers.of(FindFileThere(base)),
        base_altered=verdict == "altered",
        base_unknown=verdict == "unknown",
    )
    if known.base_there is None and not is_content(base) and known.mode in ("auto", "delta"):
        return _with_chain(facts, known, verified)
    return SeenDisk(known, verified)


def _with_chain(facts: DiskMoveFacts, known: MigratingDisk, verified: tuple[tuple[t.Any, ...], ...]) -> SeenDisk:
    """The disk with the backing files to copy, down to an image or the last file; with none if one of them cannot be
    copied.
    """
    found: list[ChainFile] = []
    above = known.file
    while above and above.backing_path:
        path = above.backing_path
        if is_content(path):
            verdict, more = _compared(facts, path)
            if verdict != "same":
                known = dataclasses.replace(known, image_below=path)
                found = found if known.assumed and verdict != "altered" else []
            verified += more
            break
        member = _chain_file(facts, path, raw=above.backing_format == "raw")
        if member is None or above.backing_format is None or len(found) > _DEPTH:
            return SeenDisk(known, verified)
        found.append(member)
        above = member.file
    return SeenDisk(dataclasses.replace(known, chain=tuple(found)), verified)


def _chain_file(facts: DiskMoveFacts, path: str, *, raw: bool) -> ChainFile | None:
    """A backing file to copy; None if it is in no pool, has data files, or its name is taken on the destination."""
    pool, answers = facts.pool(path), facts.answers
    if pool is None or _is_device(path):
        return None
    file = as_defined(answers.of(FindFileHere(path)) or answers.of(FindNewFileHere(path)), raw=raw)
    ours = path in facts.ours
    taken = answers.of(IsTakenThere(pool.name, os.path.basename(path)))
    if file is None or (taken and not ours) or (file.format != "raw" and answers.of(FindDataFilesHere(path))):
        return None
    return ChainFile(path, file, pool, ours and taken)


def _compared(facts: DiskMoveFacts, base: str) -> tuple[str, tuple[tuple[t.Any, ...], ...]]:
    """The verdict on a base, and its identity if this run has verified it.

    A base that is in no pool there, or has no manifest, is not known to be the same.
    """
    pool = facts.pool(base)
    if pool is None:
        return "unknown", ()
    there = facts.answers.of(FindImportThere(pool.name, base))
    if there is None:
        return "unknown", ()
    digest = DigestThere(pool.name, os.path.basename(base))
    verdict = _verdict(there, digest, facts.answers, assumed=facts.disk.assumed)
    return verdict, (there.identity,) if verdict == "same" else ()


def _verdict(there: ImportedImage, digest: DigestThere, answers: Answers, *, assumed: bool) -> str:
    """`same`, `altered` (since it was verified there), or `unknown`; a base is verified before anything moves.

    A guest that starts on a base changes its time too: a base verified in this run is not read again.
    """
    manifest = there.manifest
    if there.modified_s > manifest.fetched_s + _CLOCK_S:
        return "altered"
    if there.verified or manifest.is_of(size=there.physical_bytes, changed_ns=there.changed_ns):
        return "same"
    if assumed:
        return "unknown"
    return "same" if answers.of(digest) == manifest.sha256 else "altered"
