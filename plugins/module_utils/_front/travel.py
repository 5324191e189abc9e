# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""How the disks of one guest travel: what both ends have of each, handed to the plan."""

from __future__ import annotations

import dataclasses
import datetime
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._files import local
from ansible_collections.corral.virt.plugins.module_utils._files.content import manifest_name
from ansible_collections.corral.virt.plugins.module_utils._files.image import read_manifest
from ansible_collections.corral.virt.plugins.module_utils._front import pool_directory
from ansible_collections.corral.virt.plugins.module_utils._front.ends import Ends
from ansible_collections.corral.virt.plugins.module_utils._libvirt import storage, transfer
from ansible_collections.corral.virt.plugins.module_utils._model.domain import Found
from ansible_collections.corral.virt.plugins.module_utils._model.move import DiskMove, Host, Pool
from ansible_collections.corral.virt.plugins.module_utils._plan.travel import File, TravellingDisk, travel
from ansible_collections.corral.virt.plugins.module_utils._units import CONTENT_NAME
from ansible_collections.corral.virt.plugins.module_utils._xml import caps, disk, record
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse, sources

__all__ = ["disks", "images", "unused"]

_CLOCK_S = 2  # between a file's time and that in its manifest


def disks(ends: Ends, params: t.Mapping[str, t.Any], found: Found, dest: Host, *, assumed: bool) -> tuple[DiskMove, ...]:
    """Each disk's way, with images that can be brought `assumed` to be there; raises Refused with every disk that has none."""
    document = found.live_xml or found.xml
    memory = record.read(document)
    # Only what a run to this very host made there may be replaced.
    ours = set(memory.get("moving_made") or ()) if memory.get("moving") == params["dest"] else set()
    look_at = _Look(ends, {pool.path: pool for pool in dest.pools}, ours)
    problems = [
        f"disk {path} waits for the next boot; plug it in or take it out first"
        for path in sorted(set(sources(found.xml)) - set(sources(document)))
    ]
    entries = [item for item in disk.read_all(parse(document)) if item.get("source")]
    known = {str(item[key]) for item in entries for key in ("target", "name") if item.get(key)}
    problems += [f"disk_storage: it has no disk {key}" for key in sorted(set(params["disk_storage"]) - known)]
    said = params["disk_storage"]
    modes = [said.get(item.get("target"), said.get(item.get("name"), params["storage"])) for item in entries]
    seen = [dataclasses.replace(look_at.disk(item, mode), assumed=assumed) for item, mode in zip(entries, modes)]
    moves, refused = travel(seen, active=found.active)
    problems += refused
    if problems:
        raise Refused(f"cannot migrate {found.name} to {params['dest']}: " + "; ".join(problems))
    owned = set(memory.get("volumes") or ())
    # A copied disk goes from the source unless others stand on it there; what is only read (an ISO) goes when it was made for this guest.
    fixed = {item["source"] for item in entries if _fixed(item)}
    may_go = [move.path for move in moves if move.volume and (move.path not in fixed or move.path in owned)]
    free = unused(ends.source, may_go, found.name)
    return tuple(dataclasses.replace(move, goes=move.path in free) for move in moves)


def unused(source: t.Any, paths: t.Iterable[str], guest: str) -> set[str]:
    """Of these disks of a guest those that no other guest and no other image stands on."""
    folders: dict[str, set[str]] = {}
    for path in paths:
        folders.setdefault(os.path.dirname(path), set()).add(path)
    for folder in folders:
        pool = transfer.pool_at(source, folder)
        if pool:
            storage.refresh(source, pool)  # what was made behind libvirt's back counts as well
    used = {folder: pool_directory.users(source, folder, but=guest) for folder in folders}
    return {path for folder, inside in folders.items() for path in inside if os.path.basename(os.path.realpath(path)) not in used[folder]}


def images(source: t.Any, moves: t.Iterable[DiskMove]) -> list[dict[str, str]]:
    """What `virt_image` must bring to the destination so that less travels, in the words of its options."""
    wanted = {}
    for path in sorted({move.base for move in moves if move.base}):
        directory, content = os.path.split(path)
        pool = transfer.pool_at(source, directory)
        text = storage.read(source, pool, manifest_name(content)) if pool else None
        if pool and text is not None:
            checksum = read_manifest(text.decode(), path).checksum
            # `debian-12.1a2b3c4d5e6f.qcow2` is a content of `debian-12.qcow2`.
            wanted[path] = {"name": CONTENT_NAME.sub(r"\1", content), "pool": pool, "checksum": checksum, "content": content}
    return list(wanted.values())


def _fixed(item: t.Mapping[str, t.Any]) -> bool:
    return bool(item.get("readonly") or item.get("device") == "cdrom")


class _Look:
    """What both ends have; each pool of the destination is looked at anew once."""

    def __init__(self, ends: Ends, pools: t.Mapping[str, Pool], ours: t.Collection[str]) -> None:
        self._ends, self._pools, self._ours = ends, pools, ours
        self._fresh: set[str] = set()

    def disk(self, item: t.Mapping[str, t.Any], mode: str) -> TravellingDisk:
        """One disk of a guest."""
        path = t.cast(str, item["source"])
        shared_on = local.shared_filesystem(path)
        told = TravellingDisk(str(item["target"]), path, mode, shared_on, fixed=_fixed(item), shareable=bool(item.get("shareable")))
        pool = self._pools.get(os.path.normpath(os.path.dirname(path)))
        if mode == "shared" or (mode == "auto" and shared_on) or pool is None:
            return told
        self._refresh(pool.name)
        file = _file(self._ends.source, path) or self._new(path)
        base = file.backing_path if file else None
        there = _file(self._ends.dest, base) if base else None
        return dataclasses.replace(
            told,
            pool=pool,
            taken=storage.volume_in(self._ends.dest, pool.name, told.name) is not None,
            ours=path in self._ours,
            file=file,
            base=_file(self._ends.source, base) if base else None,
            base_there=there,
            base_altered=bool(base and there and self._altered(base)),
        )

    def _new(self, path: str) -> File | None:
        """A file that came into its pool behind libvirt's back."""
        pool = transfer.pool_at(self._ends.source, os.path.dirname(path))
        if pool is None:
            return None
        storage.refresh(self._ends.source, pool)
        return _file(self._ends.source, path)

    def _refresh(self, pool: str) -> None:
        if pool not in self._fresh:
            storage.refresh(self._ends.dest, pool)
            self._fresh.add(pool)

    def _altered(self, base: str) -> bool:
        """Whether the base was written to after it was verified there; nothing is said of one without a manifest."""
        directory, content = os.path.split(base)
        pool = self._pools.get(os.path.normpath(directory))
        if pool is None:
            return False
        self._refresh(pool.name)
        text = storage.read(self._ends.dest, pool.name, manifest_name(content))
        xml = storage.volume_at(self._ends.dest, base)
        if text is None or xml is None:
            return False
        fetched = datetime.datetime.fromisoformat(read_manifest(text.decode(), base).fetched)
        return bool(caps.volume(xml)["modified_s"] > fetched.timestamp() + _CLOCK_S)


def _file(connection: t.Any, path: str) -> File | None:
    xml = storage.volume_at(connection, path)
    if xml is None:
        return None
    found = caps.volume(xml)
    return File(path, **{key: found[key] for key in ("format", "capacity_bytes", "allocation_bytes", "backing_path", "backing_format")})
