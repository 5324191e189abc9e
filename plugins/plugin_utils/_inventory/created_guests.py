# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the inventory shows guests that a playbook has created or started, and whether they are reachable. Pure."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.output import agree

# Which guests are gone, and which have new names, after hosts did what they were told. Pure.


def new_names(chosen: t.Mapping[str, t.Any], results: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Names that are `absent` from all hosts, and those `renamed` (old -> new).

    `chosen` is the result of `virt_find`, `results` are those of `virt_domains`, by host. A name that
    several guests share is not renamed: records under it may be another guest's.
    """
    done = [
        item
        for host, items in chosen["domains"].items()
        for item in items
        if item["name"] in _done(results.get(host))  # a host speaks of its own guests only
    ]
    return {
        # of a copy that is removed, the guest itself may be on a host that did not tell
        "absent": [item["name"] for item in done if item.get("state") == "absent" and not chosen.get("unasked")],
        "renamed": {
            item["renamed_from"]: item["name"]
            for item in done
            if "renamed_from" in item and item["renamed_from"] not in chosen["namesakes"]
        },
    }


def _done(result: object) -> set[str]:
    """Names of guests in a host's result that have not failed."""
    items = result.get("results") if isinstance(result, dict) else None
    return {str(one.get("name")) for one in items or () if isinstance(one, dict) and "failed" not in one}


Variables = t.Mapping[str, t.Any]
Groups = t.Mapping[str, t.Collection[str]]


def created(
    guest: Variables,
    placed: Variables,
    groups: Groups,
    hostvars: t.Mapping[str, Variables],
    awaited: bool = True,
) -> dict[str, t.Any]:
    """The guest's name in the inventory, its host, whether it is `reached`, and a `problem`: not placed, or no address.

    `guest` are its options; `awaited` is False if the inventory cannot have it.
    """
    name = str(guest["name"])
    host = placed["placements"].get(name)
    if host is None:
        problem = "; ".join(placed["explained"]) or f"{name} was not placed"
        return {"shown": name, "host": "", "reached": False, "problem": problem}
    shown = _shown(name, host, groups, hostvars)
    # Without the inventory plugin nobody knows where it is.
    reached = awaited and "guests_running" in groups and _lets_in(guest, hostvars[host])
    known = shown in groups["all"] and "ansible_host" in hostvars[shown]
    problem = f"{name} runs, but the inventory has no address for it; {_remedy(name)}"
    problem = problem if reached and not known else ""
    return {"shown": shown, "host": host, "reached": reached, "problem": problem}


def missing(
    guests: t.Sequence[Variables], host: str, groups: Groups, hostvars: t.Mapping[str, Variables]
) -> dict[str, t.Any]:
    """Guests of a host without an address in the inventory: `running` ones, and the `problem` of awaited ones."""
    candidates = {*(str(guest["name"]) for guest in guests), *_on(host, groups)}
    known = [
        shown
        for shown in candidates.intersection(groups.get("guests_running", ()))
        if "ansible_host" in hostvars[shown]
    ]
    reached = {*known, *(hostvars[shown].get("virt_name") for shown in known)}
    unknown = [guest for guest in guests if str(guest["name"]) not in reached]
    awaited = [str(guest["name"]) for guest in unknown if guest.get("wait_for_ip", "none") != "none"]
    return {
        "running": [guest["name"] for guest in unknown if guest.get("state") == "running"],
        "problem": _unreachable(awaited, host) if awaited else "",
    }


def reached(
    guests: t.Sequence[Variables], groups: Groups, hostvars: t.Mapping[str, Variables]
) -> list[dict[str, t.Any]]:
    """Each guest with its name in the inventory and an address: the inventory's, else the first that its host found.

    The address is empty if neither has one.
    """
    logins = []
    for guest in guests:
        name, host = str(guest["name"]), str(guest["host"])
        shown = _shown(name, host, groups, hostvars)
        known = hostvars[shown].get("ansible_host") if shown in groups["all"] else None
        seen = [
            address
            for one in (hostvars[host].get("__guests_addressed") or {}).get("guests") or ()
            if one["uuid"] == guest["uuid"]
            for address in one["addresses"]
        ]
        address = known or [*seen, ""][0]
        logins.append({"name": name, "host": host, "shown": shown, "known": bool(known), "address": address})
    return logins


def _unreachable(names: t.Sequence[str], host: str) -> str:
    them = agree(len(names), "it", "them")
    why = f"the inventory has no address to reach {them}; {_remedy(names[0])}"
    return f"{', '.join(names)} should run on {host}, but {why}"


def _remedy(name: str) -> str:
    return f"warnings above may say why, and `ansible-inventory --host {name}` shows what is known"


def _on(host: str, groups: Groups) -> t.Collection[str]:
    """A host's guests, by their names in the inventory."""
    return groups.get(f"on_{re.sub('[^A-Za-z0-9_]', '_', host)}", ())


def _shown(name: str, host: str, groups: Groups, hostvars: t.Mapping[str, Variables]) -> str:
    """The guest's name in the inventory, which may show it under another."""
    for shown in _on(host, groups):
        known = hostvars[shown]
        if known.get("virt_name") == name and known.get("virt_hypervisor") == host:
            return shown
    return name


def _lets_in(guest: Variables, host: Variables) -> bool:
    """True if the guest runs and accepts logins: one that the collection has seeded does."""
    made = (host.get("__guests_result") or {}).get("results") or ()
    seeded = any(isinstance(one, dict) and "ssh_host_key" in one for one in made)
    return bool(guest.get("state") == "running" and guest.get("wait_for_ip") != "none" and seeded)
