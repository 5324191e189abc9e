# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that stay on a host that they should leave, and unfinished migrations. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import ACTIVE

Guest = t.Mapping[str, t.Any]


def staying(
    host: str,
    seen: t.Mapping[str, t.Any],
    *,
    stays: t.Sequence[Guest],
    moved: t.Any,
    emptied: str | None,
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
