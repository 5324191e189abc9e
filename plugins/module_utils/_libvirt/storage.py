# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Pools and volumes through libvirt's storage API, so that a remote connection serves as well as a local one."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, libvirt, said

__all__ = ["create", "delete", "download", "pool_xml", "refresh", "upload", "volume_at", "volume_in", "volumes"]


def pool_xml(connection: Connection, name: str) -> str:
    """The pool's document; raises NotFound, or Failed when it is not active."""
    with said("find storage pool", name, "create it, or name another with `pool`"):
        return t.cast(str, connection.storagePoolLookupByName(name).XMLDesc())


def refresh(connection: Connection, pool: str) -> None:
    """Make libvirt look again at what is in the pool: files that came or went behind its back."""
    with said("refresh storage pool", pool):
        connection.storagePoolLookupByName(pool).refresh()


def volume_in(connection: Connection, pool: str, name: str) -> str | None:
    """The document of a volume in a pool, or None."""
    with said("find storage pool", pool, "create it, or name another with `pool`"):
        found = connection.storagePoolLookupByName(pool)
    try:
        return t.cast(str, found.storageVolLookupByName(name).XMLDesc())
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_STORAGE_VOL:
            return None
        with said("find volume", f"{name} in pool {pool}"):
            raise


def volume_at(connection: Connection, path: str) -> str | None:
    """The document of the volume with that path, or None when no pool holds it."""
    try:
        return t.cast(str, connection.storageVolLookupByPath(path).XMLDesc())
    except libvirt.libvirtError as error:
        if error.get_error_code() in (libvirt.VIR_ERR_NO_STORAGE_VOL, libvirt.VIR_ERR_NO_STORAGE_POOL):
            return None
        with said("find volume", path):
            raise


def volumes(connection: Connection, pool: str) -> list[str]:
    """The documents of all volumes of a pool."""
    with said("list the volumes of pool", pool):
        return [volume.XMLDesc() for volume in connection.storagePoolLookupByName(pool).listAllVolumes()]


def create(connection: Connection, pool: str, xml: str, *, name: str, replace: bool = False) -> None:
    """Make a volume. With `replace`, a volume of that name is deleted first."""
    with said("create volume", f"{name} in pool {pool}"):
        target = connection.storagePoolLookupByName(pool)
        if replace:
            _delete_if_there(target, name)
        target.createXML(xml)


def upload(connection: Connection, pool: str, name: str, data: bytes) -> None:
    """Write the whole content of a volume."""
    with said("write volume", f"{name} in pool {pool}"):
        volume = connection.storagePoolLookupByName(pool).storageVolLookupByName(name)
        stream = connection.newStream()
        volume.upload(stream, 0, len(data))
        view, sent = memoryview(data), 0
        while sent < len(data):
            sent += stream.send(bytes(view[sent : sent + 262144]))
        stream.finish()


def download(connection: Connection, path: str) -> bytes:
    """The whole content of a (small) volume."""
    with said("read volume", path):
        volume = connection.storageVolLookupByPath(path)
        stream = connection.newStream()
        volume.download(stream, 0, 0)
        parts = []
        while True:
            part = stream.recv(262144)
            if not part:
                break
            parts.append(part)
        stream.finish()
    return b"".join(parts)


def delete(connection: Connection, path: str) -> None:
    """Delete the volume with that path; one that is gone already is no error. Raises NotFound when no pool holds it."""
    try:
        with said("delete disk", path):
            connection.storageVolLookupByPath(path).delete()
    except NotFound:
        for pool in connection.listAllStoragePools():
            if pool.isActive():
                pool.refresh()
        if volume_at(connection, path) is not None:
            with said("delete disk", path):
                connection.storageVolLookupByPath(path).delete()


def _delete_if_there(pool: t.Any, name: str) -> None:
    pool.refresh()  # an interrupted run may have left a file that libvirt has not seen
    if name in pool.listVolumes():
        pool.storageVolLookupByName(name).delete()
