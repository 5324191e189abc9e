# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the inventory shows guests that a playbook has created, and whether they must be reached there. Pure."""

from __future__ import annotations

import re
import typing as t

__all__ = ["created", "missing"]

Variables = t.Mapping[str, t.Any]
Groups = t.Mapping[str, t.Collection[str]]


def created(
    guest: Variables,
    placed: Variables,
    groups: Groups,
    hostvars: t.Mapping[str, Variables],
    *,
    awaited: bool,
) -> dict[str, t.Any]:
    """Its name in the inventory, whether it is `reached`, and the `problem`: it was not placed, or has no address.

    `guest` are its options; `awaited` is False where the inventory cannot have it.
    """
    name = str(guest["name"])
    host = placed["placements"].get(name)
    if host is None:
        return {"shown": name, "reached": False, "problem": "; ".join(placed["explained"]) or f"{name} was not placed"}
    shown = _shown(name, host, groups, hostvars)
    # Without the inventory plugin nobody knows where it is.
    reached = awaited and "guests_running" in groups and _lets_in(guest, hostvars[host])
    known = shown in groups["all"] and "ansible_host" in hostvars[shown]
    problem = f"{name} runs, but the inventory has no address for it; {_remedy(name)}"
    return {"shown": shown, "reached": reached, "problem": problem if reached and not known else ""}


def missing(
    guests: t.Sequence[Variables], host: str, groups: Groups, hostvars: t.Mapping[str, Variables]
) -> dict[str, t.Any]:
    """Names of guests of a host that the inventory has no address for: `running` ones, and the `problem` of those that
    are waited for.
    """
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


def _unreachable(names: t.Sequence[str], host: str) -> str:
    them = "it" if len(names) == 1 else "them"
    why = f"the inventory has no address to reach {them}; {_remedy(names[0])}"
    return f"{', '.join(names)} should run on {host}, but {why}"


def _remedy(name: str) -> str:
    return f"warnings above may say why, and `ansible-inventory --host {name}` shows what is known"


def _on(host: str, groups: Groups) -> t.Collection[str]:
    """Guests of a host, by their names in the inventory."""
    return groups.get(f"on_{re.sub('[^A-Za-z0-9_]', '_', host)}", ())


def _shown(name: str, host: str, groups: Groups, hostvars: t.Mapping[str, Variables]) -> str:
    """Its name in the inventory, which may show guests under others."""
    for shown in _on(host, groups):
        known = hostvars[shown]
        if known.get("virt_name") == name and known.get("virt_hypervisor") == host:
            return shown
    return name


def _lets_in(guest: Variables, host: Variables) -> bool:
    """Whether it runs, and lets somebody in: one that the collection has seeded does."""
    made = (host.get("__guests_result") or {}).get("results") or ()
    seeded = any(isinstance(one, dict) and "ssh_host_key" in one for one in made)
    return bool(guest.get("state") == "running" and guest.get("wait_for_ip") != "none" and seeded)
