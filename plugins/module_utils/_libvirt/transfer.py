# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Volumes copied from host to host, through us: nothing of it touches a disk of ours."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._libvirt.storage import AT_HOLE, CHUNK, receive, send

__all__ = ["active_pools", "copy", "digest", "inactive_pools", "opened"]


def copy(source: Connection, path: str, dest: Connection, pool: str, name: str, tell: t.Callable[[int], None]) -> None:
    """Write the content of a volume here into the volume there, piece by piece, holes as holes.

    `tell` hears of the bytes that are done.
    """
    done = 0
    with explained("copy volume", f"{path} to pool {pool}"):
        reader, writer = source.newStream(), dest.newStream()
        try:
            source.storageVolLookupByPath(path).download(reader, 0, 0, libvirt.VIR_STORAGE_VOL_DOWNLOAD_SPARSE_STREAM)
            volume = dest.storagePoolLookupByName(pool).storageVolLookupByName(name)
            volume.upload(writer, 0, 0, libvirt.VIR_STORAGE_VOL_UPLOAD_SPARSE_STREAM)
            while True:
                part = reader.recvFlags(CHUNK, libvirt.VIR_STREAM_RECV_STOP_AT_HOLE)
                if part == AT_HOLE:
                    hole = reader.recvHole()
                    writer.sendHole(hole)
                    done += hole
                elif part:
                    send(writer, part)
                    done += len(part)
                else:
                    break
                tell(done)
        except BaseException:
            for stream in (reader, writer):
                with contextlib.suppress(libvirt.libvirtError):  # it never began, or broke by itself
                    stream.abort()
            raise
        reader.finish()
        writer.finish()


def digest(connection: Connection, pool: str, name: str) -> str:
    """The sha256 of a volume's whole content, which comes here for that."""
    found = hashlib.sha256()

    def skip(size: int) -> None:
        for start in range(0, size, CHUNK):
            found.update(bytes(min(CHUNK, size - start)))

    receive(connection, pool, name, 0, found.update, skip)
    return found.hexdigest()


def active_pools(connection: Connection) -> dict[str, str]:
    """The documents of active pools by name."""
    return _pools(connection, libvirt.VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE)


def inactive_pools(connection: Connection) -> dict[str, str]:
    """The documents of pools that are not active, by name: nobody sees what they hold."""
    return _pools(connection, libvirt.VIR_CONNECT_LIST_STORAGE_POOLS_INACTIVE)


def _pools(connection: Connection, flag: int) -> dict[str, str]:
    with explained("list the storage pools of", connection.getURI()):
        listed = connection.listAllStoragePools(flag)
    found = {}
    for pool in listed:
        with contextlib.suppress(NotFound), explained("read storage pool", pool.name()):  # it is gone meanwhile
            found[pool.name()] = pool.XMLDesc()
    return found


@contextlib.contextmanager
def opened(connection: Connection, directory: str, xml: str, *, build: bool) -> t.Iterator[str]:
    """The name of a pool, described by `xml`, that is this directory for the length of the `with` block.

    A directory that is missing is made when told to `build`; else this raises NotFound.
    """
    flags = libvirt.VIR_STORAGE_POOL_CREATE_WITH_BUILD if build else 0
    with explained("open directory", directory):
        try:
            pool = connection.storagePoolCreateXML(xml, flags)
        except libvirt.libvirtError as error:
            if (error.get_error_code(), error.get_int1()) == (libvirt.VIR_ERR_SYSTEM_ERROR, errno.ENOENT):
                raise NotFound(
                    f"cannot open directory {directory}: it does not exist; create it on that host"
                ) from error
            raise
    try:
        yield pool.name()
    finally:
        with explained("close directory", directory):
            pool.destroy()
