# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describe snapshots of a guest: as data, as a picture, and what to see to. Pure."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._core.output import printable
from ansible_collections.corral.virt.plugins.module_utils._core.problems import WHERE_IT_IS
from ansible_collections.corral.virt.plugins.module_utils._core.units import age_text, bytes_text
from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import Snapshot, SnapshotRecord, Tree

_OLD_S = 7 * 86400
_LOW_PERCENT = 10


def check_found(missing: t.Sequence[str]) -> None:
    """Raise NotFound if guests are missing."""
    if missing:
        raise NotFound(f"cannot read snapshots: there is no guest {', '.join(missing)} here; {WHERE_IT_IS}")


def described(
    tree: Tree, entries: t.Sequence[SnapshotRecord], taken: t.Mapping[str, int], now_s: int
) -> list[dict[str, t.Any]]:
    """The snapshots as data, parents first; `taken` are the bytes that files take."""
    recorded = {entry.name: entry for entry in entries}
    return [_described(one, depth, recorded.get(one.name), taken, now_s) for depth, one in tree.ordered]


def _described(
    one: Snapshot, depth: int, entry: SnapshotRecord | None, taken: t.Mapping[str, int], now_s: int
) -> dict[str, t.Any]:
    copies = tuple(copy for _path, copy in entry.copies) if entry else ()
    files = (*one.files, *copies)
    return {
        "name": one.name,
        "parent": one.parent,
        "depth": depth,
        "current": one.current,
        "created": f"{datetime.datetime.fromtimestamp(one.created_s, datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}",
        "age_s": now_s - one.created_s,
        "description": one.description,
        "state": one.state,
        "kind": one.kind,
        "memory": one.memory != "no",
        "scheduled": entry is not None and entry.scheduled,
        "deleting": one.deleting or (entry is not None and entry.phase == SnapshotRecord.DELETING),
        "disks": [
            {
                "target": disk.target,
                "kind": disk.kind,
                "path": disk.reverted or disk.overlay,
                "base": disk.base,
                "size_bytes": taken.get(disk.reverted or disk.overlay or "", 0),
            }
            for disk in one.disks
            if disk.kind != "no"
        ],
        "files": list(files),
        "size_bytes": sum(taken.get(path, 0) for path in dict.fromkeys(files)),
        "merge_bytes": sum(taken.get(disk.reverted or disk.overlay or "", 0) for disk in one.disks),
    }


def picture(guest: str, snapshots: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    """The snapshots as an indented list, with the guest's present state below the one that it stands on."""
    lines = [str(printable(guest))]
    for one in snapshots:
        more = [age_text(one["age_s"]), one["kind"], *(["with memory"] if one["memory"] else [])]
        more += [bytes_text(one["size_bytes"])] if one["kind"] == "external" else []
        more += ["being deleted"] if one["deleting"] else []
        indent = "  " * (one["depth"] + 1)
        lines.append(f"{indent}- {printable(one['name'])} ({', '.join(more)})")
        lines += [f"{indent}  * now"] if one["current"] else []
    return "\n".join(lines)


def warnings(
    guest: str, snapshots: t.Sequence[t.Mapping[str, t.Any]], room: t.Mapping[str, tuple[int, int]]
) -> t.Iterator[str]:
    """What to see to: old snapshots, and directories that their files fill; `room` maps one to free and all bytes."""
    for one in snapshots:
        if one["age_s"] > _OLD_S:
            held = f" and holds {bytes_text(one['size_bytes'])}" if one["size_bytes"] else ""
            yield (
                f"snapshot {one['name']} of {guest} is {age_text(one['age_s'])} old{held}; a snapshot is no backup: "
                f"delete it when it has done its work (corral.virt.delete_snapshot)"
            )
        if one["deleting"]:
            yield f"the deletion of snapshot {one['name']} of {guest} was interrupted; delete it again to finish"
    for directory, (free, total) in room.items():
        if free * 100 < total * _LOW_PERCENT:
            yield (
                f"{directory} has {bytes_text(free)} of {bytes_text(total)} free, and {guest} writes to files of its "
                "snapshots there; when it is full, the guest pauses: delete snapshots, or make room"
            )
