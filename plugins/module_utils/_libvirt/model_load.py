# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""How busy a host and its guests were between two looks at their clocks."""

from __future__ import annotations

import dataclasses
import typing as t

__all__ = ["Clocks", "guest_percent", "host_percent"]

_IDLE = ("idle", "iowait")


@dataclasses.dataclass(frozen=True)
class Clocks:
    """Nanoseconds that processors have spent by the time `at_ns`: of the host by kind, of guests by UUID."""

    at_ns: int
    host: t.Mapping[str, int]
    guests: t.Mapping[str, int]


def host_percent(before: Clocks, after: Clocks) -> float | None:
    """How much of the host's processors was busy; None where libvirt does not tell."""
    spent = {kind: after.host[kind] - before.host[kind] for kind in before.host if kind in after.host}
    total = sum(spent.values())
    return _rounded(total - sum(spent.get(kind, 0) for kind in _IDLE), total)


def guest_percent(before: Clocks, after: Clocks, uuid: str, vcpus: int) -> float | None:
    """How much of its vCPUs a guest used; None for one that did not run at both times.

    Its devices' work counts, so it can be above 100.
    """
    if uuid not in before.guests or uuid not in after.guests:
        return None
    return _rounded(after.guests[uuid] - before.guests[uuid], (after.at_ns - before.at_ns) * vcpus)


def _rounded(part_ns: int, total_ns: int) -> float | None:
    """Percent; None of nothing, and of a clock that went back, as that of a guest that was started anew."""
    return round(100 * part_ns / total_ns, 1) if total_ns > 0 and part_ns >= 0 else None
