# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pools and volumes through libvirt's storage API, which also works over a remote connection."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, NotFound, NotMade, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.uri import has_files_here
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._system.stale_mounts import TIMEOUT_S, answers
from ansible_collections.corral.virt.plugins.module_utils._xml import stdlib_reader

CHUNK = 262144
AT_HOLE = -3  # what recvFlags returns there
_SMALL_BYTES = 4 * 1024**2  # a manifest, or a seed with all that a guest is told
_NO_CLOCK = "Unable to get accurate CPU usage"
_CLOCK_TRIES = 8
_BUSY_S = 600
_LISTED = 16384  # volumes: libvirt's protocol carries no more (REMOTE_STORAGE_VOL_LIST_MAX)


def pool_xml(connection: Connection, name: str) -> str:
    """The pool's XML; raises NotFound, or Failed if the pool is not active."""
    pool = active(connection, name)
    with explained("find storage pool", name):
        return t.cast(str, pool.XMLDesc())


def active(connection: Connection, name: str) -> t.Any:
    """The pool with this name; raises NotFound, or Failed if it is not active and so cannot be listed."""
    with explained("find storage pool", name, "create it, or choose another with `pool`"):
        pool = connection.storagePoolLookupByName(name)
        active = pool.isActive()
    if not active:
        start = shlex.join(["virsh", "--connect", connection.getURI(), "pool-start", name])
        raise Failed(
            f"cannot use storage pool {name}: it is not active; start it with virt_pool (state: active) or `{start}`"
        )
    return pool


def pool_at(connection: Connection, path: str) -> str:
    """The name of the pool that holds the volume at this path; raises NotFound."""
    if volume_at(connection, path) is None:
        _refreshed(connection)  # somebody may have made it since libvirt looked
    with explained("find a storage pool with", path, "create one for its directory with virt_pool"):
        return t.cast(str, connection.storageVolLookupByPath(path).storagePoolLookupByVolume().name())


def refresh(connection: Connection, pool: str) -> None:
    """Refresh a pool: files may have come or gone behind libvirt's back."""
    found = active(connection, pool)
    with explained("read storage pool", pool):
        directory = stdlib_reader.directory(found.XMLDesc())
    if directory and has_files_here(connection.getURI()):
        check_answers(pool, directory)
    with explained("refresh storage pool", pool, f"mend what it stands on, or stop it (virsh pool-destroy {pool})"):
        _refresh(found)


def check_answers(pool: str, directory: str) -> None:
    """Raise Failed if a pool's directory does not answer, as on a share whose server is gone."""
    if not answers(directory):
        path = shlex.quote(directory)
        raise Failed(
            f"cannot use storage pool {pool}: {directory} has not answered within {TIMEOUT_S} s; look at its server "
            f"and the network, or give it up (`umount --force --lazy {path}; virsh pool-destroy {shlex.quote(pool)}`)"
        )


def _refresh(pool: t.Any) -> None:
    """Refresh a pool. While a copy is being made in it, perhaps for a killed run, libvirt refuses: retry until that
    ends.

    No event tells the end.
    """
    deadline = time.monotonic() + _BUSY_S
    while True:
        try:
            pool.refresh()
        except libvirt.libvirtError as error:
            if "asynchronous jobs" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(1)
        else:
            return


def volume_in(connection: Connection, pool: str, name: str) -> str | None:
    """The XML of a volume in a pool; None if there is none."""
    found = active(connection, pool)
    try:
        return t.cast(str, found.storageVolLookupByName(name).XMLDesc())
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_STORAGE_VOL:
            return None
        with explained("find volume", f"{name} in pool {pool}"):  # the pool may be gone, too
            raise


def volume_at(connection: Connection, path: str) -> str | None:
    """The XML of the volume at this path; None if no pool holds it."""
    with contextlib.suppress(NotFound), explained("find volume", path):
        return t.cast(str, connection.storageVolLookupByPath(path).XMLDesc())
    return None


def volume_key(connection: Connection, path: str) -> str | None:
    """libvirt's key of the volume at this path, which a later volume there does not have; None if no pool holds it."""
    with contextlib.suppress(NotFound), explained("find volume", path):
        return t.cast(str, connection.storageVolLookupByPath(path).key())
    return None


def path_in(connection: Connection, pool: str, name: str) -> str | None:
    """The path of a volume in a pool, active or not; None if no pool with that name has files."""
    try:
        with explained("find volume", f"{name} in pool {pool}"):
            found = connection.storagePoolLookupByName(pool)
            if found.isActive() and _has(found, name):
                return t.cast(str, found.storageVolLookupByName(name).path())
            directory = stdlib_reader.directory(found.XMLDesc())
    except NotFound:
        return None
    return os.path.join(directory, name) if directory else None


def names(connection: Connection, pool: str) -> list[str]:
    """Names of the volumes of a pool, after a refresh; directories are volumes too."""
    refresh(connection, pool)
    with explained("list the volumes of pool", pool):
        return _names(active(connection, pool))


def listed(pool: t.Any, strange: list[str] | None = None, name: str | None = None) -> list[tuple[str, t.Any]]:
    """The volumes of libvirt's pool, all or those of a name; without those whose names are not UTF-8, which `strange`
    gets.

    libvirt's binding can do nothing with such a name; whoever needs all files reads the directory.
    """
    files = _files(pool) if name is None else [name]
    if files:
        names = map(os.path.basename, files) if name is None else [name]
        return [(each, volume) for each in names for volume in _looked_up(pool, each)]
    found = []
    for volume in pool.listAllVolumes():
        try:
            found.append((volume.name(), volume))
        except UnicodeDecodeError as error:
            if strange is not None:
                strange.append(error.object.decode(errors="backslashreplace"))
    return found


def _files(pool: t.Any) -> list[str]:
    """The files of a pool of this machine that has more volumes than libvirt lists; empty for all other pools."""
    if pool.numOfVolumes() <= _LISTED or not has_files_here(pool.connect().getURI()):
        return []
    directory = stdlib_reader.directory(pool.XMLDesc())
    with os.scandir(directory or os.curdir) as entries:
        return [entry.path for entry in entries if directory]


def _looked_up(pool: t.Any, name: str) -> t.Iterator[t.Any]:
    """The volume of this name; nothing if it is gone, or libvirt's binding cannot spell it."""
    try:
        yield pool.storageVolLookupByName(name)
    except UnicodeEncodeError:
        return
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_STORAGE_VOL:
            raise


def _names(pool: t.Any) -> list[str]:
    files = _files(pool)
    if files:
        return [os.path.basename(path) for path in files]
    try:
        return list(pool.listVolumes())
    except UnicodeDecodeError:
        return [name for name, _volume in listed(pool)]


def _has(pool: t.Any, name: str) -> bool:
    return any(True for _volume in _looked_up(pool, name))


def _refreshed(connection: Connection) -> list[t.Any]:
    """The active pools, refreshed."""
    active = [pool for pool in connection.listAllStoragePools() if pool.isActive()]
    for pool in active:
        refresh(connection, pool.name())
    return active


def paths(connection: Connection) -> list[str]:
    """The paths of all volumes of active pools, after a refresh; see `listed`."""
    with explained("list the volumes of", connection.getURI()):
        known = [(pool, _files(pool)) for pool in _refreshed(connection)]
        found = [path for _pool, files in known for path in files]
        volumes = [each for pool, files in known if not files for each in listed(pool)]
    for name, volume in volumes:
        with contextlib.suppress(NotFound), explained("read volume", name):
            found.append(volume.path())
    return found


def all_volumes(connection: Connection, is_needed: t.Callable[[str], bool] = lambda _path: True) -> list[str]:
    """The XML of all volumes of active pools, after a refresh; see `listed`.

    Of a pool with more volumes than libvirt lists, only those of files that are needed.
    """
    volumes = []
    with explained("list the volumes of", connection.getURI()):
        for pool in _refreshed(connection):
            files = _files(pool)
            names = [os.path.basename(path) for path in files if is_needed(path)]
            volumes += [(name, each) for name in names for each in _looked_up(pool, name)] if files else listed(pool)
    documents = []
    for name, volume in volumes:
        with contextlib.suppress(NotFound), explained("read volume", name):  # its owner deletes it meanwhile
            documents.append(volume.XMLDesc())
    return documents


def create(
    connection: Connection,
    pool: str,
    xml: str,
    *,
    name: str,
    replace: bool = False,
    copy_of: str | None = None,
    capacity_bytes: int = 0,
) -> None:
    """Create a volume, empty or as a copy of another; raises NotMade if it exists.

    With `replace`, a volume of that name is deleted first. A copy has the size of its original, and then grows to its
    own.
    """
    if replace:
        with explained("create volume", f"{name} in pool {pool}"):
            _delete_if_there(active(connection, pool), name)
    try:
        target = active(connection, pool)
        with explained("create volume", f"{name} in pool {pool}"):
            if volume_in(connection, pool, name) is None and _has(target, name):
                _refresh(target)  # somebody has removed the file, and libvirt has not seen that
            made = _made(target, xml, None if copy_of is None else connection.storageVolLookupByPath(copy_of))
    except VirtError as error:  # libvirt removes what it has made of it
        raise NotMade(str(error)) from error
    with explained("grow volume", f"{name} in pool {pool}"):
        if copy_of is not None and made.info()[1] < capacity_bytes:
            made.resize(capacity_bytes)


def _made(pool: t.Any, xml: str, source: t.Any) -> t.Any:
    """The new volume; it shares the blocks of `source` if the filesystem can."""
    if source is None:
        return _made_empty(pool, xml)
    try:
        return pool.createXMLFrom(xml, source, libvirt.VIR_STORAGE_VOL_CREATE_REFLINK)
    except libvirt.libvirtError:
        return pool.createXMLFrom(xml, source)


def _made_empty(pool: t.Any, xml: str, tries: int = _CLOCK_TRIES) -> t.Any:
    """The new volume, empty.

    For LUKS, qemu-img times its key derivation by the processor's clock, and gives up where a coarse or busy clock
    says zero (QEMU's crypto/pbkdf.c). libvirt has removed the file then, and the next try measures anew.
    """
    try:
        return pool.createXML(xml)
    except libvirt.libvirtError as error:
        if tries < 2 or _NO_CLOCK not in str(error):
            raise
        return _made_empty(pool, xml, tries - 1)


def read(connection: Connection, pool: str, name: str) -> bytes | None:
    """The content of a small volume; None if there is none. Raises Failed for a large one."""
    content = bytearray()
    if volume_in(connection, pool, name) is None:
        return None

    def grow(size: int, piece: bytes = b"") -> None:
        if len(content) + size > _SMALL_BYTES:
            raise Failed(
                f"cannot read volume {name} in pool {pool}: it is larger than {_SMALL_BYTES} bytes; find out who "
                "wrote it"
            )
        content.extend(piece or bytes(size))

    receive(connection, pool, name, 0, lambda piece: grow(len(piece), piece), grow)
    return bytes(content)


def read_part(connection: Connection, pool: str, name: str, offset: int, length: int) -> bytes:
    """`length` bytes of a volume from `offset` on; fewer at its end."""
    content = bytearray()
    receive(connection, pool, name, offset, content.extend, lambda size: content.extend(bytes(size)), length=length)
    return bytes(content)


def receive(
    connection: Connection,
    pool: str,
    name: str,
    offset: int,
    write: t.Callable[[bytes], None],
    skip: t.Callable[[int], None],
    *,
    length: int = 0,
) -> None:
    """Pass on the content of a volume from `offset` (bytes) on: data to `write`, sizes of holes to `skip`.

    `length`: 0 for all the rest.
    """
    with explained("read volume", f"{name} in pool {pool}"):
        stream = connection.newStream()
        volume = active(connection, pool).storageVolLookupByName(name)
        volume.download(stream, offset, length, libvirt.VIR_STORAGE_VOL_DOWNLOAD_SPARSE_STREAM)
        try:
            while True:
                piece = stream.recvFlags(CHUNK, libvirt.VIR_STREAM_RECV_STOP_AT_HOLE)
                if piece == AT_HOLE:
                    skip(stream.recvHole())
                elif piece:
                    write(piece)
                else:
                    break
        except BaseException:
            stream.abort()
            raise
        stream.finish()


def write(connection: Connection, pool: str, name: str, data: bytes) -> None:
    """Write the whole content of a volume."""
    with explained("write volume", f"{name} in pool {pool}"):
        stream = connection.newStream()
        active(connection, pool).storageVolLookupByName(name).upload(stream, 0, len(data))
        for start in range(0, len(data), CHUNK):
            send(stream, data[start : start + CHUNK])
        stream.finish()


def send(stream: t.Any, data: bytes) -> None:
    """Send all data; libvirt takes only a part at a time."""
    while data:
        data = data[stream.send(data) :]


def delete(connection: Connection, path: str) -> None:
    """Delete the volume at this path; a volume missing from the active pool of its directory is gone already.

    Raises NotFound if no active pool has the directory: it is then unknown whether the volume exists.
    """
    try:
        _delete(connection, path)
    except NotFound:
        all_volumes(connection)
        if volume_at(connection, path) is not None:
            _delete(connection, path)
        elif not _is_in_pool(connection, path):
            raise NotFound(
                f"cannot delete disk {path}: no active storage pool has its directory; start that pool, or create one "
                "with virt_pool, and run again, or delete it by hand"
            ) from None


def _delete(connection: Connection, path: str) -> None:
    with explained("delete disk", path):
        connection.storageVolLookupByPath(path).delete()


def _is_in_pool(connection: Connection, path: str) -> bool:
    """True if an active pool has the path's directory."""
    with explained("list the storage pools of", connection.getURI()):
        active = connection.listAllStoragePools(libvirt.VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE)
        directories = [stdlib_reader.directory(pool.XMLDesc()) for pool in active]
    return os.path.normpath(os.path.dirname(path)) in map(os.path.normpath, filter(None, directories))


def _delete_if_there(pool: t.Any, name: str) -> None:
    _refresh(pool)  # an interrupted run may have left a file that libvirt has not seen
    if _has(pool, name):
        pool.storageVolLookupByName(name).delete()
