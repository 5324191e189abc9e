# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What a host answers about the files that disks of a guest are, or would be."""

from __future__ import annotations

import contextlib
import functools
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._files import content as contents
from ansible_collections.corral.virt.plugins.module_utils._files import disk as files
from ansible_collections.corral.virt.plugins.module_utils._files import header, identity
from ansible_collections.corral.virt.plugins.module_utils._front import pool_directory
from ansible_collections.corral.virt.plugins.module_utils._libvirt import query, storage
from ansible_collections.corral.virt.plugins.module_utils._model.disk_identity import FileIdentity
from ansible_collections.corral.virt.plugins.module_utils._model.header import Header
from ansible_collections.corral.virt.plugins.module_utils._model.uri import is_here
from ansible_collections.corral.virt.plugins.module_utils._plan.disk_facts import (
    Answer,
    DiskOrigin,
    Question,
    Site,
    SiteOf,
    Size,
)
from ansible_collections.corral.virt.plugins.module_utils._plan.pool_files import PoolDirectory
from ansible_collections.corral.virt.plugins.module_utils._units import is_content
from ansible_collections.corral.virt.plugins.module_utils._xml import host_xml
from ansible_collections.corral.virt.plugins.module_utils._xml.sources import sources

__all__ = ["answers"]


def answers(connection: t.Any, questions: t.Mapping[str, Question], locks: contextlib.ExitStack) -> dict[str, Answer]:
    """Ask the host, by disk. Images that disks are made from stay until `locks` is closed."""
    return {name: _answer(connection, question, locks) for name, question in questions.items()}


def _answer(connection: t.Any, question: Question, locks: contextlib.ExitStack) -> Answer:
    if isinstance(question, SiteOf):
        beside = storage.pool_at(connection, question.copy_of) if question.copy_of else ""
        pool = question.pool or beside
        there, origin = (
            _size(storage.volume_in(connection, pool, question.name)),
            _origin(connection, pool, question, locks),
        )
        found = pool_directory.pool_of(connection, pool)
        return Site(found, there, _identity(found, question.name), origin)
    if question.volume is None:
        return Size(_size(storage.volume_at(connection, question.path)))
    xml = storage.volume_in(connection, *question.volume)
    return Size(_size(xml), host_xml.volume(xml)["path"] if xml else None)


def _identity(pool: PoolDirectory, name: str) -> FileIdentity | None:
    """Of a file of this machine."""
    return identity.of_path(os.path.join(pool.path, name)) if pool.here and pool.path else None


def _size(xml: str | None) -> int | None:
    return None if xml is None else int(host_xml.volume(xml)["capacity_bytes"])


def _origin(connection: t.Any, pool: str, question: SiteOf, locks: contextlib.ExitStack) -> DiskOrigin | None:
    """What a disk is made from, held from here on: a name like debian-12.qcow2 points to a content that another run
    may prune.
    """
    xml = None
    if question.copy_of:
        xml = storage.volume_at(connection, question.copy_of)
    elif question.image:
        xml = storage.volume_in(connection, pool, question.image)
    if xml is None:
        return None
    found, uri = host_xml.volume(xml), connection.getURI()
    here = is_here(uri)
    content = contents.hold(found["path"], locks) if here else found["path"]
    written = here and bool(question.copy_of) and os.path.isfile(content) and not files.keep_unwritten(content, locks)
    below = header.chain(content)[1:] if here else []
    return DiskOrigin(
        path=found["path"],
        content=content,
        format=found["format"],
        capacity_bytes=found["capacity_bytes"],
        header=header.read(content)
        if here and os.path.isfile(content)
        else Header(found["format"], found["backing_path"]),
        managed=bool(below) and all(map(contents.is_managed, below)),
        guest=_guest_with(connection, content),
        uri=uri,
        here=here,
        written=written,
    )


def _guest_with(connection: t.Any, path: str) -> str | None:
    """The guest whose disk a file is. Contents are immutable: nobody's disk."""
    if is_content(path):
        return None
    located = functools.partial(storage.path_in, connection)
    guests = query.of_all(connection, lambda guest: (guest.name(), guest.XMLDesc()))
    return next((name for name, xml in guests if path in map(os.path.realpath, sources(xml, located))), None)
