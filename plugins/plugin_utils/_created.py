# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the inventory shows a guest that a playbook has created, and whether it must be reached there. Pure."""

from __future__ import annotations

import re
import typing as t

__all__ = ["created"]

Variables = t.Mapping[str, t.Any]


def created(
    guest: Variables,
    placed: Variables,
    groups: t.Mapping[str, t.Collection[str]],
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
    problem = (
        f"{name} runs, but the inventory has no address for it; warnings above may say why, and `ansible-inventory "
        f"--host {name}` shows what is known"
    )
    return {"shown": shown, "reached": reached, "problem": problem if reached and not known else ""}


def _shown(name: str, host: str, groups: t.Mapping[str, t.Collection[str]], hostvars: t.Mapping[str, Variables]) -> str:
    """Its name in the inventory, which may show guests under others."""
    for shown in groups.get(f"on_{re.sub('[^A-Za-z0-9_]', '_', host)}", ()):
        known = hostvars[shown]
        if known.get("virt_name") == name and known.get("virt_hypervisor") == host:
            return shown
    return name


def _lets_in(guest: Variables, host: Variables) -> bool:
    """Whether it runs, and lets somebody in: one that the collection has seeded does."""
    made = (host.get("__guests_result") or {}).get("results") or ()
    seeded = any(isinstance(one, dict) and "ssh_host_key" in one for one in made)
    return bool(guest.get("state") == "running" and guest.get("wait_for_ip") != "none" and seeded)
