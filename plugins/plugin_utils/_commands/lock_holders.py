# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who has the disks of guests that a lock keeps from starting: virtlockd's lease, or QEMU's lock on the file. Pure."""

from __future__ import annotations

import re
import typing as t

Told = t.Mapping[str, t.Any]

_LOCKED = re.compile(r"Lockspace resource .* is locked|Failed to get .*lock")
_UNKNOWN = (
    "its holder is unknown: no running guest of the hypervisors that answered has its disks. The lock of a dead host "
    "ends when its storage releases it (guide_recover, leases of disks); until then nothing starts the guest"
)


def _refused(guest: Told) -> bool:
    return bool(guest.get("failed")) and bool(_LOCKED.search(str(guest.get("msg"))))


def holders(result: Told | None, host: str, told: t.Mapping[str, Told | None]) -> str:
    """For each guest that a lock has kept from starting on `host`, who has its disks, to be appended to the error.

    `told` is by host what `virt_query` returned there; of some it may be nothing.
    """
    found = {name: (one or {}).get("domains") or () for name, one in told.items()}
    texts = []
    for failed in filter(_refused, (result or {}).get("results") or ()):
        mine = next((one for one in found.get(host, ()) if one["name"] == failed["name"]), None)
        paths = _paths(mine) if mine else set()
        users = [
            f"{one['name']} on {name} ({one['state']})"
            for name, guests in sorted(found.items())
            for one in guests
            if one["state"] != "shutdown" and (paths & _paths(one) or (mine and one["uuid"] == mine["uuid"]))
        ]
        who = f"its disks are held by {', '.join(users)}" if users else _UNKNOWN
        texts.append(f"{failed['name']}: {who}")
    return "".join(f"; {text}" for text in texts)


def _paths(guest: Told) -> set[str]:
    return {str(disk["source"]) for disk in guest.get("disks") or () if disk.get("source")}
