# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses the contents of images on other hosts than one. Pure."""

from __future__ import annotations

import os.path
import typing as t

Results = t.Mapping[str, t.Any]


def elsewhere(results: Results, host: str, users: Results) -> dict[str, str]:
    """A user of each content, from the results of `virt_image_info` by host, other than the one of `host`.

    `users` has the results of `virt_volume_info`, by host, of hosts that were asked by the paths of the contents.
    """
    return _but(host, _by_content(results, users))


def elsewhere_of_all(results: Results, users: Results) -> dict[str, dict[str, str]]:
    """The same of each host that has answered, by host."""
    found = _by_content(results, users)
    return {host: _but(host, found) for host in results}


def _by_content(results: Results, users: Results) -> dict[str, dict[str, str]]:
    """A user on each of the first two hosts that use a content: of these, one is another host than any."""
    found: dict[str, dict[str, str]] = {}
    for host in sorted(results):
        its = [pair for image in results[host].get("images") or () for pair in _users(image)]
        by_path = (users.get(host) or {}).get("users") or {}
        its += [(os.path.basename(path), str(user)) for path, user in by_path.items() if user]
        for content, user in its:
            hosts = found.setdefault(content, {})
            if host in hosts or len(hosts) < 2:
                hosts.setdefault(host, f"{user} on {host}")
    return found


def _but(host: str, users: t.Mapping[str, t.Mapping[str, str]]) -> dict[str, str]:
    first = {content: [user for other, user in its.items() if other != host] for content, its in users.items()}
    return {content: its[0] for content, its in first.items() if its}


def _users(image: t.Mapping[str, t.Any]) -> list[tuple[str, str]]:
    """The contents of an image that are in use; where only its name is, that is what it points to."""
    used = [(str(one["content"]), str(one["used_by"])) for one in image["contents"] if one["used_by"]]
    by_name = [(str(image["content"]), "a disk")] if image["used"] and not used and image["content"] else []
    return used or by_name
