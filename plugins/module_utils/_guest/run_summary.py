# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guests of a host for reports and placement: a part of what `describe` returns, and little code."""

from __future__ import annotations

import contextlib
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._domain import xml_backup_record, xml_summary
from ansible_collections.corral.virt.plugins.module_utils._libvirt import states
from ansible_collections.corral.virt.plugins.module_utils._libvirt import statistics as figures
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import explained
from ansible_collections.corral.virt.plugins.module_utils._libvirt.model_state import ACTIVE
from ansible_collections.corral.virt.plugins.module_utils._xml.names import CORRAL

Described = t.Mapping[str, t.Any]  # a guest


def guests(
    connection: t.Any,
    more: t.Callable[[xml_summary.Element], t.Mapping[str, t.Any]] = lambda _root: {},
    asked: t.Callable[[t.Any], t.Mapping[str, t.Any]] = lambda _item: {},
) -> list[dict[str, t.Any]]:
    """All guests sorted by name; `more` reads further fields from each guest's document, and `asked` asks libvirt."""
    return each(connection, lambda item, statistics: {**_guest(item, statistics, more), **asked(item)})


def each(
    connection: t.Any,
    described: t.Callable[[t.Any, t.Mapping[str, t.Any]], dict[str, t.Any]],
    names: t.Collection[str] | None = None,
) -> list[dict[str, t.Any]]:
    """Guests sorted by name, from one call for all statistics and one document each. `names` limits them.

    A guest that disappears meanwhile is left out.
    """
    found = []
    for item, statistics in figures.stats(connection):
        if names is None or item.name() in names:
            with contextlib.suppress(NotFound):
                found.append(described(item, statistics))
    return sorted(found, key=lambda guest: t.cast(str, guest["name"]))


def snapshots(item: t.Any) -> dict[str, int | None]:
    """How many snapshots a guest has, and the age of the oldest."""
    count, roots = figures.snapshots(item)
    oldest_s = xml_summary.oldest_s(roots)
    return {"count": count, "oldest_age_s": None if oldest_s is None else int(time.time()) - oldest_s}


def backup(root: t.Any) -> dict[str, t.Any]:
    """The ages of a guest's last backup and last proof, what its tags allow, and whether one is older."""
    tags = [one.text or "" for one in root.iterfind(f"metadata/{{{CORRAL}}}guest/{{{CORRAL}}}tag")]
    noted, due, now_s = xml_backup_record.within(root), xml_backup_record.due(tags), int(time.time())
    ages = [None if at_s is None else max(0, now_s - at_s) for at_s in (noted.at_s, noted.proven_s)]
    late = any(limit is not None and (age is None or age > limit) for limit, age in zip(due, ages))
    return {"age_s": ages[0], "proven_age_s": ages[1], "every_s": due[0], "proven_every_s": due[1], "late": late}


def protection(root: t.Any, kept: t.Mapping[str, t.Any]) -> dict[str, t.Any] | None:
    """How another host runs a guest when its host is dead, the priority, the group, and what the host notes of it.

    None for a guest that is not protected.
    """
    found = root.find(f"metadata/{{{CORRAL}}}guest/{{{CORRAL}}}ha")
    if found is None:
        return None
    priority = found.get("priority", "")
    return {
        "mode": found.get("mode", "restart"),
        "priority": int(priority) if priority.isdecimal() else 0,
        "group": found.get("group", ""),
        "kept": kept.get(root.findtext("uuid")),
    }


def apart(root: t.Any) -> list[str]:
    """The words of `ha` by which a protected guest shares no host with others."""
    found = root.iterfind(f"metadata/{{{CORRAL}}}guest/{{{CORRAL}}}ha/{{{CORRAL}}}apart")
    return [one.text or "" for one in found]


def active(guests: t.Iterable[Described]) -> list[Described]:
    """The guests that have a process on the host."""
    return [guest for guest in guests if guest["state"] in ACTIVE]


def memory_used_mib(guests: t.Iterable[Described]) -> int:
    """The maximum memory of all active guests together."""
    return sum(guest["memory"]["maximum_mib"] for guest in active(guests))


def _guest(
    item: t.Any, statistics: t.Mapping[str, t.Any], more: t.Callable[[xml_summary.Element], t.Mapping[str, t.Any]]
) -> dict[str, t.Any]:
    """One guest: its running state, or its definition if it is off. `statistics` are libvirt's bulk statistics."""
    with explained("read guest", item.name()):
        report, root = xml_summary.read(item.XMLDesc())
        autostart = bool(item.isPersistent() and item.autostart())
    recorded = xml_summary.recorded(root)
    seen, state, sizes = recorded.pop("seen"), states.word(statistics["state.state"]), block_sizes(statistics)
    sighted = xml_summary.sighted(root, seen) if state == "running" else []
    return {
        "name": item.name(),
        "uuid": item.UUIDString(),
        "state": state,
        "autostart": autostart,
        **report,
        **recorded,
        **more(root),
        "disks": [{**disk, **sizes.get(disk.get("target", ""), {})} for disk in report["disks"]],
        "addresses": [*recorded["addresses"], *sighted],
    }


def block_sizes(statistics: t.Mapping[str, t.Any]) -> dict[str, dict[str, int]]:
    """Sizes in bytes by target, from libvirt's bulk statistics (block.N.capacity, block.N.physical)."""
    sizes = {}
    known = {"capacity": "capacity_bytes", "physical": "physical_bytes", "allocation": "allocation_bytes"}
    named = [key for key in statistics if key.startswith("block.") and key.endswith(".name")]
    for prefix in (key[: -len("name")] for key in named):  # a host may count more than it lists, without end
        sizes[statistics[f"{prefix}name"]] = {
            name: statistics[prefix + key] for key, name in known.items() if prefix + key in statistics
        }
    return sizes
