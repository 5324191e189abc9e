# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carry out what only volumes have, and answer their plan."""

from __future__ import annotations

import contextlib
import fcntl
import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.cached_answers import asked
from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotMade
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Looked
from ansible_collections.corral.virt.plugins.module_utils._core.object_ref import Ref
from ansible_collections.corral.virt.plugins.module_utils._core.uri import has_files_here, is_here, is_system
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query, xml_host
from ansible_collections.corral.virt.plugins.module_utils._domain.plan_snapshot_names import named
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_sources import sources
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._noun.libvirt_api import ObjectApi
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Spec
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import NounStep
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_disk,
    files_header,
    files_logical,
    files_qemu_img,
    libvirt_storage,
    run_disposal,
    run_file_users,
    run_owned_disks,
    run_snapshots,
)
from ansible_collections.corral.virt.plugins.module_utils._system import durable, free_space, locks, os_errors, private
from ansible_collections.corral.virt.plugins.module_utils._system.locks import DISKS
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity
from ansible_collections.corral.virt.plugins.module_utils._system.progress import Progress, Tell
from ansible_collections.corral.virt.plugins.module_utils._volume import libvirt_volume
from ansible_collections.corral.virt.plugins.module_utils._volume.fields_volume import VOLUME_SCHEMA, sized
from ansible_collections.corral.virt.plugins.module_utils._volume.libvirt_volume import VOLUME_TYPE
from ansible_collections.corral.virt.plugins.module_utils._volume.model_volume import (
    VOLUME_KIND,
    CloneSource,
    SourceFile,
)
from ansible_collections.corral.virt.plugins.module_utils._volume.plan_volume import (
    Delete,
    Fill,
    Finish,
    PoolSight,
    Resize,
    Save,
    check_new,
    check_original,
    check_part,
    check_same,
    check_source,
    check_unused,
    is_marked,
)
from ansible_collections.corral.virt.plugins.module_utils._xml.row import values


class _Host:
    """The `VolumeHost` behind a connection."""

    def __init__(self, connection: Connection, spec: Spec) -> None:
        self._connection, self._ref = connection, VOLUME_KIND.ref(spec.name, spec.within)
        self._pool = str(spec.within)

    @asked
    def pool(self) -> PoolSight:
        xml = libvirt_storage.pool_xml(self._connection, self._pool)
        kind, free = str(xml_host.pool(xml)["type"]), libvirt_storage.active(self._connection, self._pool).info()[3]
        is_group = kind == "logical" and has_files_here(self._connection.getURI())
        group = files_logical.group(xml_host.volume_group(xml) or self._pool) if is_group else None
        return PoolSight(kind, free, group["extent_bytes"]) if group else PoolSight(kind, free)

    @asked
    def source(self, path: str) -> SourceFile:
        header = files_header.read(path)
        status = os.stat(path)
        capacity = (
            files_qemu_img.info(path, header.format)["virtual-size"] if header.format != "raw" else status.st_size
        )
        names = header.backing or header.data_file
        return SourceFile(status.st_size, free_space.allocated(path), header.format, -(-capacity // 1024), names)

    @asked
    def original(self, pool: str, name: str) -> CloneSource | None:
        return _original(self._connection, pool, name)

    @asked
    def user(self, path: str) -> str | None:
        return _user(self._connection, path)

    @asked
    def taker(self, path: str) -> str | None:
        return _taker(self._connection, path)

    @asked
    def writer(self, path: str) -> str | None:
        return _writer(self._connection, path)

    @asked
    def identity(self, path: str) -> tuple[str | None, FileIdentity | None]:
        found = run_owned_disks.identities(self._connection, [path])
        return libvirt_storage.volume_key(self._connection, path), found.get(path)

    @asked
    def removals(self) -> list[tuple[str, FileIdentity]]:
        path = libvirt_storage.path_in(self._connection, self._pool, self._ref.name)
        aside = run_disposal.unfinished(self._connection) if path else []
        found = [
            (one.place, one.note) for one in aside if one.moved or (one.note and not os.path.lexists(one.note.path))
        ]
        return [(place, note.identity) for place, note in found if note and _real(note.path) == _real(str(path))]

    @asked
    def unfinished(self) -> str | None:
        left = libvirt_volume.unfinished(self._connection, self._ref)
        content, _newline, which = (left or "").partition("\n")
        is_it = left is not None and is_marked(which, _which(self._connection, self._ref), self._allocated_bytes())
        return left and (content if is_it else f"{content} (or another volume of this name)")

    def _allocated_bytes(self) -> int:
        return libvirt_volume.allocation(self._connection, self._ref)

    def content(self, spec: Spec) -> str:
        return _content(spec)

    @asked
    def is_saved(self, path: str) -> bool:
        return libvirt_volume.is_same(self._connection, self._ref, path, _size_bytes(self._connection, self._ref))


def _content(spec: Spec) -> str:
    """A name of the content that the options give; another file of the same name has another."""
    if "source" not in spec.own:
        return f"a copy of volume {spec.own['clone_of']} of pool {spec.own.get('clone_pool') or spec.within}"
    path = spec.own["source"]
    with os_errors.explained(f"read {path}", path):
        found = os.stat(path)
    return f"{path} ({found.st_size} bytes, changed at {found.st_mtime_ns} ns)"


def _size_bytes(connection: Connection, ref: Ref) -> int:
    """The bytes of a volume's file."""
    with explained("read volume", str(ref)):
        return int(xml_host.volume(VOLUME_TYPE.named(connection, ref).XMLDesc())["physical_bytes"])


def _opener(connection: Connection, path: str, *, writes: bool = False) -> str | None:
    """Who has a file of this machine open, perhaps on another one that shares the filesystem."""
    return files_disk.opener(path, writes=writes) if is_here(connection.getURI()) else None


def _user(connection: Connection, path: str) -> str | None:
    """Who uses a volume."""
    return run_file_users.users(connection).of(path) or _opener(connection, path)


def _writer(connection: Connection, path: str) -> str | None:
    """The running guest that has the volume as a disk, or a process that writes it."""

    def located(pool: str, volume: str) -> str:
        return libvirt_storage.path_in(connection, pool, volume) or volume

    def guest(domain: t.Any) -> tuple[str, str | None]:
        found = libvirt_query.found(domain)
        return found.name, found.live_xml

    real = os.path.realpath if is_here(connection.getURI()) else os.path.normpath
    for name, xml in libvirt_query.of_all(connection, guest):
        if xml and real(path) in map(real, sources(xml, located)):
            return f"guest {name} (running)"
    return _opener(connection, path, writes=True)


def _original(connection: Connection, pool: str, name: str) -> CloneSource | None:
    xml = libvirt_storage.volume_in(connection, pool, name)
    if xml is None:
        return None
    found, fields = xml_host.volume(xml), values(xml, VOLUME_SCHEMA.table)
    return CloneSource(str(found["path"]), -(-found["capacity_bytes"] // 1024), bool(fields.get("encryption")))


def _which(connection: Connection, ref: Ref) -> str:
    """Which volume has the name now: its file, or on another machine libvirt's key."""
    xml = libvirt_storage.volume_in(connection, _pool(ref), ref.name)
    path = str(xml_host.volume(xml)["path"]) if xml else ""
    found = run_owned_disks.identities(connection, [path]).get(path) if path else None
    return f"{found.inode} {found.born_ns}" if found else str(path and libvirt_storage.volume_key(connection, path))


def _real(path: str) -> str:
    """A path with its directory resolved."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def _pool(ref: Ref) -> str:
    return ref.within.name if ref.within else ""


def _taker(connection: Connection, path: str) -> str | None:
    """Who uses a volume, but a guest that is off, without saved state or snapshots in it, whose disk it is."""
    inside = libvirt_query.of_all(connection, lambda one: _snapshots_inside(connection, one, path))
    if any(inside):
        return next(filter(None, inside))
    user = run_file_users.users(connection).of(path)
    owners = [uuid for uuid in libvirt_query.of_all(connection, lambda one: _off_owner(connection, one, path)) if uuid]
    other = run_file_users.users(connection, but=owners[0]).of(path) if user and owners else user
    return other or _opener(connection, path)


def _snapshots_inside(connection: Connection, domain: t.Any, path: str) -> str | None:
    """A guest's snapshots whose content is inside the volume."""
    tree = run_snapshots.tree(connection, domain.UUIDString())
    names = [
        one.name
        for _depth, one in tree.ordered
        if any(disk.kind == "internal" and disk.base == path for disk in one.disks)
    ]
    return f"{named(names)} of guest {domain.name()}" if names else None


def _off_owner(connection: Connection, domain: t.Any, path: str) -> str | None:
    """The UUID of a guest that is off and has the volume as a disk."""

    def located(pool: str, volume: str) -> str:
        return libvirt_storage.path_in(connection, pool, volume) or volume

    found = libvirt_query.found(domain)
    is_kept = found.live_xml or libvirt_query.saved_xml(domain)
    return None if is_kept or path not in sources(found.xml, located) else found.uuid


def _create(connection: Connection, spec: Spec, step: t.Any) -> None:
    """Create the volume; one that gets content has a mark until that is complete.

    Until the mark says which volume it is about, nothing is ever written into one that has the name.
    """
    own, ref, copy_of, xml = spec.own, step.ref, None, step.xml
    check_new(ref, libvirt_storage.volume_in(connection, _pool(ref), ref.name))
    if "clone_of" in own:
        pool = own.get("clone_pool") or str(spec.within)
        original = _original(connection, pool, own["clone_of"])
        check_original(pool, own["clone_of"], original)
        copy_of = original.path if original else None
    elif "source" in own:
        source = own["source"]
        with os_errors.explained(f"read {source}", source):
            xml = sized(xml, os.stat(source).st_size)
    for path, verb in ((copy_of, "clone"), (spec.fields.get("backing.path"), "back")):
        check_unused(ref, verb, _writer(connection, path) if path else None)
    libvirt_volume.unmark(connection, ref)
    content = _content(spec) if copy_of or "source" in own else None
    if content:
        libvirt_volume.mark(connection, ref, content, xml_host.new_raw)
    capacity = int(spec.fields.get("capacity_kib") or 0) * 1024
    try:
        libvirt_storage.create(
            connection, str(spec.within), xml, name=spec.name, copy_of=copy_of, capacity_bytes=capacity
        )
    except NotMade:
        if content and libvirt_volume.unfinished(connection, ref) == content:  # not that of who was faster
            libvirt_volume.unmark(connection, ref)
        raise
    if copy_of:
        libvirt_volume.unmark(connection, ref)
    elif content:
        libvirt_volume.mark(connection, ref, f"{content}\n{_which(connection, ref)}", xml_host.new_raw)


@contextlib.contextmanager
def _unused(volume: t.Any, step: Resize) -> t.Iterator[None]:
    """Check that nobody would notice the new size, while no run takes an existing disk into use."""
    connection = volume.connect()
    with contextlib.ExitStack() as stack:
        if is_system(connection.getURI()):
            stack.enter_context(locks.flocked(DISKS, fcntl.LOCK_EX))
        found = run_owned_disks.identities(connection, [step.path]).get(step.path)
        check_same(step.ref, "resize", step.identity, found)
        check_unused(step.ref, "resize", _taker(connection, step.path))
        yield


def _resize(volume: t.Any, step: Resize) -> None:
    wanted = step.capacity_kib * 1024
    volume.resize(wanted, libvirt.VIR_STORAGE_VOL_RESIZE_SHRINK if wanted < volume.info()[1] else 0)


_REMOVERS: dict[type[NounStep], Looked] = {
    Delete: Looked(run_disposal.Disposal.look, run_disposal.Disposal.act),
    Finish: Looked(run_disposal.Finishing.look, run_disposal.Finishing.act),
}


def _delete(connection: Connection, _spec: Spec, step: Delete) -> None:
    place = str(step.ref.within)
    _REMOVERS[type(step)](
        run_disposal.Disposal(connection, step.path, place, "", expected=step.identity, key=step.key, wipe=step.wipe)
    )
    libvirt_volume.unmark(connection, step.ref)


def _finish(connection: Connection, _spec: Spec, step: Finish) -> None:
    _REMOVERS[type(step)](run_disposal.Finishing(connection, step.place, step.identity, wipe=step.wipe))


def _fill(connection: Connection, spec: Spec, step: Fill) -> None:
    path = VOLUME_TYPE.named(connection, step.ref).path()
    check_unused(step.ref, "fill", _user(connection, path))
    before = _content(spec)
    with _progress(spec) as tell, os_errors.explained(f"read {step.source}", step.source):
        libvirt_volume.upload(connection, step.ref, step.source, lambda done, total: tell("upload", done, total))
    check_source(step.source, before, _content(spec))
    if is_here(connection.getURI()):
        with contextlib.suppress(PermissionError):  # the file is root's
            durable.fsync(path)
    libvirt_volume.unmark(connection, step.ref)
    libvirt_storage.refresh(connection, str(spec.within))  # libvirt looks at what it holds now


def _is_free(descriptor: int, path: str) -> bool:
    """True if no other run writes the open file; it is locked then, and still has its name."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


def _save(connection: Connection, spec: Spec, step: Save) -> None:
    check_unused(step.ref, "download", _writer(connection, VOLUME_TYPE.named(connection, step.ref).path()))
    size = _size_bytes(connection, step.ref)
    part = os.path.join(os.path.dirname(step.dest), f".{os.path.basename(step.dest)}.corral-part")
    with _progress(spec) as tell, os_errors.explained(f"write {step.dest}", step.dest):
        with open(private.opened(part, os.O_RDWR | os.O_CREAT), "r+b") as file:
            status = os.fstat(file.fileno())
            is_ours = status.st_uid == os.geteuid() and not status.st_mode & 0o077
            check_part(part, is_ours=is_ours, is_free=_is_free(file.fileno(), part))
            libvirt_volume.download(connection, step.ref, file, size, lambda done, total: tell("download", done, total))
        durable.replace(part, step.dest)


_Do = t.Callable[[Connection, Spec, t.Any], object]
_DOERS: dict[type[NounStep], _Do] = {Fill: _fill, Save: _save}


def _told(connection: Connection, spec: Spec) -> dict[type[NounStep], t.Callable[[t.Any, t.Any], object]]:
    def told(do: _Do) -> t.Callable[[t.Any, t.Any], object]:
        return lambda _volume, step: do(connection, spec, step)

    removals: dict[type[NounStep], _Do] = {Delete: _delete, Finish: _finish}
    return {kind: told(do) for kind, do in {**_DOERS, **removals}.items()}


@contextlib.contextmanager
def _progress(spec: Spec) -> t.Iterator[Tell]:
    if "progress" not in spec.own:
        yield lambda _phase, _done, _total: None
        return
    with Progress(spec.own["progress"]) as tell:
        yield tell


API = ObjectApi(
    VOLUME_TYPE,
    define=_create,
    own={Resize: Looked(_unused, _resize)},
    host=_Host,
    told=_told,
)
