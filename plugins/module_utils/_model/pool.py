# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What surrounds a storage pool on its host."""

from __future__ import annotations

import dataclasses
import typing as t

__all__ = ["PoolHost", "PoolUser", "RawPoolHost"]

Obstacle = t.Callable[[str], t.Optional[str]]  # path -> what of it is there and no directory


def _unknown(_path: str) -> str | None:
    return None


@dataclasses.dataclass(frozen=True)
class RawPoolHost:
    """As libvirt and the host tell it, each when it is asked for: most runs change nothing, and need none of it."""

    pools: t.Callable[[], t.Sequence[tuple[str, str]]]  # others: name and document
    guests: t.Callable[[], t.Sequence[tuple[str, tuple[str, ...]]]]  # name and documents
    obstacle: Obstacle = _unknown


@dataclasses.dataclass(frozen=True)
class PoolUser:
    """A guest with a disk in the pool."""

    name: str
    by_pool: bool  # it names the disk by the pool, not by its path


@dataclasses.dataclass(frozen=True)
class PoolHost:
    """What the rules of pools look at."""

    directories: t.Callable[[], t.Mapping[str, str]] = dict  # path -> the other pool
    users: t.Callable[[], t.Sequence[PoolUser]] = tuple
    obstacle: Obstacle = _unknown
