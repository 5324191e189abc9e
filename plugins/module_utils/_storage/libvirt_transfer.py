# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copy volumes between hosts through this process; nothing is stored on this machine."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._storage.libvirt_storage import (
    AT_HOLE,
    CHUNK,
    read_part,
    receive,
    send,
)

_ARRIVES_S, _LOOK_S = 60, 0.01


def copy(
    source: Connection,
    path: str,
    dest: Connection,
    pool: str,
    name: str,
    tell: t.Callable[[int], None],
    *,
    is_device: bool = False,
) -> bool:
    """Write the content of a volume here into the volume there, piece by piece, holes as holes. `is_device`: it is a
    block device of this machine, which libvirt may not list.

    `tell` receives the bytes done. True if the written file had the volume's name at the end; somebody may have renamed
    another file over it.
    """
    with explained("copy volume", f"{path} to pool {pool}"):
        reader, writer = source.newStream(), _Writer(dest, pool, name)
        pieces = _of_device(path) if is_device else _of_volume(source, path, reader)
        try:
            writer.open()
            for piece in pieces:
                if isinstance(piece, int):
                    writer.skip(piece)
                else:
                    writer.write(piece)
                tell(writer.done)
            in_place = writer.end()
        except BaseException:
            for stream in (reader, writer.stream):
                with contextlib.suppress(libvirt.libvirtError):  # it never began, or broke by itself
                    stream.abort()
            raise
        if not is_device:
            reader.finish()
        writer.stream.finish()
    return in_place


def _of_volume(source: Connection, path: str, reader: t.Any) -> t.Iterator[bytes | int]:
    """The content of a volume, and the sizes of its holes."""
    source.storageVolLookupByPath(path).download(reader, 0, 0, libvirt.VIR_STORAGE_VOL_DOWNLOAD_SPARSE_STREAM)
    while piece := reader.recvFlags(CHUNK, libvirt.VIR_STREAM_RECV_STOP_AT_HOLE):
        yield reader.recvHole() if piece == AT_HOLE else piece


def _of_device(path: str) -> t.Iterator[bytes]:
    with open(path, "rb", buffering=0) as device:
        while piece := device.read(CHUNK):
            yield piece


class _Writer:
    """The stream into a volume whose file the daemon holds open; proves that the volume keeps this file's name.

    The last piece that is not empty is withheld until the end: read by name, it must not be there before it is sent,
    and must be there after.
    """

    def __init__(self, dest: Connection, pool: str, name: str) -> None:
        self._dest, self._pool, self._name = dest, pool, name
        self.stream = dest.newStream()
        self.done = 0  # bytes
        self._last: tuple[int, bytes] | None = None
        self._empty: list[tuple[bool, int]] = []  # what follows it: is it a hole, and how many bytes

    def open(self) -> None:
        """Start the upload; from here on the daemon holds the file open."""
        volume = self._dest.storagePoolLookupByName(self._pool).storageVolLookupByName(self._name)
        volume.upload(self.stream, 0, 0, libvirt.VIR_STORAGE_VOL_UPLOAD_SPARSE_STREAM)

    def skip(self, size: int, *, hole: bool = True) -> None:
        """Skip so many bytes: a hole, or zeros."""
        if self._empty and self._empty[-1][0] is hole:
            size_before = self._empty.pop()[1]
            self._empty.append((hole, size_before + size))
        else:
            self._empty.append((hole, size))
        self.done += size

    def write(self, piece: bytes) -> None:
        """Write one piece of data."""
        if not any(piece):
            self.skip(len(piece), hole=False)
            return
        self._pass_on()
        self._last = (self.done, piece)
        self.done += len(piece)

    def end(self) -> bool:
        """Send what was withheld; True if it arrives under the volume's name."""
        before = self._last is not None and self._sees_last()
        withheld, self._empty = self._empty, []
        last = self._last
        self._pass_on()
        self._last = last
        deadline = time.monotonic() + _ARRIVES_S
        while last and not (seen := self._sees_last()) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        self._last, self._empty = None, withheld
        self._pass_on()
        return not last or (seen and not before)

    def _sees_last(self) -> bool:
        at, piece = t.cast("tuple[int, bytes]", self._last)
        return read_part(self._dest, self._pool, self._name, at, len(piece)) == piece

    def _pass_on(self) -> None:
        if self._last:
            send(self.stream, self._last[1])
        for hole, size in self._empty:
            if hole:
                self.stream.sendHole(size)
            else:
                for start in range(0, size, CHUNK):
                    send(self.stream, bytes(min(CHUNK, size - start)))
        self._last, self._empty = None, []


def digest(connection: Connection, pool: str, name: str) -> str:
    """The SHA-256 of a volume's content, which is transferred here for that."""
    found = hashlib.sha256()

    def skip(size: int) -> None:
        for start in range(0, size, CHUNK):
            found.update(bytes(min(CHUNK, size - start)))

    receive(connection, pool, name, 0, found.update, skip)
    return found.hexdigest()


def active_pools(connection: Connection) -> dict[str, str]:
    """The XML of active pools, by name."""
    return _pools(connection, libvirt.VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE)


def inactive_pools(connection: Connection) -> dict[str, str]:
    """The XML of inactive pools, by name: nobody sees what they hold."""
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
    """Yields the name of a pool, described by `xml`, that is this directory for the length of the `with` block.

    With `build` a missing directory is created; else this raises NotFound.
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
