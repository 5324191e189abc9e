# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which guests are still on a host that guests were to leave, and which migrations are unfinished. Pure."""

from __future__ import annotations

import typing as t

__all__ = ["staying"]

Guest = t.Mapping[str, t.Any]


def staying(
    host: str, seen: t.Mapping[str, t.Any], *, stays: t.Sequence[Guest], moved: t.Any, emptied: str | None
) -> list[str]:
    """A line for each, below a heading; none where all is done.

    `seen` are the results of `virt_host_info`, by host. `stays` did not move, `moved` is the result of
    `virt_migrations`. `emptied` is the UUID of a host that is emptied: then migrations from there count on every host.
    """
    left = [f"{guest['name']}: {guest['why']}" for guest in stays]
    left += [f"{result['name']}: {result['msg']}" for result in _of(moved, "results") if "failed" in result]
    unfinished = [
        _unfinished(guest, where)
        for where, result in seen.items()
        for guest in _of((result or {}).get("host"), "guests")
        if guest.get("moving") and (where == host or (emptied and guest.get("moving_from") == emptied))
    ]
    return [
        *([f"These guests stay on {host}", *left] if left else ()),
        *(["These migrations are unfinished", *unfinished] if unfinished else ()),
    ]


def _of(result: t.Any, key: str) -> t.Sequence[Guest]:
    """Guests in a result, which another host or a skipped task may not have."""
    return (isinstance(result, dict) and result.get(key)) or ()


def _unfinished(guest: Guest, where: str) -> str:
    name, dest = guest["name"], guest["moving"]
    finish = f"finish it (playbook migrate -e guest={name} -e to={dest})"
    return f"{name}: migrating to {dest}, now {guest['state']} on {where}; run the same command again, or {finish}"
