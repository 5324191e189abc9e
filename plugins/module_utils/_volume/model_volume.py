# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What a volume is, and what is seen around it."""

from __future__ import annotations

import dataclasses

from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import ObjectKind

__all__ = ["UNFINISHED", "VOLUME_KIND", "CloneSource", "PoolSight", "SourceFile"]

VOLUME_KIND = ObjectKind(
    "volume",
    within="pool",
    uuid=False,
    redefine=False,
    volatile=("allocation", "physical", "target/timestamps", "target/permissions"),
)
UNFINISHED = ".corral-unfinished"  # ends the name of the small volume beside one whose content is not complete


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """A file to upload."""

    size_bytes: int
    allocated_bytes: int
    format: str
    capacity_kib: int  # what a guest sees of it
    names: str | None = None  # other files that it names


@dataclasses.dataclass(frozen=True)
class CloneSource:
    """A volume to clone."""

    path: str
    capacity_kib: int
    encrypted: bool = False


@dataclasses.dataclass(frozen=True)
class PoolSight:
    """The pool of a volume."""

    type: str
    available_bytes: int
