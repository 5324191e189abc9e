# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The guests of a host, as reports and placement see them: a part of what `describe` says, and little code."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._libvirt import figures, states
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import explained
from ansible_collections.corral.virt.plugins.module_utils._xml import summary

__all__ = ["block_sizes", "guests"]


def guests(
    connection: t.Any, more: t.Callable[[summary.Element], t.Mapping[str, t.Any]] = lambda _root: {}
) -> list[dict[str, t.Any]]:
    """All guests by name: one call for the figures of all, one document each, of which `more` reads more.

    Who goes meanwhile is left out.
    """
    found = []
    for item, statistics in figures.stats(connection):
        with contextlib.suppress(NotFound), explained("read guest", item.name()):
            found.append(_guest(item, statistics, more))
    return sorted(found, key=lambda guest: t.cast(str, guest["name"]))


def _guest(
    item: t.Any, statistics: t.Mapping[str, t.Any], more: t.Callable[[summary.Element], t.Mapping[str, t.Any]]
) -> dict[str, t.Any]:
    """One guest: what runs where it runs, else its definition. `statistics` are libvirt's bulk statistics."""
    report, root = summary.read(item.XMLDesc())
    recorded = summary.recorded(root)
    seen, state, sizes = recorded.pop("seen"), states.word(statistics["state.state"]), block_sizes(statistics)
    sighted = summary.sighted(root, seen) if state == "running" else []
    return {
        "name": item.name(),
        "uuid": item.UUIDString(),
        "state": state,
        "autostart": bool(item.isPersistent() and item.autostart()),
        **report,
        **recorded,
        **more(root),
        "disks": [{**disk, **sizes.get(disk.get("target", ""), {})} for disk in report["disks"]],
        "addresses": [*recorded["addresses"], *sighted],
    }


def block_sizes(statistics: t.Mapping[str, t.Any]) -> dict[str, dict[str, int]]:
    """Bytes by target, from libvirt's bulk statistics (block.N.capacity, block.N.physical)."""
    sizes = {}
    for index in range(statistics.get("block.count", 0)):
        prefix = f"block.{index}."
        known = {"capacity": "capacity_bytes", "physical": "physical_bytes", "allocation": "allocation_bytes"}
        sizes[statistics.get(prefix + "name", "")] = {
            name: statistics[prefix + key] for key, name in known.items() if prefix + key in statistics
        }
    return sizes
