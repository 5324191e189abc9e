# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of a host about files of guests' disks that exist or would be created."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.units import is_content
from ansible_collections.corral.virt.plugins.module_utils._core.uri import has_files_here, is_here
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query, xml_host
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_sources import sources
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_disk,
    files_header,
    files_image_lock,
    files_logical,
    files_lvm,
    libvirt_blockjob,
    libvirt_storage,
    plan_pool_files,
    run_directories,
    run_pool_directory,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.model_header import Header
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import (
    Answer,
    DiskOrigin,
    Question,
    Site,
    SiteOf,
    Size,
    SizeOf,
    ThinPool,
    VolumeGroup,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory
from ansible_collections.corral.virt.plugins.module_utils._system import identity
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity


def answers(connection: t.Any, questions: t.Mapping[str, Question], locks: contextlib.ExitStack) -> dict[str, Answer]:
    """The answers, by disk. Images that disks are created from are held until `locks` is closed."""
    return {name: _answer(connection, question, locks) for name, question in questions.items()}


def _answer(connection: t.Any, question: Question, locks: contextlib.ExitStack) -> Answer:
    if isinstance(question, SiteOf):
        return _site(connection, question, locks)
    kind = _pool_type(connection, question.volume[0]) if question.volume else None
    if not question.opened:
        return Size(None, pool_type=kind)
    if question.volume:
        xml = libvirt_storage.volume_in(connection, *question.volume)
    else:
        xml = _volume_at(connection, question.path)
    size = Size(_size(xml), xml_host.volume(xml)["path"] if xml and question.volume else None, kind)
    path = size.path or question.path
    return _logical_size(connection, question, size, path) if identity.logical_volume(path) else size


def _volume_at(connection: t.Any, path: str) -> str | None:
    """The volume at a path; its pool is refreshed if libvirt knows none: a snapshot gives a guest a new file."""
    xml = libvirt_storage.volume_at(connection, path)
    pool = None if xml else run_directories.pool_at(connection, os.path.dirname(path))
    if pool is None:
        return xml
    libvirt_storage.refresh(connection, pool)
    return libvirt_storage.volume_at(connection, path)


def _pool_type(connection: t.Any, name: str) -> str | None:
    """The type of a pool, active or not; None if there is none."""
    found = (pool["xml"] for pool in libvirt_query.pools(connection) if pool["name"] == name)
    return next((xml_host.pool(xml)["type"] for xml in found), None)


def _site(connection: t.Any, question: SiteOf, locks: contextlib.ExitStack) -> Site:
    beside = str(question.copy_of)
    pool = (
        question.pool or run_pool_directory.pool_with(connection, beside) or libvirt_storage.pool_at(connection, beside)
    )
    found = run_pool_directory.pool_of(connection, pool)
    name = plan_pool_files.volume_name(found, question.name)
    group = volume_group(connection, found)
    if group:
        libvirt_storage.refresh(connection, pool)  # LVM's own programs make volumes behind libvirt's back
    image_pool = question.image_pool or pool
    inherited = None if question.pool or not group else files_lvm.thin_pool_of(str(question.copy_of))
    size = _device_bytes(os.path.join(str(found.path), name)) if group else None
    return Site(
        found,
        size or _size(libvirt_storage.volume_in(connection, pool, name)),
        _identity(found, name),
        _origin(connection, image_pool, question, locks),
        image_pool,
        group,
        files_lvm.tags(os.path.join(str(found.path), name)) if group else (),
        thin_pool(group, question.thin_pool or inherited),
    )


def _logical_size(connection: t.Any, question: SizeOf, size: Size, path: str) -> Size:
    """The size of a logical volume of this machine, and what of it the running guest sees."""
    pool = run_pool_directory.pool_with(connection, path)
    if not has_files_here(connection.getURI()) or pool is None:
        return size
    seen = libvirt_blockjob.seen_bytes(connection, *question.seen_by) if question.seen_by else None
    group = volume_group(connection, run_pool_directory.pool_of(connection, pool))
    ready = files_logical.ready_bytes(path)
    if group:  # what an interrupted growth has taken is taken
        group = dataclasses.replace(group, free_bytes=group.free_bytes + files_logical.size_bytes(path) - ready)
    thin = thin_pool(group, files_lvm.thin_pool_of(path))
    return dataclasses.replace(size, size_bytes=ready, pool_name=pool, group=group, seen_bytes=seen, thin=thin)


def _device_bytes(path: str) -> int | None:
    """The size of a logical volume of this machine; None if there is none. libvirt does not list thin ones."""
    return files_logical.size_bytes(path) if identity.logical_volume(path) else None


def thin_pool(group: VolumeGroup | None, name: str | None, but: str = "") -> ThinPool | None:
    """The thin pool of that name, without what the volume `but` takes; None if there is none, or none is asked for."""
    found = files_lvm.thin_pools(group.name, but) if group and name else ()
    return next((ThinPool(group=str(group and group.name), **one) for one in found if one["name"] == name), None)


def volume_group(connection: t.Any, pool: PoolDirectory) -> VolumeGroup | None:
    """The volume group of a pool; None if it has none, or nobody can ask LVM from here."""
    if pool.type != "logical" or not has_files_here(connection.getURI()):
        return None
    found = files_logical.group(pool.group or pool.name)
    return VolumeGroup(**found) if found else None


def _identity(pool: PoolDirectory, name: str) -> FileIdentity | None:
    """The identity of a file of this machine; None if the pool's files are elsewhere."""
    return identity.of_path(os.path.join(pool.path, name)) if pool.here and pool.path else None


def _size(xml: str | None) -> int | None:
    return None if xml is None else int(xml_host.volume(xml)["capacity_bytes"])


def _origin(connection: t.Any, pool: str, question: SiteOf, locks: contextlib.ExitStack) -> DiskOrigin | None:
    """The image or disk that a disk is created from, held from here on: a name like debian-12.qcow2 points to a content
    that another run may prune.
    """
    found = _origin_volume(connection, pool, question)
    if found is None:
        return None
    uri, before = connection.getURI(), os.path.realpath(found["path"])
    here = is_here(uri)
    content = files_image_lock.hold(found["path"], locks) if here else found["path"]
    if here and content != before:  # the name was pointed to another content while this waited
        found = _origin_volume(connection, pool, question) or found
    written = here and bool(question.copy_of) and _is_written(content, locks)
    below = files_header.chain(content)[1:] if here else []
    return DiskOrigin(
        path=found["path"],
        content=content,
        format=found["format"],
        capacity_bytes=found["capacity_bytes"],
        header=files_header.read(content)
        if here and os.path.isfile(content)
        else Header(found["format"], found["backing_path"]),
        managed=bool(below) and all(map(files_image_lock.is_managed, below)),
        guest=_guest_with(connection, content),
        uri=uri,
        here=here,
        written=written,
    )


def _is_written(path: str, locks: contextlib.ExitStack) -> bool:
    """True if a process may write to a disk; a file is then kept from that until `locks` is closed."""
    if os.path.isfile(path):
        return not files_disk.keep_unwritten(path, locks)
    return files_lvm.is_open(path)


def _origin_volume(connection: t.Any, pool: str, question: SiteOf) -> dict[str, t.Any] | None:
    """What libvirt tells of the image or disk now; None if there is none."""
    xml = None
    if question.copy_of:
        size = _device_bytes(question.copy_of) if has_files_here(connection.getURI()) else None
        if size is not None:
            return {"path": question.copy_of, "format": "raw", "capacity_bytes": size, "backing_path": None}
        xml = libvirt_storage.volume_at(connection, question.copy_of)
    elif question.image:
        xml = libvirt_storage.volume_in(connection, pool, question.image)
    return None if xml is None else xml_host.volume(xml)


def _guest_with(connection: t.Any, path: str) -> str | None:
    """The guest whose disk a file is; None for an immutable content, which is nobody's disk."""
    if is_content(path):
        return None
    located = functools.partial(libvirt_storage.path_in, connection)
    guests = libvirt_query.of_all(connection, lambda guest: (guest.name(), guest.XMLDesc()))
    return next((name for name, xml in guests if path in map(os.path.realpath, sources(xml, located))), None)
