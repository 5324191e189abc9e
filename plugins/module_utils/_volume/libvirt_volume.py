# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Look up volumes, and carry their content to and from files of this machine; what is there already stays."""

from __future__ import annotations

import contextlib
import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.object_ref import Ref
from ansible_collections.corral.virt.plugins.module_utils._core.output import some_of
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._noun.libvirt_type import ObjectType
from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_storage
from ansible_collections.corral.virt.plugins.module_utils._storage.libvirt_storage import CHUNK
from ansible_collections.corral.virt.plugins.module_utils._volume.model_volume import UNFINISHED, VOLUME_KIND

Tell = t.Callable[[int, int], None]  # bytes done, of how many


def _by_name(connection: Connection, ref: Ref) -> t.Any:
    pool = libvirt_storage.active(connection, _pool(ref))
    try:
        volume = pool.storageVolLookupByName(ref.name)
        volume.info()
    except libvirt.libvirtError:
        libvirt_storage.refresh(connection, _pool(ref))  # a file has come or gone behind libvirt's back
        return pool.storageVolLookupByName(ref.name)
    return volume


VOLUME_TYPE = ObjectType(VOLUME_KIND, "volume", "VIR_ERR_NO_STORAGE_VOL", by_name=_by_name)


def _pool(ref: Ref) -> str:
    return ref.within.name if ref.within else ""


def volumes(connection: Connection, pool: str | None, name: str | None, problems: list[str]) -> list[tuple[Ref, t.Any]]:
    """libvirt's volume objects, of one pool or of all active ones, of one name or all, after a refresh.

    `problems` gets why volumes are missing: pools that break, and names that are not UTF-8. The one pool asked for must
    not break.
    """
    with explained("list the storage pools of", connection.getURI()):
        active = [one.name() for one in connection.listAllStoragePools(libvirt.VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE)]
    found = []
    for place in active if pool is None else [pool]:
        strange: list[str] = []
        try:
            libvirt_storage.refresh(connection, place)
            with explained("list the volumes of pool", place):
                listed = libvirt_storage.listed(libvirt_storage.active(connection, place), strange, name)
        except VirtError as error:
            if pool is not None:
                raise
            problems.append(str(error))
            continue
        found += [(VOLUME_KIND.ref(one, place), volume) for one, volume in listed if _is_shown(one)]
        if strange:
            problems.append(f"pool {place} has volumes whose names are not UTF-8; rename them: {some_of(strange, 5)}")
    return found


def _is_shown(name: str) -> bool:
    return not name.endswith(UNFINISHED) and name != ".corral"


def allocation(connection: Connection, ref: Ref) -> int:
    """Bytes that a volume takes."""
    with explained("read volume", ref.name):
        return int(_by_name(connection, ref).info()[2])


def mark(connection: Connection, ref: Ref, content: str, xml_of: t.Callable[[str, int], str]) -> None:
    """Record, beside a volume, what it is being filled with: until `unmark` its content is not complete.

    `xml_of` makes the document of a raw volume from its name and size in bytes.
    """
    name, data = ref.name + UNFINISHED, content.encode()
    libvirt_storage.create(connection, _pool(ref), xml_of(name, len(data)), name=name, replace=True)
    libvirt_storage.write(connection, _pool(ref), name, data)


def unmark(connection: Connection, ref: Ref) -> None:
    """Record that the content of a volume is complete."""
    with contextlib.suppress(libvirt.libvirtError):  # there is none, or its owner removes it meanwhile
        libvirt_storage.active(connection, _pool(ref)).storageVolLookupByName(ref.name + UNFINISHED).delete()


def unfinished(connection: Connection, ref: Ref) -> str | None:
    """What a volume is being filled with; None if its content is complete."""
    data = libvirt_storage.read(connection, _pool(ref), ref.name + UNFINISHED)
    return None if data is None else data.decode(errors="replace")


class _DiffersError(Exception):
    """Raised where a volume and a file differ."""


def _common(connection: Connection, ref: Ref, file: t.BinaryIO, length: int) -> int:
    """How many bytes a volume and a file have in common, from their start on."""
    same = 0

    def compare(piece: bytes) -> None:
        nonlocal same
        if file.read(len(piece)) != piece:
            raise _DiffersError
        same += len(piece)

    def hole(size: int) -> None:
        for start in range(0, size, CHUNK):
            compare(bytes(min(CHUNK, size - start)))

    file.seek(0)
    with contextlib.suppress(_DiffersError):
        if length:
            libvirt_storage.receive(connection, _pool(ref), ref.name, 0, compare, hole, length=length)
    return same


def is_same(connection: Connection, ref: Ref, path: str, size_bytes: int) -> bool:
    """True if a file has the content of a volume."""
    with contextlib.suppress(OSError):
        if os.path.getsize(path) == size_bytes:
            with open(path, "rb") as file:
                return _common(connection, ref, file, size_bytes) == size_bytes
    return False


def upload(connection: Connection, ref: Ref, path: str, tell: Tell) -> None:
    """Write a file into a volume of its size, from the first byte on that differs, holes as holes."""
    with open(path, "rb") as file, explained("upload into volume", f"{ref.name} of pool {_pool(ref)}"):
        total = os.fstat(file.fileno()).st_size
        done = _common(connection, ref, file, total)
        stream = connection.newStream()
        volume = libvirt_storage.active(connection, _pool(ref)).storageVolLookupByName(ref.name)
        volume.upload(stream, done, total - done, libvirt.VIR_STORAGE_VOL_UPLOAD_SPARSE_STREAM)
        try:
            for start, end, is_hole in _pieces(file.fileno(), done, total):
                if is_hole:
                    stream.sendHole(end - start)
                else:
                    libvirt_storage.send(stream, os.pread(file.fileno(), end - start, start))
                tell(end, total)
        except BaseException:
            stream.abort()
            raise
        stream.finish()


def _pieces(descriptor: int, at: int, total: int) -> t.Iterator[tuple[int, int, bool]]:
    """The ranges of a file in order: start, end, and whether it is a hole."""
    while at < total:
        try:
            data = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError:  # nothing but a hole follows
            data = total
        if data > at:
            yield at, data, True
        at = data
        end = os.lseek(descriptor, at, os.SEEK_HOLE) if at < total else at
        while at < end:
            following = min(at + CHUNK, end)
            yield at, following, False
            at = following


def download(connection: Connection, ref: Ref, file: t.BinaryIO, size_bytes: int, tell: Tell) -> None:
    """Write a volume's content into a file, which may hold its first part already."""
    done = _common(connection, ref, file, min(size_bytes, os.fstat(file.fileno()).st_size))
    file.seek(done)
    file.truncate()

    def write(piece: bytes) -> None:
        file.write(piece)
        tell(file.tell(), size_bytes)

    def skip(size: int) -> None:
        file.seek(size, os.SEEK_CUR)

    if done < size_bytes:
        libvirt_storage.receive(connection, _pool(ref), ref.name, done, write, skip)
    file.truncate(size_bytes)
