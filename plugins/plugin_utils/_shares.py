# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which guests each hypervisor is to have, with the options that the role guests adds. Pure."""

from __future__ import annotations

import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.corral.virt.plugins.plugin_utils import _needs
from ansible_collections.corral.virt.plugins.plugin_utils._reported import Info

__all__ = ["by_host", "differing"]

_TAGGED = ("apart", "together", "host_groups", "requires")  # in the order of the tags

Options = dict[str, t.Any]


def by_host(
    guests: t.Iterable[t.Mapping[str, t.Any]],
    placements: t.Mapping[str, str],
    reported: t.Mapping[str, Info],
    *,
    user_data: t.Mapping[str, t.Any] | None,
    wait_for_ip: str,
) -> dict[str, list[Options]]:
    """Options of the guests that were placed, by host, in their order.

    `user_data` is the seed of guests that say nothing of it themselves; None: they get none.
    """
    there = {host: {one["name"]: one for one in info.get("guests") or ()} for host, info in reported.items()}
    found: dict[str, list[Options]] = {}
    for guest in guests:
        host = placements.get(guest["name"])
        if host is None:
            continue
        known = there.get(host, {}).get(guest["name"])
        options = dict(guest)
        if user_data is not None and _lacks_seed(options, known):
            options["cloud_init"] = {"user_data": user_data, **(options.get("cloud_init") or {})}
        options.update(_tags(options, known))
        if _is_awaited(options):
            options["wait_for_ip"] = wait_for_ip
        found.setdefault(host, []).append({key: options[key] for key in options if key not in _needs.OWN})
    return found


def _lacks_seed(options: Options, known: t.Mapping[str, t.Any] | None) -> bool:
    """Whether it is made from something, and says nothing of what it is told there."""
    if "cloud_init" in options:
        seed = options["cloud_init"]
        return isinstance(seed, dict) and "user_data" not in seed
    is_complete = known is not None and not known["unfinished"]
    disks = options.get("disks") or ()
    made_from = [options.get("image"), options.get("clone_of"), *(disk.get("image") for disk in disks)]
    return not is_complete and any(made_from)


def _tags(options: Options, known: t.Mapping[str, t.Any] | None) -> Options:
    """The tags by which later runs know its groups. Who says nothing of tags keeps those that are there."""
    words = {f"{option}-": _words(options.get(option)) for option in _TAGGED}
    given = {prefix: found for prefix, found in words.items() if found}
    if not given:
        return {}
    tags = options.get("tags")
    if tags is None:
        tags = [tag for tag in (known or {}).get("tags") or () if not str(tag).startswith(tuple(given))]
    return {"tags": list(dict.fromkeys([*tags, *(prefix + word for prefix in given for word in given[prefix])]))}


def _words(value: t.Any) -> list[str]:
    return [f"{key}-{inner}" for key, inner in value.items()] if isinstance(value, dict) else _needs.words(value)


def _is_awaited(options: Options) -> bool:
    """Those that are seeded are to be reached: an address that nobody knows is waited for."""
    if "wait_for_ip" in options or not boolean(options.get("wait", True), strict=False):
        return False
    interfaces = options.get("interfaces", options.get("networks", True))
    return bool(options.get("state") == "running" and options.get("cloud_init") and interfaces)


def differing(variables: t.Mapping[str, t.Mapping[str, t.Any]], names: t.Iterable[str]) -> list[str]:
    """Those variables, as they are written, that hosts do not have in common, each with two of these hosts."""
    found = []
    for name in names:
        values = {host: mine.get(name) for host, mine in variables.items()}
        first = next(iter(values), "")
        other = next((host for host, value in values.items() if value != values[first]), None)
        if other is not None:
            found.append(f"{name} ({first}, {other})")
    return found
