# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether a thin pool can take more: when it is full, all its volumes fail. Pure."""

from __future__ import annotations

import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import ThinPool
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_space import FULL_PERCENT

OVERCOMMIT = 4  # the size of all volumes of a thin pool, by its own
_MIB = 1024**2


def missing(cannot: str, group: str, name: str) -> NotFound:
    """The error for a thin pool that is not there."""
    create = f"lvcreate --type thin-pool --size 100g --name {shlex.quote(name)} {group}"
    return NotFound(f"{cannot}: volume group {group} has no thin pool {name}; create it ({create})")


def left_bytes(thin: ThinPool) -> int | None:
    """The bytes that new volumes may have there in all; None if it takes none."""
    return None if any(_unusable("", thin)) else max(0, OVERCOMMIT * thin.size_bytes - thin.virtual_bytes)


def problems(cannot: str, thin: ThinPool, more_bytes: int, written_bytes: int) -> t.Iterator[Refused]:
    """Why volumes that are `more_bytes` larger, with `written_bytes` of content, are not made there."""
    pool = f"{thin.group}/{thin.name}"
    where = f"{cannot}: thin pool {pool}"
    yield from _unusable(where, thin)
    if thin.data_percent is None:
        return
    free = int(thin.size_bytes * (100 - thin.data_percent) / 100)
    if written_bytes > free:
        yield Refused(
            f"{where} has {bytes_text(free)} free of {bytes_text(written_bytes)} that are copied; extend it (lvextend "
            f"--size +{_mib(written_bytes - free)}m {pool})"
        )
    virtual = thin.virtual_bytes + more_bytes
    if virtual > OVERCOMMIT * thin.size_bytes:
        lacks = _mib(-(-virtual // OVERCOMMIT) - thin.size_bytes)
        yield Refused(
            f"{where}: its volumes would have {bytes_text(virtual)}, more than {OVERCOMMIT} times its "
            f"{bytes_text(thin.size_bytes)}; extend it (lvextend --size +{lacks}m {pool}), or use smaller disks"
        )


def _unusable(where: str, thin: ThinPool) -> t.Iterator[Refused]:
    pool = f"{thin.group}/{thin.name}"
    if thin.data_percent is None or thin.metadata_percent is None:
        yield Refused(f"{where} is not active; activate it (lvchange --activate y {pool})")
        return
    if not thin.zeroes:
        yield Refused(
            f"{where} gives out what others have stored there; let it zero that first (lvchange --zero y {pool})"
        )
    for what, percent, option in (
        ("data", thin.data_percent, "--size"),
        ("metadata", thin.metadata_percent, "--poolmetadatasize"),
    ):
        if percent > FULL_PERCENT:
            yield Refused(f"{where}: its {what} is {percent:.0f} % full; extend it (lvextend {option} +1g {pool})")


def _mib(size_bytes: int) -> int:
    return -(-size_bytes // _MIB)
