# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Disks in the pools of this machine that were moved aside to be deleted."""

from __future__ import annotations

import contextlib
import functools
import os
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_here
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query, xml_host
from ansible_collections.corral.virt.plugins.module_utils._storage import files_removal_notes, plan_removed_disks
from ansible_collections.corral.virt.plugins.module_utils._storage.model_removed_disk import DiskAside, Moment
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import DIRECTORY_POOLS, PoolDirectory
from ansible_collections.corral.virt.plugins.module_utils._system import boot
from ansible_collections.corral.virt.plugins.module_utils._system.stale_mounts import answers, filesystem

_ANSWER_S = 10


def now() -> Moment:
    """The time of this machine."""
    boot_id = ""  # where the kernel does not tell
    with contextlib.suppress(OSError):
        boot_id = boot.identity()
    utc = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Moment(utc, boot_id, int(time.clock_gettime(time.CLOCK_BOOTTIME)))


@functools.lru_cache(maxsize=2)  # guests of a call are those of one host, or move from one to another
def host_uuid(connection: t.Any) -> str:
    """The UUID by which libvirt tells hosts apart; empty if it has none."""
    return str(xml_host.host(libvirt_query.capabilities(connection))["uuid"] or "")


def pools(connection: t.Any) -> list[PoolDirectory]:
    """The pools of a connection that keep their volumes in a directory."""
    return directories({**pool, **xml_host.pool(pool["xml"])} for pool in libvirt_query.pools(connection))


def directories(found: t.Iterable[t.Mapping[str, t.Any]]) -> list[PoolDirectory]:
    """The described pools that keep their volumes in a directory."""
    return [
        PoolDirectory(pool["name"], pool["type"], pool["path"], active=pool["active"])
        for pool in found
        if pool["type"] in DIRECTORY_POOLS
    ]


def filesystems(uri: str, found: t.Iterable[PoolDirectory]) -> dict[str, str]:
    """The filesystem of each active pool whose directory is on this machine and answers, by the pool's name."""
    active = [(pool.name, pool.path) for pool in found if pool.active and pool.path] if is_here(uri) else []
    known = ((name, filesystem(path, _ANSWER_S)) for name, path in active)
    return {name: device for name, device in known if device}


def moved_aside(uri: str, found: t.Iterable[PoolDirectory]) -> list[DiskAside]:
    """The disks that are aside in these pools, if they are on this machine and their filesystems answer."""
    if not is_here(uri):
        return []
    known = (pool.path for pool in found if pool.active and pool.path and answers(pool.path, _ANSWER_S))
    places = {os.path.realpath(path): path for path in known}
    return [one for directory in places.values() for one in files_removal_notes.entries(directory)]


def describe(uri: str, found: t.Iterable[PoolDirectory], host: str | None) -> list[dict[str, t.Any]]:
    """The disks that are aside, as data, each with a note on what can be done; `host` is this host's UUID."""
    aside = moved_aside(uri, found)
    if not aside:  # a machine that is no Linux counts no time
        return []
    moment, shown = now(), ("path", "guest", "guest_uuid", "host_uuid", "size_bytes", "since", "keep_until")
    return [
        {
            "file": one.place,
            **{field: getattr(one.note, field, None) for field in shown},
            "removing": one.alive,
            "note": plan_removed_disks.kept(one, host or "", moment),
        }
        for one in aside
    ]
