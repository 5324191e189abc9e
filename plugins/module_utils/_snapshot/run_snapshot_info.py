# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the snapshots of guests."""

from __future__ import annotations

import os
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, VirtError
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record, libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import SnapshotRecord, Tree
from ansible_collections.corral.virt.plugins.module_utils._snapshot import plan_snapshot_info
from ansible_collections.corral.virt.plugins.module_utils._storage import run_snapshots
from ansible_collections.corral.virt.plugins.module_utils._system import free_space


def read(connection: t.Any, names: t.Sequence[str] | None, missing_ok: bool) -> dict[str, t.Any]:
    """The guests with their snapshots, missing guests, and warnings; without `names`, all guests with snapshots."""
    domains = libvirt_query.of_all(connection, lambda domain: domain)
    missing = sorted({*(names or ())}.difference(domain.name() for domain in domains))
    plan_snapshot_info.check_found([] if missing_ok else missing)
    if names:
        domains = [domain for domain in domains if domain.name() in names]
    guests, warnings = [], list[str]()
    for domain in domains:
        try:
            guest, more = _of_guest(connection, domain)
        except NotFound:  # it was removed meanwhile
            continue
        except VirtError as error:
            warnings.append(str(error))
            continue
        if names or guest["snapshots"]:
            guests.append(guest)
            warnings += more
    return {"guests": sorted(guests, key=lambda one: str(one["name"])), "missing": missing, "warnings": warnings}


def _of_guest(connection: t.Any, domain: t.Any) -> tuple[dict[str, t.Any], list[str]]:
    name, uuid = domain.name(), domain.UUIDString()
    tree = run_snapshots.tree(connection, uuid)
    texts = fields_record.read(libvirt_query.definition(domain)).get("snapshots") or ()
    entries = [entry for entry in (SnapshotRecord.of(text, uuid) for text in texts) if entry]
    paths = [path for _depth, one in tree.ordered for path in one.files]
    paths += [copy for entry in entries for _path, copy in entry.copies]
    snapshots = plan_snapshot_info.described(tree, entries, _taken(paths), int(time.time()))
    picture = plan_snapshot_info.picture(name, snapshots)
    more = list(plan_snapshot_info.warnings(name, snapshots, _room(tree)))
    return {"name": name, "uuid": uuid, "snapshots": snapshots, "tree": picture}, more


def _taken(paths: t.Iterable[str]) -> dict[str, int]:
    """The bytes that those files take that exist."""
    found = {}
    for path in paths:
        if os.path.isfile(path):
            found[path] = free_space.allocated(path)
    return found


def _room(tree: Tree) -> dict[str, tuple[int, int]]:
    """Free and all bytes of the directories that the guest writes to since its current snapshot."""
    current, found = tree.current(), {}
    for directory in {os.path.dirname(path) for path in current.overlays.values()} if current else ():
        if os.path.isdir(directory):
            space = free_space.measure(directory, None)
            found[directory] = (space.free_bytes, space.total_bytes)
    return found
