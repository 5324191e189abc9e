# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a hypervisor counts as dead, and which of its guests others can run. Pure."""

from __future__ import annotations

import dataclasses
import json
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain.model_group_tags import APART, TOGETHER, after_prefix
from ansible_collections.corral.virt.plugins.plugin_utils._commands import lost_guests

__all__ = ["RECOVERING", "Kept", "Recovery", "recovered"]

Result = t.Mapping[str, t.Any]
_KEEPING = "set hypervisor_keeps_definitions: true, and run the role corral.virt.hypervisor"
_NO_PROGRAM = 127  # the host keeps no definitions
RECOVERING = "recovering from "  # begins why a host owns a guest that it has not started yet


@dataclasses.dataclass(frozen=True)
class Kept:
    """A guest to be recovered: `of` is the UUID of the host from which it is claimed, `host` the one that an
    interrupted run has chosen, and `defined` whether it did so; `place` are options of `virt_place`.
    """

    name: str
    uuid: str
    directory: str
    of: str
    host: str
    defined: bool
    saved: str
    priority: int
    place: Result


@dataclasses.dataclass(frozen=True)
class Recovery:
    """The guests, those of highest priority first; those that are restored from a backup, and texts about all that
    could be; where each cannot be; what stays, and what refuses all of it.
    """

    guests: list[Kept]
    restored: list[lost_guests.Lost]
    lost: list[str]
    refused: list[dict[str, str]]
    stays: list[str]
    problems: list[str]


def recovered(
    shown: t.Mapping[str, Result],
    reached: t.Mapping[str, t.Sequence[Result]],
    arguments: Result,
    fence: Result,
    found: t.Mapping[str, t.Any],
) -> Recovery:
    """What is to be recovered. `shown` are the results of `corral-keep show` by living hypervisor, `reached` those of
    looks at ports of the dead one, `fence` is its variable `virt_fence`. `found` has the results of `virt_backup_info`
    (`backups`) and `virt_host_info` (`hosts`) by living hypervisor, and those that did not answer (`silent`).
    """
    dead, hosts = str(arguments["host"]), found.get("hosts", {})
    lines = {host: _lines(result) for host, result in shown.items() if result.get("rc") == 0}
    silent = {host: result for host, result in shown.items() if host not in lines}
    unknown = [f"{host} cannot tell what is kept: {_reason(result)}" for host, result in silent.items()]
    kept = _by_guest(lines)
    restored, texts, problems = _restored(dead, arguments, found, kept)
    guests, refused, stays = _guests(kept, arguments, [*lines])
    nobody = f"no hypervisor can tell what is kept: {'; '.join(unknown)}; {_KEEPING}"
    problems += _unheard(dead, silent) if lines or texts else [nobody]
    refused += [
        {"name": one.name, "host": host, "why": f"it has no backup {one.point}"}
        for one in restored
        for host in hosts
        if host not in one.hosts
    ]
    return Recovery(
        sorted(guests, key=lambda one: (-one.priority, one.name)),
        restored,
        texts,
        refused,
        [*(unknown if lines else ()), *stays],  # a site need not keep definitions to restore from backups
        [*_proof(dead, reached, arguments, fence), *problems],
    )


def _guests(
    kept: t.Mapping[str, t.Mapping[str, Result]], arguments: Result, hosts: t.Sequence[str]
) -> tuple[list[Kept], list[dict[str, str]], list[str]]:
    """The guests that are claimed, where each cannot be, and what stays. `hosts` are those that tell what is kept."""
    dead, asked = str(arguments["host"]), arguments.get("guests") or ()
    guests, refused, stays = list[Kept](), list[dict[str, str]](), list[str]()
    for uuid, seen in kept.items():
        one = next(iter(seen.values()))
        name = str(one.get("guest") or uuid)
        if problem := next((line["problem"] for line in seen.values() if line.get("problem")), ""):
            stays.append(f"{name}: {problem}")
            continue
        owner, chosen = one["owner"], _chosen(seen, dead)
        if (owner["host"] != dead and not chosen) or (asked and name not in asked):
            continue
        runs = sorted(host for host, line in seen.items() if line["active"])
        if runs:
            claim = f"corral-keep claim {uuid} {one['directory']} --because 'it runs here'"
            stays.append(f"{name}: it runs on {runs[0]}, which does not own it; on {runs[0]}: {claim}")
            continue
        guests.append(_kept(name, uuid, one, chosen, defined=bool(chosen and seen[chosen]["defined"]), hosts=hosts))
        why = f"it does not see {one['directory']}"
        refused += [{"name": name, "host": host, "why": why} for host in hosts if host not in seen]
    known = {one.name for one in guests}
    return guests, refused, [*stays, *(f"{name}: {dead} owns no such guest" for name in asked if name not in known)]


def _restored(
    dead: str, arguments: Result, found: t.Mapping[str, t.Any], kept: t.Mapping[str, t.Mapping[str, Result]]
) -> tuple[list[lost_guests.Lost], list[str], list[str]]:
    """The guests that are restored from a backup, what is told of all that could be, and problems."""
    backups, asked = found.get("backups", {}), arguments.get("from_backup") or ()
    owners = [line["owner"] for seen in kept.values() for line in seen.values() if "owner" in line]
    dead_uuid = next((str(owner["uuid"]) for owner in owners if owner["host"] == dead and owner["uuid"]), "")
    hosts = found.get("hosts", {})
    lost = lost_guests.lost(backups, hosts, dead, dead_uuid, kept)
    texts = [one.text for one in lost]
    if others := [one.name for one in lost if one.point and one.name not in asked]:
        texts.append(f"to restore those that still exist, add -e from_backup={','.join(others)}")
    problems = list(lost_guests.problems(lost, asked, backups, hosts, found.get("silent", ())))
    return [one for one in lost if one.name in asked and one.point], texts, problems


def _unheard(dead: str, silent: t.Mapping[str, Result]) -> t.Iterator[str]:
    """Why hosts that keep definitions, and do not tell them, may run a guest."""
    for host, result in silent.items():
        if result.get("rc") != _NO_PROGRAM:
            yield (
                f"{host} cannot tell what runs there: {_reason(result)}; mend it, or, if it runs no guest of {dead}, "
                f"leave it out: --limit '!{host}'"
            )


def _proof(dead: str, reached: t.Mapping[str, t.Sequence[Result]], arguments: Result, fence: Result) -> t.Iterator[str]:
    """Why the host does not count as dead."""
    confirmed, command = arguments.get("confirm_dead"), f"ansible-playbook corral.virt.recover -e host={dead}"
    answers = [
        f"{host} reaches its port {one['item']}" for host, looks in reached.items() for one in looks if _open(one)
    ]
    if confirmed and confirmed != dead:
        yield f"confirm_dead: it is {confirmed}, and the host is {dead}"
    if arguments.get("fence") and not fence.get("agent"):
        yield (
            f"fence: {dead} has no fence agent; set its variable virt_fence, such as "
            "{agent: fence_ipmilan, options: {ip: 192.0.2.7, username: admin, password: ...}}"
        )
    elif arguments.get("fence") and str(fence["agent"]).rpartition("/")[2] == "fence_dummy":
        yield f"fence: fence_dummy powers nothing off; set virt_fence of {dead} to the agent of a device that does"
    if answers and not (arguments.get("fence") and confirmed):
        yield (
            f"{dead} answers ({', '.join(answers)}), so it may run its guests, and two hosts would write their disks; "
            f"to move them: ansible-playbook corral.virt.drain -e host={dead}; to power it off although it answers: "
            f"{command} -e fence=true -e confirm_dead={dead}"
        )
    elif not arguments.get("fence") and not confirmed:
        yield (
            f"nothing proves that {dead} is dead: that it does not answer may be the network. To power it off by its "
            f"fence agent: {command} -e fence=true; or, if you have seen that it is off: {command} "
            f"-e confirm_dead={dead}"
        )


def _open(look: Result) -> bool:
    return look.get("state") == "started"  # what wait_for tells of a port that takes a connection


def _lines(result: Result) -> list[Result]:
    return [json.loads(line) for line in str(result.get("stdout") or "").splitlines()]


def _reason(result: Result) -> str:
    return str(result.get("stderr") or result.get("msg") or "no answer").strip()


def _by_guest(lines: t.Mapping[str, t.Sequence[Result]]) -> dict[str, dict[str, Result]]:
    """What each host tells of each guest."""
    found: dict[str, dict[str, Result]] = {}
    for host, each in lines.items():
        for line in each:
            found.setdefault(str(line["uuid"]), {})[host] = line
    return found


def _chosen(seen: t.Mapping[str, Result], dead: str) -> str:
    """The host on which an interrupted run was recovering the guest; empty if there is none."""
    return next(
        (
            host
            for host, line in seen.items()
            if line["owner"]["why"] == RECOVERING + dead and line["owner"]["uuid"] == line["host_uuid"]
        ),
        "",
    )


def _kept(name: str, uuid: str, line: Result, chosen: str, *, defined: bool, hosts: t.Collection[str]) -> Kept:
    needs, tags = line["needs"], line["needs"]["tags"]
    place = {
        "name": name,
        "vcpus": needs["vcpus"],
        "memory": f"{needs['memory_mib']}MiB",
        "interfaces": [{"name": f"eth{index}", **nic} for index, nic in enumerate(needs["interfaces"])],
        "disks": [],  # they are there already
        "apart": sorted({*needs["apart"], *after_prefix(tags, APART)}),
        "together": sorted({*needs.get("colocate", ()), *after_prefix(tags, TOGETHER)}),  # earlier versions kept none
        "prefer": [host for host in needs["prefer"] if host in hosts],
        **({"machine": needs["machine"]} if needs["machine"] else {}),
        **({"host": chosen} if chosen else {}),
    }
    of, saved = line["owner"]["uuid"], line["saved"]
    return Kept(name, uuid, line["directory"], of, chosen, defined, saved, needs["priority"], place)
