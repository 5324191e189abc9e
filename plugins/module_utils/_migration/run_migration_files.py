# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that a migration makes on the destination: recorded with the guest, recognised again, and only then removed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os.path
import secrets
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, VirtError
from ansible_collections.corral.virt.plugins.module_utils._domain import (
    fields_disk,
    fields_record,
    libvirt_query,
    xml_host,
    xml_host_bindings,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest, Volume
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_sources import sources
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition
from ansible_collections.corral.virt.plugins.module_utils._migration import libvirt_migrate
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import Made
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_concurrent_changes import (
    check_in_place,
    check_seen,
    check_size,
    replaced,
    sorted_out,
    stopped,
    without_pool,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.run_endpoints import Endpoints
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_header,
    libvirt_storage,
    libvirt_transfer,
    run_directories,
)
from ansible_collections.corral.virt.plugins.module_utils._system import locks
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

_HEAD_BYTES = 4096  # hold the header of a new qcow2, its extensions and the name of its base


def remember(guest: t.Any, fields: t.Mapping[str, t.Any]) -> None:
    """Write these fields into a virDomain's record."""
    now = libvirt_query.found(guest)
    stored = fields_record.update(now.xml, fields) if now.persistent else None
    definition.set_record(guest, stored, now.live_xml and fields_record.update(now.live_xml, fields))


def users(dest: t.Any, uuid: str) -> dict[str, str]:
    """Files of the destination that guests other than this one use: path -> name of a guest."""
    found: dict[str, str] = {}
    located = functools.partial(libvirt_storage.path_in, dest)
    for other in libvirt_query.of_all(dest, libvirt_query.found):
        for xml in (other.xml, other.live_xml):
            if xml and other.uuid != uuid:
                own = xml_host_bindings.released(xml) if xml_host_bindings.is_reserved(xml) else xml
                found.update(
                    dict.fromkeys((*sources(own, located, below=True), *xml_host_bindings.files(own)), other.name)
                )
    return found


def taken_variables(dest: t.Any, guest: FoundGuest) -> dict[str, str]:
    """Paths of a running guest's UEFI variables that other guests of the destination use: path -> name of a guest.

    QEMU on the destination opens the file, and writes into it, whoever's it is.
    """
    stores = xml_host_bindings.files(guest.live_xml or guest.xml)
    taken = users(dest, guest.uuid) if stores else {}
    return {path: taken[path] for path in stores if path in taken}


def ours(dest: t.Any, uuid: str, recorded: t.Mapping[str, t.Any]) -> tuple[set[str], list[str]]:
    """Paths of recorded files that exist and are unchanged, and why other recorded paths are not.

    Only files in existing pools are seen: no pool is created for this look.
    """
    entries = _entries(recorded)
    for pool in filter(None, (run_directories.pool_at(dest, directory) for directory in _directories(entries))):
        libvirt_storage.refresh(dest, pool)
    return _sorted_out(dest, uuid, entries)


def _directories(entries: t.Iterable[Made]) -> list[str]:
    return sorted({os.path.dirname(made.path) for made in entries})


def _entries(recorded: t.Mapping[str, t.Any]) -> list[Made]:
    return [Made.parse(text) for text in recorded.get("moving_made") or ()]


def _sorted_out(dest: t.Any, uuid: str, entries: t.Sequence[Made]) -> tuple[set[str], list[str]]:
    taken = users(dest, uuid) if entries else {}
    found = {made.path: libvirt_storage.volume_at(dest, made.path) for made in entries}
    seen = {path: xml_host.volume(xml) for path, xml in found.items() if xml}
    origins = {made.path: made.source_path for made in entries}
    begun, mark = functools.partial(_begun, dest, origins), functools.partial(_mark, dest)
    return sorted_out(entries, seen, taken, begun=begun, mark=mark)


def _mark(dest: t.Any, path: str) -> str:
    """The mark in the header of the file at this path, or the UUID of the logical volume; empty if there is none."""
    pool = run_directories.pool_at(dest, os.path.dirname(path))
    if pool is None:
        return ""
    if path.startswith("/dev/"):
        libvirt_storage.refresh(dest, pool)
        return libvirt_storage.volume_key(dest, path) or ""
    try:
        return files_header.mark(libvirt_storage.read_part(dest, pool, os.path.basename(path), 0, _HEAD_BYTES))
    except NotFound:
        return ""


def check_arrived(dest: t.Any, guest: FoundGuest) -> None:
    """Raise Failed if a disk that QEMU filled on the destination is no longer the file at its path.

    A file renamed over it takes its name: the guest then writes to a file that is gone when it ends. Disks that the
    running guest no longer has are skipped: its owner has merged them.
    """
    entries = [made for made in _entries(fields_record.of(guest)) if made.phase == Made.OPEN]
    if guest.live_xml:
        has = sources(guest.live_xml, functools.partial(libvirt_storage.path_in, dest), below=True)
        entries = [made for made in entries if made.path in has]
    check_in_place(guest.name, {made.path: _replaced(dest, guest, made) for made in entries})


def _replaced(dest: t.Any, guest: FoundGuest, made: Made) -> str:
    """Why the file at a path is not the one that QEMU has open; empty if it is. A raw file has no mark: QEMU sets its
    length to the current one, and the file's time must change.
    """
    if made.mark:
        return replaced(made, _mark(dest, made.path))
    disks = fields_disk.media(parse(guest.live_xml or guest.xml))
    target = next((item["target"] for item in disks if item.get("source") == made.path), None)
    if target is None or not guest.active:
        return ""
    before = _changed(dest, made.path)
    libvirt_migrate.touch(dest, guest.uuid, target)
    return replaced(dataclasses.replace(made, mark="open"), "" if before == _changed(dest, made.path) else "open")


def _changed(dest: t.Any, path: str) -> str:
    xml = libvirt_storage.volume_at(dest, path)
    return xml_host.volume(xml)["changed"] if xml else ""


def check_copied(endpoints: Endpoints, uuid: str, name: str) -> None:
    """Raise Failed if a file copied to the destination is no longer the one that was made there."""
    entries = _entries(fields_record.of(libvirt_query.found(libvirt_query.by_uuid(endpoints.source, uuid))))
    made = {one.path: one.changed for one in entries if one.phase == Made.MADE and not one.is_volume}
    why = "it was replaced or changed after it was copied"
    problems = {path: why for path, then in made.items() if then != _changed_there(endpoints.dest, path)}
    volumes = {one.path: replaced(one, _mark(endpoints.dest, one.path)) for one in entries if one.is_volume}
    check_in_place(name, {**problems, **volumes})


def _changed_there(dest: t.Any, path: str) -> str:
    """When a file was last changed; UEFI variables and TPM state are in no pool, so their directory becomes one
    meanwhile.
    """
    changed = _changed(dest, path)
    if changed:
        return changed
    with contextlib.suppress(NotFound), run_directories.pool_for(dest, os.path.dirname(path)) as pool:
        libvirt_storage.refresh(dest, pool)
        return _changed(dest, path)
    return ""


def _begun(dest: t.Any, origins: t.Mapping[str, str], path: str, size: int) -> bool:
    """True if the destination's file holds the bytes that the source's file begins with."""
    directory, name = os.path.split(path)
    pool, mine = run_directories.pool_at(dest, directory), locks.digest(origins[path], size)
    return bool(pool and mine) and libvirt_transfer.digest(dest, t.cast(str, pool), name) == mine


def _list(dest: t.Any, directory: str, stack: contextlib.ExitStack) -> str:
    """Refresh a directory's pool and keep it until the stack is closed: a killed run may have left files, and UEFI
    variables are in no pool. Returns why that fails; empty if it succeeds, or if the directory is gone.
    """
    try:
        if inactive := run_directories.inactive_at(dest, directory):
            return stopped(inactive)
        if directory.startswith("/dev/") and run_directories.pool_at(dest, directory) is None:
            return without_pool(directory)  # a pool that is this directory would take the volumes' links for files
        try:
            pool = stack.enter_context(run_directories.pool_for(dest, directory))
        except NotFound:
            return ""
        libvirt_storage.refresh(dest, pool)
    except VirtError as error:
        return str(error)
    return ""


def check_visible(dest: t.Any, recorded: t.Mapping[str, t.Any]) -> None:
    """Raise Failed, as `clear` would, with files that nobody can look for now; makes no pool."""
    paths = [made.path for made in _entries(recorded)] if dest else []
    inactive = {path: run_directories.inactive_at(dest, os.path.dirname(path)) for path in paths}
    check_seen({path: stopped(pool) for path, pool in inactive.items() if pool})


def clear(endpoints: Endpoints, uuid: str, paths: t.Collection[str] | None = None) -> list[str]:
    """Remove the files that a migration made there (of these paths, or all); returns why the others stay.

    Raises Failed, after the removal, with files that nobody can look for now.
    """
    entries = _entries(fields_record.of(libvirt_query.found(libvirt_query.by_uuid(endpoints.source, uuid))))
    entries = [made for made in entries if paths is None or made.path in paths]
    with contextlib.ExitStack() as stack:
        reasons = {directory: _list(endpoints.dest, directory, stack) for directory in _directories(entries)}
        unseen = {made.path: reasons[os.path.dirname(made.path)] for made in entries}
        known, strange = _sorted_out(endpoints.dest, uuid, [made for made in entries if not unseen[made.path]])
        for path in sorted(known):
            libvirt_storage.delete(endpoints.dest, path)
    check_seen({path: reason for path, reason in unseen.items() if reason})
    return strange


def create(endpoints: Endpoints, uuid: str, volume: Volume, *, replace: bool, origin: str = "") -> None:
    """Create a volume where nothing exists, after removing what an earlier run left if `replace`; `origin` is the path
    of the disk on the source.

    Raises Failed if another file exists.
    """
    if replace:
        clear(endpoints, uuid, [volume.path])
    other = "" if origin == volume.path else origin
    _enter(endpoints, uuid, Made(Made.MAKING, volume.capacity_bytes, "", volume.path, origin=other))
    try:
        libvirt_storage.create(endpoints.dest, volume.pool, xml_host.new_volume(volume), name=volume.name)
    except VirtError:
        if not endpoints.broken("dest"):  # a daemon that was killed may have made it
            _enter(endpoints, uuid, None, path=volume.path)  # what is there is somebody else's
        raise
    mark = _marked(endpoints.dest, volume) if volume.format == "qcow2" else ""
    finished(endpoints, uuid, volume, mark)
    if volume.path.startswith("/dev/"):
        there = xml_host.volume(libvirt_storage.volume_at(endpoints.dest, volume.path) or "<volume/>")
        check_size(there, volume.path, volume.pool, wanted_bytes=volume.capacity_bytes)


def _marked(dest: t.Any, volume: Volume) -> str:
    """Write a random mark into the new image, and return it."""
    mark = secrets.token_hex(8)
    head = libvirt_storage.read_part(dest, volume.pool, volume.name, 0, _HEAD_BYTES)
    libvirt_storage.write(dest, volume.pool, volume.name, files_header.marked(head, mark))
    libvirt_storage.refresh(dest, volume.pool)  # libvirt takes the file for what it was before it was written to
    return mark


def finished(endpoints: Endpoints, uuid: str, volume: Volume, mark: str = "") -> None:
    """Record that the file is complete, with its time and mark, or the logical volume with its UUID."""
    there = xml_host.volume(libvirt_storage.volume_at(endpoints.dest, volume.path) or "<volume/>")
    known = {"phase": Made.MADE, "size_bytes": volume.capacity_bytes, "changed": there["changed"], "mark": mark}

    def change(made: Made) -> Made:
        if made.path != volume.path:
            return made
        if made.is_volume:
            known["mark"] = made.mark or there["key"]
        return dataclasses.replace(made, **known)

    _change(endpoints, uuid, change)


def opened(endpoints: Endpoints, uuid: str, copies: t.Collection[str]) -> None:
    """Record that QEMU opens all files from now on, and writes to all but the `copies`."""
    phases = {True: Made.COPYING, False: Made.OPEN}
    _change(endpoints, uuid, lambda made: dataclasses.replace(made, phase=phases[made.path in copies]))


def filled(endpoints: Endpoints, uuid: str, path: str) -> None:
    """Record that we write to the file from now on."""
    _change(endpoints, uuid, lambda made: dataclasses.replace(made, phase=Made.COPYING) if path == made.path else made)


def _enter(endpoints: Endpoints, uuid: str, entry: Made | None, *, path: str = "") -> None:
    path = entry.path if entry else path
    _change(endpoints, uuid, lambda made: None if made.path == path else made, [entry] if entry else [])


def _change(
    endpoints: Endpoints, uuid: str, change: t.Callable[[Made], Made | None], more: t.Sequence[Made] = ()
) -> None:
    guest = libvirt_query.by_uuid(endpoints.source, uuid)
    entries = [change(entry) for entry in _entries(fields_record.of(libvirt_query.found(guest)))]
    remember(guest, {"moving_made": tuple(str(entry) for entry in (*entries, *more) if entry)})
