# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decides what must be known of an image, in which order, and the resulting steps. Pure.

An `ImageFacts` leads to steps or to the next open question; only questions that decide something are asked.
"""

from __future__ import annotations

import dataclasses
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.questions import Answers, OpenQuestion, asks
from ansible_collections.corral.virt.plugins.module_utils._image import plan_image, plan_image_checks
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Checksum, Image, Manifest, Present

__all__ = [
    "AskOrigin",
    "Bringing",
    "ClaimContents",
    "CompareContent",
    "DigestContent",
    "FindRecord",
    "ImageFacts",
    "LookInPool",
    "ReadManifest",
    "Removing",
    "UsersInside",
    "UsersOfName",
    "bringing",
    "removing",
]


@dataclasses.dataclass(frozen=True)
class LookInPool(OpenQuestion[Present]):
    """What is in the pool's directory, and where does the name point?"""


@dataclasses.dataclass(frozen=True)
class ReadManifest(OpenQuestion[t.Optional[Manifest]]):
    """What does the manifest of a content say?"""

    content: str


@dataclasses.dataclass(frozen=True)
class AskOrigin(OpenQuestion[Image]):
    """What does the other hypervisor have of the image? The answer is the image with what is then known."""


@dataclasses.dataclass(frozen=True)
class UsersOfName(OpenQuestion[t.Optional[str]]):
    """Which disk is based on the name itself, and so on its target?"""

    path: str


@dataclasses.dataclass(frozen=True)
class UsersInside(OpenQuestion[t.Mapping[str, str]]):
    """Who uses which file in a directory?"""

    directory: str


@dataclasses.dataclass(frozen=True)
class DigestContent(OpenQuestion[str]):
    """What is the digest of a content? All of it is read."""

    content: str
    algorithm: str


@dataclasses.dataclass(frozen=True)
class FindRecord(OpenQuestion[bool]):
    """Does the manifest of a content say that this very file was verified?"""

    content: str


@dataclasses.dataclass(frozen=True)
class CompareContent(OpenQuestion[t.Optional[Manifest]]):
    """Does a content match its manifest, or that of the requested image (`requested`)?

    The answer is the manifest of this very file, None if it differs. A file that was not verified is read in full.
    """

    content: str
    requested: bool = False


@dataclasses.dataclass(frozen=True)
class ClaimContents(OpenQuestion[t.Collection[str]]):
    """Of which contents are disks being created now? If steps follow, no run starts to until they are done."""

    contents: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ImageFacts:
    """All that a plan for an image may use."""

    image: Image
    absent: bool = False
    prune: bool = False
    brought: tuple[plan_image.ImageStep, ...] = ()  # steps that are carried out before anything is removed
    answers: Answers = dataclasses.field(default_factory=Answers)


@dataclasses.dataclass(frozen=True)
class Bringing:
    """Steps until the name points to the requested content, and related findings."""

    steps: tuple[plan_image.ImageStep, ...] = ()
    before: str | None = None  # where the name points
    vouch: tuple[
        plan_image.Vouch, ...
    ] = ()  # what was read, so that the next run need not read it: no change of the image
    read_again: bool = False  # a content that was verified before


@dataclasses.dataclass(frozen=True)
class Removing:
    """Steps that remove unused files, and notes on the others."""

    steps: tuple[plan_image.ImageStep, ...] = ()
    notes: tuple[str, ...] = ()


@asks
def bringing(facts: ImageFacts) -> Bringing:
    """Steps until the name points to the requested content; raises a VirtError if that is refused."""
    found = facts.answers.of(LookInPool())
    if facts.absent:
        return Bringing(before=found.target)
    image, steps = _until_present(facts, found)
    if content := plan_image.moves_from(found, steps):
        user = facts.answers.of(UsersOfName(os.path.join(image.directory, image.name)))
        plan_image.check_name(image, content, user)
    if content := plan_image.stranger(image, found):
        vouch = _recognised(facts.answers, image, content)
        return Bringing(tuple(steps), found.target, vouch)
    if plan_image.was_compared(image, found):
        return Bringing(tuple(steps), found.target)
    return dataclasses.replace(_compared_again(facts.answers, image), before=found.target)


def _until_present(facts: ImageFacts, found: Present) -> tuple[Image, list[plan_image.ImageStep]]:
    """The image and the steps; another hypervisor is queried first if something is to be fetched from it."""
    steps = _present(facts.answers, facts.image, found)
    if not plan_image.needs_origin(facts.image, steps):
        return facts.image, steps
    image = facts.answers.of(AskOrigin())
    return image, _present(facts.answers, image, found)


def _present(answers: Answers, image: Image, found: Present) -> list[plan_image.ImageStep]:
    if image.checksum:
        plan_image_checks.refuse_namesake(image, answers.of(ReadManifest(image.content_name(image.checksum.hex))))
    return plan_image.present(image, found)


def _recognised(answers: Answers, image: Image, content: str) -> tuple[plan_image.Vouch, ...]:
    """The record of a file without a manifest that has exactly the requested bytes; raises Unverified."""
    checksum = t.cast(Checksum, image.checksum)
    same = answers.of(DigestContent(content, checksum.algorithm)) == checksum.hex
    manifest = answers.of(CompareContent(content, requested=True)) if same and image.source else None
    plan_image.refuse_stranger(image, content, same=same if image.source is None else manifest is not None)
    return _vouched(answers, image, manifest)


def _compared_again(answers: Answers, image: Image) -> Bringing:
    """Verifies the requested content again before disks are based on it; a changed one is replaced."""
    content = image.content_name(t.cast(Checksum, image.checksum).hex)
    if answers.of(FindRecord(content)):
        return Bringing()
    if manifest := answers.of(CompareContent(content)):
        return Bringing(vouch=_vouched(answers, image, manifest), read_again=True)
    if image.source and image.source.kind == "origin":
        image = answers.of(AskOrigin())
    steps = plan_image.replaced(image, answers.of(UsersInside(image.directory)))
    return Bringing(tuple(steps), read_again=True)


def _vouched(answers: Answers, image: Image, manifest: Manifest | None) -> tuple[plan_image.Vouch, ...]:
    """The step that records that a file was verified, unless it is recorded."""
    if manifest is None or answers.of(FindRecord(manifest.content)):
        return ()
    return (plan_image.Vouch(image, manifest),)


@asks
def removing(facts: ImageFacts) -> Removing:
    """Steps that remove unused files; raises Refused."""
    if not (facts.absent or facts.prune):
        return Removing()
    image, found = facts.image, facts.answers.of(LookInPool())
    old = plan_image.old(image, found, facts.brought, every=facts.absent)
    users = _users(facts, old) if old else {}
    notes = plan_image.strangers(found)
    if facts.absent:
        return Removing(tuple(plan_image.absent(image, found, users)), tuple(notes))
    steps, kept = plan_image.superseded(image, old, users)
    return Removing(tuple(steps), (*notes, *kept))


def _users(facts: ImageFacts, contents: t.Sequence[str]) -> t.Mapping[str, str]:
    """Who uses which of these contents, including disks that are being created."""
    claimed = facts.answers.of(ClaimContents(tuple(contents)))  # before it is asked who uses them: none begins then
    inside = facts.answers.of(UsersInside(facts.image.directory))
    return {**inside, **dict.fromkeys(claimed, "a disk that is being created")}
