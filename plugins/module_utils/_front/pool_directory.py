# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The directory of a pool: where it is, and who stands on its files."""

from __future__ import annotations

import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._files import header
from ansible_collections.corral.virt.plugins.module_utils._libvirt import query, storage
from ansible_collections.corral.virt.plugins.module_utils._plan import pool_files
from ansible_collections.corral.virt.plugins.module_utils._xml import host_xml
from ansible_collections.corral.virt.plugins.module_utils._xml.chain import raw_sources
from ansible_collections.corral.virt.plugins.module_utils._xml.sources import sources

__all__ = ["directory", "pool_of", "users"]


def directory(connection: t.Any, pool: str, what: str) -> str:
    """Where the pool keeps its files on this machine."""
    return pool_files.directory(pool_of(connection, pool), what)


def pool_of(connection: t.Any, name: str) -> pool_files.PoolDirectory:
    """The pool of that name."""
    found = host_xml.pool(storage.pool_xml(connection, name))
    return pool_files.PoolDirectory(name, found["type"], found["path"], here=os.path.isdir(found["path"] or ""))


def users(connection: t.Any, place: str, *, but: str = "") -> dict[str, str]:
    """Who stands on which file of the directory: volumes of whatever pool, and guests' disks wherever they are.

    `but` is a guest's UUID.
    """
    here, found, known = os.path.realpath(place), {}, set()
    for volume in map(host_xml.volume, storage.all_volumes(connection)):
        known.add(volume["path"])
        where, file = os.path.split(os.path.realpath(volume["backing_path"] or "/"))
        if where == here:
            found[file] = volume["path"]
    for seen in query.of_all(connection, query.found):
        if seen.uuid == but:
            continue
        documents = [xml for xml in (seen.xml, seen.live_xml) if xml]
        raw = {path for xml in documents for path in raw_sources(xml, lambda *_volume: None)}  # volumes are known
        for path in {path for xml in documents for path in sources(xml, below=True)}:
            # What a guest writes into a raw disk tells nothing of what the disk stands on.
            chain = [path] if path in known or path in raw or not os.path.isfile(path) else _chain(path)
            for where, file in (os.path.split(os.path.realpath(each)) for each in chain):
                if where == here:
                    found.setdefault(file, f"guest {seen.name}")
    return found


def _chain(path: str) -> list[str]:
    """The files that a disk stands on, itself first, in whatever words it names them: what is in use must not be
    missed.
    """
    found: list[str] = []
    waiting = [path]
    while waiting:
        for each in header.chain(waiting.pop()):
            if each not in found:
                found.append(each)
                waiting += header.mentioned(each)
    return found
