# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Guests, hosts and placements: what is placed, where it can go, and where it goes."""

from __future__ import annotations

import dataclasses
import typing as t

__all__ = ["ACTIVE", "Copy", "Guest", "Host", "Placement", "Policy"]

ACTIVE = ("running", "paused")  # states in which a guest holds memory


@dataclasses.dataclass(frozen=True)
class Guest:
    """What a guest needs. `host` pins it; guests of the same `apart` group never share a host."""

    name: str
    vcpus: int
    memory_mib: int
    host: str | None = None
    apart: str | None = None
    bridges: frozenset[str] = frozenset()
    pools: frozenset[str] = frozenset()
    uuid: str | None = None  # None: not made yet, so known by its name


class Copy(t.NamedTuple):
    """A guest as one host has it."""

    state: str
    uuid: str | None = None
    moving: str | None = None  # to which host; only while the record of a migration stands
    moving_from: str | None = None  # UUID of the host it comes from

    @property
    def active(self) -> bool:
        """Whether it holds memory."""
        return self.state in ACTIVE


@dataclasses.dataclass(frozen=True)
class Host:
    """What a hypervisor has. `guests` are those that exist there, by name.

    `memory_mib` is what guests may use in all.
    """

    name: str
    cpus: int
    memory_mib: int
    vcpus_used: int = 0
    memory_used_mib: int = 0
    guests: t.Mapping[str, Copy] = dataclasses.field(default_factory=dict)
    apart: frozenset[str] = frozenset()  # groups that guests there belong to
    bridges: frozenset[str] | None = None  # None: not known
    pools: frozenset[str] | None = None
    maintenance: str | None = None  # why it takes no guests


@dataclasses.dataclass(frozen=True)
class Policy:
    """How much of a host may be promised: vCPUs per processor, and the share of its memory."""

    cpu_overcommit: float = 4.0
    memory_overcommit: float = 1.0


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where a guest goes and why.

    `host` is None when it is refused, or deferred because hosts that may have it were not reached.
    """

    guest: str
    host: str | None
    why: str
    exists: bool = False
    deferred: bool = False
