# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which pools are nearly full. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text

FULL_PERCENT = 90
_OFFERED = ("iscsi", "iscsi-direct", "scsi", "mpath")  # all of these is allocated: their volumes are what is offered


def warnings(pools: t.Iterable[t.Mapping[str, t.Any]]) -> t.Iterator[str]:
    """A text for each pool, or thin pool in its volume group, that is more than FULL_PERCENT full."""
    for pool in pools:
        capacity, allocation = pool.get("capacity_bytes"), pool.get("allocation_bytes")
        if capacity and allocation and pool["type"] not in _OFFERED and _percent(allocation, capacity) > FULL_PERCENT:
            left = bytes_text(pool["available_bytes"])
            yield (
                f"pool {pool['name']} is {_percent(allocation, capacity):.0f} % full ({left} left): guests whose disks "
                "grow there pause when nothing is left; make room, or extend it"
            )
        for thin in pool.get("thin_pools") or ():
            for what in ("data", "metadata"):
                percent = thin[f"{what}_percent"]
                if percent is not None and percent > FULL_PERCENT:
                    yield (
                        f"thin pool {thin['name']} of pool {pool['name']}: its {what} is {percent:.0f} % full, and "
                        "when it is full all its volumes fail; extend it (lvextend "
                        f"{'--poolmetadatasize' if what == 'metadata' else '--size'} +1g GROUP/{thin['name']})"
                    )


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole
