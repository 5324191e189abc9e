# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Whether a host still has the capacity that a placement saw: another controller may have placed guests there since."""

from __future__ import annotations

import dataclasses

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused

__all__ = ["Capacity", "check"]


@dataclasses.dataclass(frozen=True)
class Capacity:
    """What all guests of a host may use together, and what the others use, that run or start with it."""

    memory_mib: int
    vcpus: int
    memory_used_mib: int = 0
    vcpus_used: int = 0


def check(name: str, capacity: Capacity, *, memory_mib: int, vcpus: int) -> None:
    """Raises Refused where the guest does not fit."""
    lacks = [
        f"{what}: {used} of {limit} are allocated, and it needs {needed}"
        for what, limit, used, needed in (
            ("MiB of memory", capacity.memory_mib, capacity.memory_used_mib, memory_mib),
            ("vcpus", capacity.vcpus, capacity.vcpus_used, vcpus),
        )
        if used + needed > limit
    ]
    if lacks:
        raise Refused(
            f"cannot start {name}: this host no longer has room for it ({'; '.join(lacks)}), because another run "
            "placed guests here; run again to choose another host"
        )
