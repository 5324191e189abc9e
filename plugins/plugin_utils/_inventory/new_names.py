# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which guests are gone, and which have new names, after hosts did what they were told. Pure."""

from __future__ import annotations

import typing as t

__all__ = ["changed"]


def changed(chosen: t.Mapping[str, t.Any], results: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Names that are `absent`, and those `renamed` (old -> new), from the guests that `virt_find` has chosen and what
    `virt_domains` returned, by host.

    A name that several guests have is not renamed: what is known under it may be another guest's.
    """
    done = [
        item
        for host, items in chosen["domains"].items()
        for item in items
        if item["name"] in _done(results.get(host))  # a host speaks of its own guests only
    ]
    return {
        "absent": [item["name"] for item in done if item.get("state") == "absent"],
        "renamed": {
            item["renamed_from"]: item["name"]
            for item in done
            if "renamed_from" in item and item["renamed_from"] not in chosen["namesakes"]
        },
    }


def _done(result: object) -> set[str]:
    """Names of guests that a host did not fail for."""
    items = result.get("results") if isinstance(result, dict) else None
    return {str(one.get("name")) for one in items or () if isinstance(one, dict) and "failed" not in one}
