# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide which checksum an image must have, and why it may prove nothing. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.questions import Answers, OpenQuestion, asks
from ansible_collections.corral.virt.plugins.module_utils._image import plan_image_checks
from ansible_collections.corral.virt.plugins.module_utils._image.model_checksum_list import decoded
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Checksum, ImageSpec, Sums
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_inspect

__all__ = ["ChecksumFacts", "Downloaded", "ReadUrl", "VerifySignature", "requested"]


class Downloaded(t.NamedTuple):
    """A small file, and the URL it came from after all redirects."""

    content: bytes
    url: str


@dataclasses.dataclass(frozen=True)
class ReadUrl(OpenQuestion[Downloaded]):
    """What is at a URL?"""

    url: str


@dataclasses.dataclass(frozen=True)
class VerifySignature(OpenQuestion[bytes]):
    """Which part of a file is signed by a key of the keyring?

    `signature` is a detached one; None: the file contains its signature.
    """

    content: bytes
    signature: bytes | None


@dataclasses.dataclass(frozen=True)
class ChecksumFacts:
    """The image as the user asked for it."""

    spec: ImageSpec
    answers: Answers = dataclasses.field(default_factory=Answers)


@asks
def requested(facts: ChecksumFacts) -> tuple[Checksum | None, str]:
    """The requested checksum, and why nobody can rely on it (empty: one can); of a list, only what is signed counts."""
    spec, sums, answers = facts.spec, facts.spec.checksum, facts.answers
    if not isinstance(sums, Sums):
        return sums, ""
    if spec.source is None:
        return None, ""
    content, origin = answers.of(ReadUrl(sums.url))
    if spec.signature:
        detached = None if spec.signature == "inline" else answers.of(ReadUrl(spec.signature)).content
        content = answers.of(VerifySignature(content, detached))
    found = plan_image_checks.listed(decoded(content), sums, spec.source)
    return found, plan_inspect.doubt(sums.url, origin, signed=bool(spec.signature), certified=spec.certified)
