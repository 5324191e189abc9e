# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that only a dead hypervisor had, and their newest backups. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.units import age_text
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import APART, TOGETHER, after_prefix

Result = t.Mapping[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Lost:
    """A guest with its newest backup that can be restored, and the hosts whose repositories have that; `point` is empty
    without one. `place` are options of `virt_place`.
    """

    name: str
    uuid: str
    point: str
    hosts: list[str]
    text: str
    place: Result


def lost(
    backups: t.Mapping[str, Result], hosts: t.Mapping[str, Result], dead: str, dead_uuid: str, kept: t.Collection[str]
) -> list[Lost]:
    """The guests that were backed up last on a host that is gone, by name; of namesakes the one of the last backup.

    `backups` are results of `virt_backup_info` with the needs of guests, `hosts` those of `virt_host_info`, by living
    host. `dead_uuid` is empty if nobody knows it. `kept` are UUIDs of guests on shared storage.
    """
    living = {str(one["host"]["uuid"]) for one in hosts.values() if "host" in one}
    there = {str(guest["uuid"]) for one in hosts.values() if "host" in one for guest in one["host"]["guests"]}
    newest: dict[str, Result] = {}
    for result in backups.values():
        for guest in result.get("guests") or ():
            if guest["age_s"] < newest.get(guest["uuid"], {}).get("age_s", float("inf")):
                newest[guest["uuid"]] = guest
    found: dict[str, tuple[float, Lost]] = {}
    for uuid, guest in newest.items():
        was_there = guest["host"] == dead_uuid if dead_uuid else guest["host"] not in living
        if was_there and uuid not in there and uuid not in kept:
            one, age_s = _lost(guest, backups, dead), float(guest["age_s"])
            if age_s <= found.get(one.name, (age_s, one))[0]:
                found[one.name] = age_s, one
    return [one for _age_s, one in sorted(found.values(), key=lambda pair: pair[1].name)]


def _lost(guest: Result, backups: t.Mapping[str, Result], dead: str) -> Lost:
    name, uuid = str(guest["name"]), str(guest["uuid"])
    points: dict[str, tuple[Result, list[str]]] = {}
    for host, result in backups.items():
        for one in (point for each in result.get("guests") or () if each["uuid"] == uuid for point in each["points"]):
            if one["restorable"]:
                points.setdefault(one["id"], (one, []))[1].append(host)
    if not points or not guest["needs"]:
        why = "the definition of its last one cannot be read" if points else "files are missing or damaged"
        text = f"{name}: only {dead} had it, and none of its backups can be restored: {why}"
        return Lost(name, uuid, "", [], text, {})
    ident = max(points)  # begins with its time
    point, having = points[ident]
    proof = "proven" if (point["proof"] or {}).get("ok") else "not proven"
    where = f"in the repository of {' and '.join(sorted(having))}"
    text = f"{name}: only {dead} had it; its backup {ident} is {age_text(point['age_s'])} old, {proof}, {where}"
    return Lost(name, uuid, ident, having, text, _place(name, guest["needs"]))


def _place(name: str, needs: Result) -> dict[str, t.Any]:
    tags = needs["tags"]
    return {
        "name": name,
        "vcpus": needs["vcpus"],
        "memory": f"{needs['memory_mib']}MiB",
        "interfaces": [{"name": f"eth{index}", **nic} for index, nic in enumerate(needs["interfaces"])],
        "disks": [],  # virt_restore finds their pools
        "apart": sorted(after_prefix(tags, APART)),
        "together": sorted(after_prefix(tags, TOGETHER)),
    }


def problems(
    found: t.Sequence[Lost],
    asked: t.Collection[str],
    backups: t.Mapping[str, Result],
    hosts: t.Mapping[str, Result],
) -> t.Iterator[str]:
    """Why guests that are asked for cannot be restored."""
    if not asked:
        return
    if not any("guests" in one for one in backups.values()):
        failed = [str(one["msg"]) for one in backups.values() if one.get("msg")]
        yield from dict.fromkeys(failed or ["from_backup: set the repository: -e repository=/srv/backup"])
        return
    by_name = {one.name: one for one in found}
    there = {guest["name"]: host for host, one in hosts.items() if "host" in one for guest in one["host"]["guests"]}
    for name in asked:
        if name in by_name:
            yield from () if by_name[name].point else (f"from_backup: {by_name[name].text}",)
        elif name in there:
            start = f"ansible-playbook corral.virt.start -e guest={name}"
            yield f"from_backup: {name} is on {there[name]}; start it: {start}"
        else:
            known = ", ".join(by_name) or "none"
            yield f"from_backup: {name} is not among the guests that only it had and that have a backup: {known}"
