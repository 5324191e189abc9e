# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide what must be done so that an image is in a pool. Pure."""

from __future__ import annotations

import dataclasses

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._model.image import Image, Present

__all__ = ["Fetch", "ImageStep", "Point", "Remove", "absent", "present"]


@dataclasses.dataclass(frozen=True)
class ImageStep:
    """One change of a pool's directory."""

    image: Image


@dataclasses.dataclass(frozen=True)
class Fetch(ImageStep):
    """Bring the source here, verify it, unpack and convert it, and publish it under its content's name."""

    def __str__(self) -> str:
        source, checksum = self.image.source, self.image.checksum
        verified = f"verified by {checksum.algorithm} {checksum.hex[:12]}" if checksum else "NOT verified"
        return f"fetch image {self.image.name} from {source.location if source else '?'}, {verified}"


@dataclasses.dataclass(frozen=True)
class Point(ImageStep):
    """Make the stable name point to a content file."""

    target: str | None  # None: to what the fetch before it made

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
    if found.foreign:
        raise Refused(
            f"cannot manage image {image.name}: {image.directory}/{image.name} is a plain file that this collection did not put there; "
            "move it away, or choose another name"
        )
    if image.checksum is None:
        if found.target is not None:
            return []
        if image.source is None:
            raise BadInput(f"image {image.name} is not in the pool; say where it comes from with url or src")
        return [Fetch(image), Point(image, None)]
    content = image.content_name(image.checksum.hex)
    if found.target == content and content in found.files:
        return []
    if content in found.files:
        return [Point(image, content)]
    return [Fetch(image), Point(image, content)]


def absent(image: Image, found: Present, *, users: dict[str, str]) -> list[ImageStep]:
    """Steps until neither name nor content is there; `users` is content file -> who stands on it."""
    if found.foreign:
        raise Refused(f"cannot remove image {image.name}: this collection did not put {image.directory}/{image.name} there")
    if found.target is None:
        return []
    if found.target in users:
        raise Refused(f"cannot remove image {image.name}: {users[found.target]} stands on {found.target}; remove or flatten it first")
    content: list[ImageStep] = [Remove(image, found.target)] if found.target in found.files else []
    return [Remove(image, image.name), *content]
