# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide what must be done so that an image is in a pool. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._model.image import Checksum, Image, Present

__all__ = ["Fetch", "ImageStep", "Point", "Remove", "absent", "old", "present", "refuse_stranger", "replaced", "strangers", "superseded"]


@dataclasses.dataclass(frozen=True)
class ImageStep:
    """One change of a pool's directory."""

    image: Image


@dataclasses.dataclass(frozen=True)
class Fetch(ImageStep):
    """Bring the source here, verify it, unpack and convert it, and publish it under its content's name."""

    def __str__(self) -> str:
        name, checksum, doubt = self.image.name, self.image.checksum, self.image.doubt
        if checksum is None or doubt:
            return f"fetch image {name}, NOT verified{f' ({doubt})' if doubt else ''}"
        return f"fetch image {name}, verified by {checksum.algorithm} {checksum.hex[:12]}"


@dataclasses.dataclass(frozen=True)
class Point(ImageStep):
    """Make the stable name point to a content file, or (None) to what the fetch before it made."""

    target: str | None

    def __str__(self) -> str:
        return f"point {self.image.name} to {self.target or 'the fetched content'}"


@dataclasses.dataclass(frozen=True)
class Remove(ImageStep):
    """Remove a name or a content file."""

    file: str

    def __str__(self) -> str:
        return f"remove {self.file}"


def present(image: Image, found: Present) -> list[ImageStep]:
    """Steps until the name points to the wanted content; raises Refused or BadInput."""
    if found.foreign and image.current:
        raise Refused(
            f"cannot manage image {image.name}: {image.directory}/{image.name} is a plain file that this collection did not put there; "
            "move it away, or choose another name"
        )
    if image.checksum is None:
        if found.target is not None:
            return []
        if image.source is None:
            raise BadInput(f"image {image.name} is not in the pool; say where it comes from with url, src or origin")
        return [Fetch(image), Point(image, None)]
    content = image.content_name(image.checksum.hex)
    if content in found.files:
        return [Point(image, content)] if image.current and found.target != content else []
    if image.source is None:
        raise BadInput(f"image {image.name} is not in the pool as {content}; say where it comes from with url, src or origin")
    return [Fetch(image), Point(image, content)] if image.current else [Fetch(image)]


def refuse_stranger(image: Image) -> t.NoReturn:
    """Raises Refused: a file has the name of the content that was asked for, and its bytes are others."""
    content = image.content_name(t.cast(Checksum, image.checksum).hex)
    raise Refused(
        f"cannot verify image {content}: {image.directory}/{content} holds something else, and this collection did not bring it; "
        "look at it, and move it away"
    )


def replaced(image: Image, users: t.Mapping[str, str]) -> list[ImageStep]:
    """Steps for a content that was changed after it was verified; raises Refused when somebody stands on it, or when nobody has it."""
    content = image.content_name(t.cast(Checksum, image.checksum).hex)
    if content in users:
        raise Refused(
            f"cannot verify image {content}: it was changed after it was brought here, and {users[content]} stands on it; compare it with "
            "the same image of another hypervisor, and restore it from there while no guest uses it"
        )
    if image.source is None:
        remedy = "say where it comes from with url, src or origin"
        raise Refused(f"cannot verify image {content}: it was changed after it was brought here; {remedy}")
    return [Fetch(image)]


def old(image: Image, found: Present, steps: t.Sequence[ImageStep], *, every: bool = False) -> list[str]:
    """Contents of the image that we brought; without `every`, those to which its name does not point after the steps."""
    points = [step.target for step in steps if isinstance(step, Point)]
    current = points[-1] if points else found.target
    return sorted(file for file in found.files - found.strangers if image.owns(file) and (every or file != current))


def strangers(found: Present) -> list[str]:
    """What is said of files that have a content's name and stay."""
    return [f"kept {file}: no manifest says that this collection brought it" for file in sorted(found.strangers)]


def superseded(image: Image, files: t.Sequence[str], users: t.Mapping[str, str]) -> tuple[list[ImageStep], list[str]]:
    """Steps that remove old contents that nobody uses, and what is said of those kept; `users` is content file -> who stands on it."""
    kept = [f"kept {file}: {users[file]} stands on it" for file in files if file in users]
    return [Remove(image, file) for file in files if file not in users], kept


def absent(image: Image, found: Present, users: t.Mapping[str, str]) -> list[ImageStep]:
    """Steps until neither name nor content is there; raises Refused when somebody stands on any."""
    if found.foreign:
        raise Refused(
            f"cannot remove image {image.name}: {image.directory}/{image.name} is a plain file, no image of this collection; to remove it "
            "as a disk, with its data: remove_storage: true"
        )
    contents = old(image, found, (), every=True)
    used = [f"{users[file]} stands on {file}" for file in contents if file in users]
    if used:
        raise Refused(f"cannot remove image {image.name}: {', '.join(used)}; remove or flatten that first")
    name = [image.name] if image.name in found.files else []
    return [Remove(image, file) for file in (*name, *contents)]
