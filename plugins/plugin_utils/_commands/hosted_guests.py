# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests from the answers of their hypervisors, and those that stay on a host that they should leave. Pure."""

from __future__ import annotations

import dataclasses
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
) -> list[str]:
    """A line for each such guest or migration, below a heading; empty if all is done.

    `seen` are the results of `virt_host_info`, by host. `stays` did not move, `moved` is the result of
    `virt_migrations`. `emptied` is the UUID of a host that is emptied: then migrations from there count on every host.
    `running_only` is None unless a host is emptied of its running, or all, guests: then the guests still there count.
    """
    reasons = {guest["name"]: guest["why"] for guest in stays}
    reasons.update({result["name"]: result["msg"] for result in _of(moved, "results") if "failed" in result})
    if running_only is not None and host in seen:
        there = [guest for guest in _guests(seen[host]) if not running_only or guest["state"] in ACTIVE]
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
