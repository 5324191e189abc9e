# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a hypervisor counts as dead, and which of its guests others can run. Pure."""

from __future__ import annotations

import dataclasses
import json
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.output import agree
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import APART, TOGETHER, after_prefix
from ansible_collections.corral.virt.plugins.plugin_utils._commands import lost_guests
from ansible_collections.corral.virt.plugins.plugin_utils._report.wording import enumerated

Result = t.Mapping[str, t.Any]
_KEEPING = "set hypervisor_keeps_definitions: true, and run the role corral.virt.hypervisor"
_NO_PROGRAM = 127  # the host keeps no definitions
_MIGRATED = "migrated"  # why nobody owns a guest that has left its host
_UNKNOWN = (
    "no guest is kept of it, and it is not in the inventory; ansible-playbook corral.virt.list shows the hypervisors"
)
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
    could be; where each cannot be; what stays, and what refuses all of it. `hosts` are those of `found` as placement is
    to see them; `answers` tells whether the hypervisor does, so that its guests run.
    """

    guests: list[Kept]
    restored: list[lost_guests.Lost]
    lost: list[str]
    refused: list[dict[str, str]]
    stays: list[str]
    problems: list[str]
    hosts: dict[str, Result]
    answers: bool


def recovered(
    shown: t.Mapping[str, Result],
    reached: t.Mapping[str, t.Sequence[Result]],
    arguments: Result,
    fence: Result,
    found: t.Mapping[str, t.Any],
) -> Recovery:
    """What is to be recovered. `shown` are the results of `corral-keep show` by living hypervisor, `reached` those of
    looks at ports of the dead one, `fence` is its variable `virt_fence`. `found` has the results of `virt_backup_info`
    (`backups`) and `virt_host_info` (`hosts`) by living hypervisor, those that did not answer (`silent`), those that
    `--limit` excludes (`hidden`), and whether the dead one is in the inventory (`known`).
    """
    dead, hosts = str(arguments["host"]), found.get("hosts", {})
    lines = {host: _lines(result) for host, result in shown.items() if result.get("rc") == 0}
    silent = {host: result for host, result in shown.items() if host not in lines}
    unknown = [f"{host} cannot tell what is kept: {_reason(result)}" for host, result in silent.items()]
    kept, stays = _by_guest(lines, dead)
    restored, texts, problems = _restored(dead, arguments, found, kept)
    guests, refused, left = _guests(kept, arguments, [*lines])
    running = dict(_running(hosts, guests))
    stays, guests = [*stays, *left, *running.values()], [one for one in guests if one.uuid not in running]
    if guests or stays:
        problems += _same_machine(dead, lines, kept)
    elif not (texts or found.get("known", True)):
        problems.append(f"host: nothing is known of {dead}: {_UNKNOWN}")
    nobody = f"no hypervisor can tell what is kept: {'; '.join(unknown)}; {_KEEPING}"
    problems += _unheard(dead, silent, arguments) if lines or texts else [nobody]
    problems += _unseen(dead, found, arguments, is_due=bool(guests or stays or texts))
    hosts, namesakes = _without_copies(hosts, guests)
    return Recovery(
        sorted(guests, key=lambda one: (-one.priority, one.name)),
        restored,
        texts,
        [*refused, *namesakes, *_without_backup(restored, hosts)],
        [*(unknown if lines else ()), *stays],  # a site need not keep definitions to restore from backups
        [*_proof(dead, reached, arguments, fence), *problems],
        hosts,
        any(map(_open, (look for looks in reached.values() for look in looks))),
    )


def _guests(
    kept: t.Mapping[str, t.Mapping[str, Result]], arguments: Result, hosts: t.Sequence[str]
) -> tuple[list[Kept], list[dict[str, str]], list[str]]:
    """The guests that are claimed, where each cannot be, and what stays. `hosts` are those that tell what is kept."""
    dead, asked = str(arguments["host"]), arguments.get("guests") or ()
    guests, refused, stays, done = list[Kept](), list[dict[str, str]](), list[str](), set[str]()
    for uuid, seen in kept.items():
        one = next(iter(seen.values()))
        name = str(one.get("guest") or uuid)
        if problem := next((line["problem"] for line in seen.values() if line.get("problem")), ""):
            stays.append(f"{name}: {problem}")
            continue
        owner, chosen = one["owner"], _chosen(seen, dead)
        if not (owner["host"] == dead or owner["why"] == RECOVERING + dead or _lost(seen)) or (
            asked and name not in asked
        ):
            continue
        runs = sorted(host for host, line in seen.items() if line["active"])
        place = f"{uuid} {shlex.quote(one['directory'])}"
        if runs == [chosen]:
            done.add(name)  # by an interrupted run
            continue
        if runs:
            claim = f"corral-keep claim {place} --because 'it runs here'"
            stays.append(f"{name}: it runs on {runs[0]}, which does not own it; on {runs[0]}: {claim}")
            continue
        if owner["why"] == RECOVERING + dead and not chosen:
            stays.append(
                f"{name}: an interrupted run has chosen {owner['host']}, which was not asked; run it without --limit, "
                f"or, if {owner['host']} is dead, too: ansible-playbook corral.virt.recover -e host={owner['host']}"
            )
            continue
        guests.append(_kept(name, uuid, one, chosen, defined=bool(chosen and seen[chosen]["defined"]), hosts=hosts))
        why = f"it does not see {one['directory']}"
        refused += [{"name": name, "host": host, "why": why} for host in hosts if host not in seen]
    known = {one.name for one in guests} | done
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
    problems = list(lost_guests.problems(lost, asked, backups, hosts))
    return [one for one in lost if one.name in asked and one.point], texts, problems


def _without_backup(restored: t.Sequence[lost_guests.Lost], hosts: t.Iterable[str]) -> t.Iterator[dict[str, str]]:
    """Where guests cannot be restored."""
    for host in hosts:
        for one in restored:
            if host not in one.hosts:
                yield {"name": one.name, "host": host, "why": f"it has no backup {one.point}"}


def _unheard(dead: str, silent: t.Mapping[str, Result], arguments: Result) -> t.Iterator[str]:
    """Why hosts that keep definitions, and do not tell them, may run a guest."""
    for host, result in silent.items():
        if result.get("rc") != _NO_PROGRAM:
            yield (
                f"{host} cannot tell what runs there, which may be guests of {dead}: {_reason(result)}; mend it, or "
                f"switch it off, and then: {_as_gone([host], arguments)}"
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


def _by_guest(lines: t.Mapping[str, t.Sequence[Result]], dead: str) -> tuple[dict[str, dict[str, Result]], list[str]]:
    """What each host tells of each guest; texts about those of the dead one that are kept twice, which are left out."""
    found: dict[str, dict[str, Result]] = {}
    places: dict[str, dict[str, str]] = {}
    for host, each in lines.items():
        for line in each:
            found.setdefault(str(line["uuid"]), {})[host] = line
            if line.get("owner", {}).get("host") == dead:
                places.setdefault(str(line["uuid"]), {})[str(line["directory"])] = str(line["saved"])
    texts = []
    for uuid, saved in places.items():
        if len(saved) > 1:
            name = next((str(one["guest"]) for one in found.pop(uuid).values() if "guest" in one), uuid)
            old = min(saved, key=lambda place: saved[place])
            where = " and ".join(
                f"{place}, saved {saved[place]}" for place in sorted(saved, key=lambda place: saved[place])
            )
            remove = f"rm -r {shlex.quote(f'{old}/.corral/guests/{uuid}')}"
            texts.append(
                f"{name}: it is kept in {where}, as its disk has moved; if {old} has no disk of it any more: {remove}"
            )
    return found, texts


def _lost(seen: t.Mapping[str, Result]) -> bool:
    """True for a guest that had migrated to a host which had no time to become its owner: nobody has it."""
    owners = [line["owner"] for line in seen.values()]
    return all(not one["uuid"] and one["why"] == _MIGRATED for one in owners) and not any(
        line["defined"] for line in seen.values()
    )


def _same_machine(
    dead: str, lines: t.Mapping[str, t.Sequence[Result]], kept: t.Mapping[str, t.Mapping[str, Result]]
) -> t.Iterator[str]:
    """Why hosts cannot be told apart: libvirt's hook lets a guest start on all that have the UUID of its owner."""
    uuids = {host: str(line["host_uuid"]) for host, each in lines.items() for line in each if "host_uuid" in line}
    owners = [line["owner"] for seen in kept.values() for line in seen.values() if "owner" in line]
    uuids.update((dead, str(one["uuid"])) for one in owners if one["host"] == dead and one["uuid"])
    for uuid in sorted({*uuids.values()}):
        if len(same := sorted(host for host in uuids if uuids[host] == uuid)) > 1:
            yield (
                f"{' and '.join(same)} are one machine, or clones that libvirt knows by one UUID, {uuid}; set another "
                "host_uuid in libvirtd.conf of each clone"
            )


def _unseen(dead: str, found: t.Mapping[str, t.Any], arguments: Result, *, is_due: bool) -> t.Iterator[str]:
    """Hosts that may run a guest which has migrated there before its host died, or which that host never had. Those
    that do not answer count only if something is to be told of guests (`is_due`).
    """
    hidden, silent = found.get("hidden", ()), found.get("silent", ()) if is_due else ()
    may = f"may run guests of {dead}"
    if hidden:
        yield f"--limit excludes {enumerated(hidden)}, which {may}; omit --limit"
    if silent:
        does, it, is_ = (agree(len(silent), *pair) for pair in (("does", "do"), ("it", "them"), ("it is", "they are")))
        yield (
            f"{enumerated(silent)} {does} not answer, and {may}; start {it}, or, if {is_} dead, too: "
            f"{_as_gone(silent, arguments)}"
        )


def _as_gone(hosts: t.Sequence[str], arguments: Result) -> str:
    """The arguments by which these hosts, and those that are given already, count as dead."""
    names = ",".join([*(arguments.get("gone") or ()), *hosts])
    return f"-e gone={names} -e confirm={names}"


def _running(hosts: t.Mapping[str, Result], guests: t.Sequence[Kept]) -> t.Iterator[tuple[str, str]]:
    """UUIDs of guests that run on a host which keeps no definitions, and says so only if it is asked for its guests."""
    names = {one.uuid: one.name for one in guests}
    for host, result in hosts.items():
        for one in result.get("host", {}).get("guests", ()):
            if one["uuid"] in names and one["state"] != "shutdown":
                yield (
                    one["uuid"],
                    f"{names[one['uuid']]}: it runs on {host}, which does not own it; on {host}, {_KEEPING}",
                )


def _without_copies(
    hosts: t.Mapping[str, Result], guests: t.Sequence[Kept]
) -> tuple[dict[str, Result], list[dict[str, str]]]:
    """Hosts without their definitions of the guests, which are old; and where another guest has the name of one."""
    uuids, names = {one.uuid for one in guests}, {one.name: one.uuid for one in guests}
    found, refused = dict[str, Result](), list[dict[str, str]]()
    for host, result in hosts.items():
        found[host] = result
        if "host" not in result:
            continue
        there = [one for one in result["host"]["guests"] if one["uuid"] not in uuids]
        for one in there:
            if one["name"] in names:
                why = f"it has another guest of this name (UUID {one['uuid']}); virsh domrename it"
                refused.append({"name": one["name"], "host": host, "why": why})
        there = [{**one, "name": one["uuid"]} if one["name"] in names else one for one in there]
        found[host] = {**result, "host": {**result["host"], "guests": there}}
    return found, refused


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
    of, saved = line["owner"]["uuid"] or "nobody", line["saved"]
    return Kept(name, uuid, line["directory"], of, chosen, defined, saved, needs["priority"], place)
