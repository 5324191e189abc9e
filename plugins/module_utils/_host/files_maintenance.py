# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The maintenance mark of a host, which then takes no guests; the role `maintenance` sets it."""

from __future__ import annotations

import json

PATH = "/var/lib/libvirt/corral-maintenance.json"
_LISTS = ("bridges", "pools", "stopped")


def read(path: str = PATH) -> dict[str, str | list[str]] | None:
    """The mark: `reason`, `since`, `by`, `id`, and the host's `boot`, `bridges`, `pools` and `stopped`; None if unset.

    `stopped` are UUIDs of guests that run again afterwards. A mark that cannot be read counts as set.
    """
    try:
        with open(path) as stream:
            found = json.load(stream)
        return {
            **{k: str(found[k]) for k in ("reason", "since")},
            **{k: str(found.get(k, "")) for k in ("by", "boot")},
            "id": str(found.get("id", found["since"])),
            **{k: [*map(str, found.get(k, []))] for k in _LISTS},
        }
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return {
            "reason": f"{path} cannot be read ({error}); fix or remove it",
            **dict.fromkeys(("since", "by", "boot", "id"), ""),
            **{k: [] for k in _LISTS},
        }
