# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The mark of a host that takes no guests; the role `maintenance` sets it."""

from __future__ import annotations

import json

__all__ = ["PATH", "read"]

PATH = "/var/lib/libvirt/corral-maintenance.json"


def read(path: str = PATH) -> dict[str, str | list[str]] | None:
    """`reason` and `since`, `bridges` and `pools` that the host had then, or None.

    A mark that cannot be read counts: somebody set it.
    """
    try:
        with open(path) as stream:
            found = json.load(stream)
        return {
            **{k: str(found[k]) for k in ("reason", "since")},
            **{k: [*map(str, found.get(k, []))] for k in ("bridges", "pools")},
        }
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {
            "reason": f"{path} cannot be read ({error}); fix or remove it",
            "since": "",
            "bridges": [],
            "pools": [],
        }
