# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide which questions about a disk and its image must be answered, and what the answers mean. Pure.

From `CloneFacts` the stages reach what was found, or the next open question; no question is asked whose answer decides
nothing.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.questions import Answers, OpenQuestion, asks
from ansible_collections.corral.virt.plugins.module_utils._core.units import is_content
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_image_trust
from ansible_collections.corral.virt.plugins.module_utils._storage.model_clone import (
    BaseImage,
    CloneSpec,
    FoundDisk,
    Use,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.model_header import Header
from ansible_collections.corral.virt.plugins.module_utils._system.model_free_space import FreeSpace

__all__ = [
    "BaseFacts",
    "CloneFacts",
    "DiskInfo",
    "FindKind",
    "IsManaged",
    "IsOpen",
    "MeasureAllocated",
    "MeasureFlat",
    "MeasureRoom",
    "OverlaysOn",
    "RawDisks",
    "ReadChain",
    "ReadHeader",
    "ReadInfo",
    "UsesOf",
    "base",
    "found",
    "may_share",
    "uses",
]


@dataclasses.dataclass(frozen=True)
class DiskInfo:
    """The report of qemu-img on an image."""

    size_bytes: int
    backing: str | None  # the file it stands on, which may itself be a link
    snapshots: bool


@dataclasses.dataclass(frozen=True)
class _OfFile:
    path: str


class FindKind(_OfFile, OpenQuestion[str]):
    """Question: is there nothing, a file, a link or something else at the path?"""


class ReadHeader(_OfFile, OpenQuestion[Header]):
    """Question: what do the first bytes of the file say?"""


class ReadChain(_OfFile, OpenQuestion[tuple[str, ...]]):
    """Question: what are the file and its backing files, by their first bytes?"""


class IsManaged(_OfFile, OpenQuestion[bool]):
    """Question: did virt_image import the file?"""


class UsesOf(_OfFile, OpenQuestion[tuple[Use, ...]]):
    """Question: which guests of this host use the file?"""


class OverlaysOn(_OfFile, OpenQuestion[tuple[str, ...]]):
    """Question: which images of active pools are backed by the file?"""


class IsOpen(_OfFile, OpenQuestion[bool]):
    """Question: does a process have the file open?"""


class MeasureAllocated(_OfFile, OpenQuestion[int]):
    """Question: how many bytes does the file take?"""


class MeasureFlat(_OfFile, OpenQuestion[int]):
    """Question: how many bytes does the image take with all that it reads from its backing files?"""


@dataclasses.dataclass(frozen=True)
class ReadInfo(_OfFile, OpenQuestion[DiskInfo]):
    """Question: what does qemu-img report on the image?"""

    format: str


@dataclasses.dataclass(frozen=True)
class RawDisks(OpenQuestion[t.Collection[str]]):
    """Question: which files do guests of this host have as raw disks, whose first bytes they write?"""


@dataclasses.dataclass(frozen=True)
class MeasureRoom(OpenQuestion[FreeSpace]):
    """Question: how much room does the filesystem of a directory have?"""

    directory: str
    reserve_bytes: int | None


@dataclasses.dataclass(frozen=True)
class BaseFacts:
    """An image that a disk is created from: its name, and the content behind it."""

    name: str
    path: str
    answers: Answers = dataclasses.field(default_factory=Answers)


@dataclasses.dataclass(frozen=True)
class CloneFacts:
    """The wanted disk, and the hidden path at which it is created."""

    wanted: CloneSpec
    hidden: str
    answers: Answers = dataclasses.field(default_factory=Answers)


@asks
def base(facts: BaseFacts) -> BaseImage:
    """The image that a disk is created from; raises Refused. Users of a content do not matter: it is nobody's disk."""
    path, answers = facts.path, facts.answers
    fixed = is_content(path)
    chain = answers.of(ReadChain(path))
    managed = bool(chain[1:]) and _strange(answers, chain) is None
    header = answers.of(ReadHeader(path))
    raw = path in answers.of(RawDisks())
    form = plan_image_trust.base("create a disk from", path, header, managed=managed, raw=raw)
    uses = () if fixed else answers.of(UsesOf(path))
    size_bytes = answers.of(ReadInfo(path, form)).size_bytes
    return BaseImage(facts.name, path, form, size_bytes, chain, uses, locked=not fixed and answers.of(IsOpen(path)))


def _strange(answers: Answers, chain: t.Sequence[str]) -> str | None:
    """The first backing file that virt_image did not import; None if it imported all."""
    return next((path for path in chain[1:] if not answers.of(IsManaged(path))), None)


def uses(
    guest: FoundGuest,
    targets: t.Sequence[str | None],
    *,
    is_stored: bool,
    managed_state: t.Callable[[], t.Collection[str]],
    forget_xml: str | None,
) -> list[Use]:
    """How a guest uses a file: as it runs (`targets`, one for each of its disks), else as it is stored.

    A guest that is off and has a managed save still uses what it ran with.
    """
    if targets:
        return [Use(guest.name, guest.uuid, "running", target, forget_xml) for target in targets]
    if not is_stored:
        return []
    saved = not guest.active and "managed_save" in managed_state()
    return [Use(guest.name, guest.uuid, "saved" if saved else "off", None, forget_xml)]


@asks
def found(facts: CloneFacts) -> FoundDisk:
    """What is at the disk's path, as far as the wanted state needs it."""
    wanted, answers, path = facts.wanted, facts.answers, facts.wanted.path
    kind = answers.of(FindKind(path))
    left = facts.hidden if answers.of(FindKind(facts.hidden)) == "file" else None
    room = answers.of(MeasureRoom(wanted.directory, wanted.reserve_bytes))
    if kind != "file":
        return FoundDisk(kind, left=left, lacks_room=room.problem(_new_bytes(wanted, answers), wanted.directory))
    form = _format(answers, path)
    uses = answers.of(UsesOf(path))
    if wanted.state != "absent" and form != wanted.format:
        return FoundDisk(kind, format=form, uses=uses, overlays=answers.of(OverlaysOn(path)), left=left)
    unknown = "" if uses or form == "raw" else _unknown_base(answers, path)
    info = answers.of(ReadInfo(path, form))
    overlays: tuple[str, ...] = ()
    if wanted.state == "absent" or wanted.allow_shrink:
        overlays = answers.of(OverlaysOn(path))
    flattens = wanted.state == "flattened" and info.backing and not unknown
    return FoundDisk(
        kind,
        format=form,
        size_bytes=info.size_bytes,
        backing=info.backing,
        unknown_base=unknown,
        snapshots=info.snapshots,
        uses=uses,
        overlays=overlays,
        locked=answers.of(IsOpen(path)),
        lacks_room=room.problem(_below_bytes(answers, path) if flattens else 0, wanted.directory),
        left=left,
    )


def _new_bytes(wanted: CloneSpec, answers: Answers) -> int:
    """The bytes that a new disk takes at once: for a copy all of its image, unless the filesystem may share blocks."""
    if wanted.base is None or not wanted.copy or may_share(wanted.base, wanted.format):
        return 0
    return sum(answers.of(MeasureAllocated(path)) for path in wanted.base.chain)


def _below_bytes(answers: Answers, path: str) -> int:
    """The additional bytes that a disk takes after it is flattened."""
    return max(0, answers.of(MeasureFlat(path)) - answers.of(MeasureAllocated(path)))


def may_share(base: BaseImage, form: str) -> bool:
    """True if a copy may share blocks with its image; whether the filesystem can is only known after a try."""
    return base.format == form and len(base.chain) == 1


def _format(answers: Answers, path: str) -> str:
    """The format of a disk; raw if a guest has it as raw, as it then wrote the first bytes."""
    header = answers.of(ReadHeader(path))
    return "raw" if path in answers.of(RawDisks()) else header.format


def _unknown_base(answers: Answers, path: str) -> str:
    """The backing or data file that a disk no guest has names itself, unless virt_image imported all backing files.

    Empty if there is none.
    """
    chain = answers.of(ReadChain(path))
    return (
        _strange(answers, chain)
        or answers.of(ReadHeader(path)).data_file
        or answers.of(ReadHeader(chain[-1])).backing
        or ""
    )
