# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests from the answers of their hypervisors, and those that stay on a host that they should leave. Pure."""

from __future__ import annotations

import dataclasses
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._core.output import some_of
from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import ACTIVE
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable
from ansible_collections.corral.virt.plugins.plugin_utils._report.wording import enumerated

_CLOCK_END_S = 2**40
SHOWN = 20  # names in a message


@dataclasses.dataclass(frozen=True)
class Hosts:
    """The hypervisors: those that answered, those that did not, and those that `--limit` excludes."""

    group: str
    answered: tuple[str, ...]
    silent: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    # other hosts of the inventory, by `destination`
    strangers: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    # of those that answered, in seconds since 1970
    clocks: t.Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"none of {some_of(self.answered, SHOWN)} has it" if self.answered else "no hypervisor answered"]
        if self.silent:
            parts.append(f"{enumerated(self.silent)} could not be reached and may have it")
        if self.hidden:
            parts.append(f"--limit excludes {some_of(self.hidden, SHOWN)}")
        return "; ".join(parts)


@dataclasses.dataclass(frozen=True)
class HostedGuest:
    """A guest as one host has it."""

    host: str
    name: str
    uuid: str
    state: str
    tags: tuple[str, ...] = ()
    moving: bool = False  # a migration of it is recorded


def answers(results: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Results of the hosts that answered.

    Raises BadInput, naming each host, for results that `virt_state_info` and `virt_host_info` never return.
    """
    answered = {
        host: _guests_of(result)
        for host, result in results.items()
        if isinstance(result, dict) and ("domains" in result or "host" in result) and not result.get("failed")
    }
    odd = [host for host, result in answered.items() if not _is_answer(result)]
    if odd:
        remedy = "inspect the host, or exclude it: --limit"
        raise BadInput(
            printable([f"{host}: its list of guests cannot be read; {remedy} 'all:!{host}'" for host in odd])
        )
    return answered


def _guests_of(result: t.Mapping[str, t.Any]) -> t.Mapping[str, t.Any]:
    """The guests of a `virt_host_info` result, in the form of `virt_state_info`; the latter's as they are."""
    if "domains" in result or not isinstance(result["host"], dict):
        return {"domains": None, **result}
    return {"domains": result["host"].get("guests")}


def _is_answer(result: t.Mapping[str, t.Any]) -> bool:
    domains, clock = result["domains"], result.get("clock") or 0.0
    return (
        isinstance(domains, list)
        and all(map(_is_guest, domains))
        and isinstance(clock, (int, float))
        and 0 <= clock < _CLOCK_END_S
    )


def _is_guest(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    texts, tags = [item.get(key) for key in ("name", "uuid", "state")], item.get("tags") or []
    return isinstance(tags, list) and all(isinstance(text, str) for text in (*texts, *tags))


def copies(results: t.Mapping[str, t.Any]) -> list[HostedGuest]:
    """Guests in results of `virt_state_info`, by host. Guests with names that libvirt does not allow are left out."""
    there = []
    for host, result in sorted(results.items()):
        for item in result["domains"]:
            if _is_name(item["name"]):
                tags = tuple(item.get("tags") or ())
                there.append(
                    HostedGuest(host, item["name"], item["uuid"], item["state"], tags, item.get("moving") is True)
                )
    return there


def _is_name(name: object) -> bool:
    try:
        return bool(units.check_existing_name(name, what="guest"))
    except BadInput:
        return False


Guest = t.Mapping[str, t.Any]


def staying(
    host: str,
    seen: t.Mapping[str, t.Any],
    stays: t.Sequence[Guest],
    moved: t.Any,
    emptied: str | None = None,
    running_only: bool | None = None,
    kept: t.Collection[str] = (),
) -> list[str]:
    """A line for each such guest or migration, below a heading; empty if all is done.

    `seen` are the results of `virt_host_info`, by host. `stays` did not move, `moved` is the result of
    `virt_migrations`. `emptied` is the UUID of a host that is emptied: then migrations from there count on every host.
    `running_only` is None unless a host is emptied of its running, or all, guests: then the guests still there count,
    but for those `kept` (UUIDs) that are off.
    """
    reasons = {guest["name"]: guest["why"] for guest in stays}
    reasons.update({result["name"]: result["msg"] for result in _of(moved, "results") if "failed" in result})
    if running_only is not None and host in seen:
        there = [
            guest
            for guest in _guests(seen[host])
            if guest["state"] in ACTIVE or not (running_only or guest["uuid"] in kept)
        ]
        reasons = {guest["name"]: reasons.get(guest["name"]) or _unexpected(guest) for guest in there}
    unfinished = [
        _unfinished(guest, where)
        for where, result in seen.items()
        for guest in _guests(result)
        if guest.get("moving") and (where == host or (emptied and guest.get("moving_from") == emptied))
    ]
    left = [f"{name}: {why}" for name, why in reasons.items()]
    return [
        *([f"These guests stay on {host}", *left] if left else ()),
        *(["These migrations are unfinished", *unfinished] if unfinished else ()),
    ]


def running(host: str, result: t.Any, act: str) -> dict[str, list[str]]:
    """Guests that run on a host that is to be `act` (rebooted), and guests that are migrating."""
    there = [guest for guest in _guests(result) if guest["state"] != "shutdown"]
    lines = [f"{guest['name']}: {guest['state']}" for guest in there]
    remedy = (
        f"{host} stays in maintenance. Run the same command again, which moves them; or add -e force=true, which shuts "
        "them down before a reboot and starts them afterwards"
    )
    arriving = [_unfinished(guest, host) for guest in there if guest.get("moving")]
    return {
        "running": [f"These guests run on {host}, which is to be {act}", *lines, remedy] if lines else [],
        "arriving": ["These migrations are unfinished", *arriving] if arriving else [],
    }


def starting(
    host: str,
    seen: t.Mapping[str, t.Any],
    group: t.Sequence[str],
    noted: t.Collection[str],
    booted: bool = False,
    stopped: t.Collection[str] = (),
    hidden: t.Collection[str] = (),
    gone: t.Sequence[str] = (),
) -> dict[str, list[dict[str, t.Any]]]:
    """Guests to start (`now`) when the maintenance of a host ends, and those that stay `off`, each with its reason.

    `seen` are the results of `virt_host_info` of this host, and of `virt_state_info` or `virt_host_info` of the others
    of a `group` of hypervisors. `noted` are UUIDs of guests that are to start; those that start with their host are,
    too, if it has `booted`. `stopped` are names of guests that this run has stopped, which therefore run nowhere else.
    `hidden` are hosts that `--limit` excludes, `gone` those that were declared dead. Guests that are off on another
    host by now stay off, and may start there.
    """
    found: dict[str, list[dict[str, t.Any]]] = {"now": [], "off": []}
    answered = answers({other: result for other, result in seen.items() if other != host})
    active = [
        (other, guest)
        for other, result in answered.items()
        for guest in result["domains"]
        if guest["state"] != "shutdown"
    ]
    unseen = [other for other in group if other not in (host, *gone) and other not in answered]
    for guest in _guests(seen.get(host)):
        if guest["state"] == "shutdown" and (guest["uuid"] in noted or (booted and guest["autostart"])):
            name, uuid = guest["name"], guest["uuid"]
            if why := _why_off(host, guest, active):
                found["off"].append({"name": name, "uuid": uuid, "why": why, "may_start": False})
            elif unseen and name not in stopped:
                why = _why_unknown(name, {other: _error(seen.get(other)) for other in unseen}, hidden, gone)
                found["off"].append({"name": name, "uuid": uuid, "why": why, "may_start": True})
            else:
                found["now"].append({"name": name, "uuid": uuid, "state": "running"})
    found["off"] += _off_elsewhere(set(noted) - {guest["uuid"] for guest in _guests(seen.get(host))}, answered)
    return found


def _off_elsewhere(uuids: t.Collection[str], answered: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """Of these guests, those that are off on all hosts that answered and have them."""
    known = [
        (other, guest) for other, result in answered.items() for guest in result["domains"] if guest["uuid"] in uuids
    ]
    active = {guest["uuid"] for _other, guest in known if guest["state"] != "shutdown"}
    remedy = "to start it there: ansible-playbook corral.virt.start -e guest="
    return [
        {
            "name": guest["name"],
            "uuid": guest["uuid"],
            "may_start": True,
            "why": f"it is on {other} by now; {remedy}{shlex.quote(guest['name'])}",
        }
        for other, guest in known
        if guest["uuid"] not in active
    ]


def _why_off(host: str, guest: Guest, active: t.Sequence[tuple[str, Guest]]) -> str:
    """Why a guest must not start on a host; empty if it may. `active` are guests of others, by host."""
    if guest.get("moving") or guest.get("unfinished"):
        return "it is being migrated or created, or that was interrupted; finish that"
    for other, one in active:
        if one["uuid"] == guest["uuid"]:
            name = "" if one["name"] == guest["name"] else f" as {one['name']}"
            before = f" before {host} boots again and starts its own" if guest["autostart"] else ""
            return f"it is {one['state']} on {other}{name}; compare both copies, and undefine the wrong one{before}"
    for other, one in active:
        if one["name"] == guest["name"]:
            text = f"another guest of this name is {one['state']} on {other} (UUID {one['uuid']})"
            return f"{text}; rename one of them (virsh domrename)"
    return ""


def _error(result: t.Any) -> str:
    """Why a host did not answer, in its words."""
    return str((isinstance(result, dict) and result.get("msg")) or "")


def _why_unknown(name: str, unseen: t.Mapping[str, str], hidden: t.Collection[str], gone: t.Sequence[str]) -> str:
    """Why a guest does not start that may run on hosts of which nothing is known but their errors."""
    excluded, silent = ([one for one in unseen if (one in hidden) is is_hidden] for is_hidden in (True, False))
    remedies = [f"omit --limit, which excludes {some_of(excluded, SHOWN)}"] if excluded else []
    if silent:
        dead = ",".join([*gone, *silent])
        some = "it is dead" if len(silent) == 1 else "all of them are dead, otherwise with the dead ones only"
        remedies.append(
            f"run it again when {enumerated(silent)} can be asked; or, if {some}: -e gone={dead} -e confirm={dead}; or "
            f"start it yourself: ansible-playbook corral.virt.start -e guest={name}"
        )
    errors = some_of([f"{host}: {error}" for host, error in unseen.items() if error], SHOWN)
    why = f" ({errors})" if errors else ""
    return "; ".join([f"it may run on {some_of(list(unseen), SHOWN)}, of which nothing is known{why}", *remedies])


def _of(result: t.Any, key: str) -> t.Sequence[Guest]:
    """Entries of a result; empty for a failed host or a skipped task."""
    return (isinstance(result, dict) and result.get(key)) or ()


def _guests(result: t.Any) -> t.Sequence[Guest]:
    return _of((result or {}).get("host"), "guests")


def _unexpected(guest: Guest) -> str:
    return (
        f"it is {guest['state']}, and was started or migrated there while others left; run the same command again, "
        "which moves it"
    )


def _unfinished(guest: Guest, where: str) -> str:
    name, dest = guest["name"], guest["moving"]
    finish = f"finish it (playbook migrate -e guest={name} -e to={dest})"
    return f"{name}: migrating to {dest}, now {guest['state']} on {where}; run the same command again, or {finish}"
