# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the users of files: volumes backed by them, and guests that have them as disks."""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_here
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query, xml_host
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_sources import (
    Located,
    files,
    links,
    of_backup,
    of_snapshot,
    raw_sources,
    sources,
)
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_header,
    files_removal_notes,
    libvirt_storage,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_image_trust import DefinedFiles, trust
from ansible_collections.corral.virt.plugins.module_utils._system import locks, loop_devices
from ansible_collections.corral.virt.plugins.module_utils._xml import stdlib_reader


class Users:
    """The users of files, by the file's path; those that are a guest's own are told from others by its UUID."""

    def __init__(self, *, here: bool) -> None:
        self._here = here
        self._found: dict[str, dict[str, str]] = {}  # by path: a user of each guest; others are of no guest
        self._bases: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        self._first: dict[tuple[int, int], str] = {}
        self._files: dict[tuple[int, int], dict[str, str]] = {}
        self._chained: set[tuple[str, str]] = (
            set()
        )  # a file and a guest: snapshots of a guest name a file again and again
        self.untrusted: t.AbstractSet[str] = frozenset()  # files whose first bytes a guest may have written
        self.known: t.AbstractSet[str] = frozenset()  # files whose backing files libvirt tells

    def add(self, path: str, user: str, guest: str = "") -> None:
        """Record a user of a file; a volume whose pool is unknown has only its name as path."""
        self._found.setdefault(self.real(path), {}).setdefault(guest, user)
        identity = self._identity(path)
        if identity:
            self._files.setdefault(identity, {}).setdefault(guest, user)

    def of(self, path: str, *, but: str | None = None) -> str | None:
        """One user of the file, other than the guest with that UUID; None if there is none."""
        for found in (self._found.get(self.real(path)), self._found.get(os.path.basename(path))):
            if user := _one(found, but):
                return user
        return _one(self._files.get(self._identity(path) or (0, 0)), but)

    def alike(self, path: str) -> str | None:
        """One user of a file with the same name that other hosts may have, wherever it is mounted here; None if there
        is none.
        """
        name = os.path.basename(path)
        its = ((other, user) for other, user in self._found.items() if os.path.basename(other) == name)
        return next((f"{_one(user, None)} at {other}" for other, user in its if _may_be_elsewhere(other)), None)

    def _identity(self, path: str) -> tuple[int, int] | None:
        """Device and inode of a file of this machine, which may have several names; else None."""
        with contextlib.suppress(OSError):
            known = os.stat(path) if self._here and os.path.isabs(path) else None
            if known is not None and stat.S_ISREG(known.st_mode):
                return known.st_dev, known.st_ino
        return None

    def inside(self, directory: str) -> dict[str, str]:
        """The users of files in a directory, by file name."""
        place = self._folder(self.real(directory))
        split = [(*os.path.split(path), user) for path, user in self._found.items()]
        return {name: next(iter(user.values())) for folder, name, user in split if folder in (place, "")}

    def based_on(self, name: str) -> str | None:
        """One user whose backing or data file has this very name, perhaps a link; None if there is none."""
        return self._bases.get(self._spelled(name))

    def add_base(self, path: str, user: str, guest: str = "") -> None:
        """Record a user of a backing file, and of what that is backed by."""
        self._bases.setdefault(self._spelled(path), user)
        self.add_chain(path, user, guest)

    def add_named(self, path: str, user: str) -> None:
        """Record a user of a backing file that a file names whose first bytes a guest may have written: nothing that it
        leads to is read.
        """
        self._bases.setdefault(self._spelled(path), user)
        self.add(path, user)

    def add_data(self, path: str, user: str, guest: str = "") -> None:
        """Record a user of the files in which an image keeps its data."""
        for data in files_header.data_files(path) if self._is_read(path) else ():
            self._bases.setdefault(self._spelled(data), user)
            self.add(data, user, guest)

    def _is_read(self, path: str) -> bool:
        return self._here and os.path.isabs(path) and path not in self.untrusted

    def add_chain(self, path: str, user: str, guest: str = "") -> None:
        """Record a user of a file and of all that the file names as backing, in whatever words: no user may be missed.

        Files of another machine, and `untrusted` ones, are not read.
        """
        waiting = [path]
        while waiting:
            each = waiting.pop()
            self.add(each, user, guest)
            if (self.real(each), guest) in self._chained or not self._is_read(each):
                continue
            self._chained.add((self.real(each), guest))
            self.add_data(each, user, guest)
            for base in () if each in self.known else files_header.bases(each):
                self._bases.setdefault(self._spelled(base), user)
                waiting.append(base)

    def _spelled(self, path: str) -> str:
        """The path with its directory resolved, but not its name."""
        folder, name = os.path.split(os.path.normpath(path))
        return os.path.join(self._folder(os.path.realpath(folder)) if self._here else folder, name)

    def real(self, path: str) -> str:
        """The resolved path if the file is on this machine; the same through every mount of its directory."""
        if not self._here or not os.path.isabs(path):
            return os.path.normpath(path)
        folder, name = os.path.split(os.path.realpath(path))
        return os.path.join(self._folder(folder), name)

    def _folder(self, path: str) -> str:
        """The first known path of a directory: one that is mounted twice has several."""
        if path not in self._folders:
            self._folders[path] = path
            with contextlib.suppress(OSError):
                known = os.stat(path) if self._here else None
                if known is not None:
                    self._folders[path] = self._first.setdefault((known.st_dev, known.st_ino), path)
        return self._folders[path]


def _may_be_elsewhere(path: str) -> bool:
    """True if a file is on a filesystem that hosts share, or on one that is not mounted now."""
    return os.path.isabs(path) and (not os.path.lexists(path) or locks.may_be_shared(os.path.dirname(path)))


def _one(users: t.Mapping[str, str] | None, but: str | None) -> str | None:
    return next((user for guest, user in (users or {}).items() if guest != but), None)


def users(
    connection: t.Any, *, but: str = "", without: t.Collection[str] = (), removed_with: str | None = None
) -> Users:
    """The users of files: volumes of all active pools, and all guests, as stored, running and saved.

    Their snapshots and backup jobs use files as well, and so do disks in the pools that were removed and are kept for a
    time. The guest `but` (a UUID), volumes `without` (paths) and disks that were removed with the guest `removed_with`
    (a UUID) do not count.
    """
    found = Users(here=is_here(connection.getURI()))
    volumes = [xml_host.volume(xml) for xml in libvirt_storage.all_volumes(connection, files_header.is_image)]
    documents = _documents(connection, but)
    trusted = trust(volumes, documents, without=without, real=found.real)
    found.untrusted, found.known = trusted.untrusted, trusted.known
    for volume in trusted.volumes:
        _add_volume(found, volume)
    for device, path in loop_devices.backing_files() if is_here(connection.getURI()) else ():
        found.add(path, device)
    for path in _unlisted(connection) if is_here(connection.getURI()) else ():
        found.add_chain(path, os.fsencode(path).decode(errors="backslashreplace"))
    for place, what in _removed(connection, removed_with or but) if is_here(connection.getURI()) else ():
        directory, key = files_removal_notes.located(place)
        for base in files_header.bases(place, opened_as=os.path.join(directory, key)):
            found.add_named(base, f"removed disk {what}kept as {place},")
    for document in documents:
        for path in document.others:
            found.add(path, document.user, document.guest)
        for path in document.disks:
            found.add_chain(path, document.user, document.guest)
        for path in document.below:
            found.add_base(path, document.user, document.guest)
    return found


def _unlisted(connection: t.Any) -> t.Iterator[str]:
    """The files of pools that libvirt's binding does not list, as their names are not UTF-8."""
    for folder in _folders(connection):
        with contextlib.suppress(OSError):
            strange = [name for name in os.listdir(folder) if name.encode(errors="replace") != os.fsencode(name)]
            yield from (os.path.join(folder, name) for name in strange)


def _removed(connection: t.Any, but: str) -> t.Iterator[tuple[str, str]]:
    """Where disks of the pools are that were removed and are kept, and what they are, as far as their notes tell; not
    those of the guest `but`.
    """
    for folder in _folders(connection):
        for one in files_removal_notes.entries(folder):
            if one.moved and not (but and one.note and one.note.guest_uuid == but):
                yield one.place, f"{one.note.path} of {one.note.guest}, " if one.note else ""


def _folders(connection: t.Any) -> list[str]:
    """The directories of active pools."""
    found = [stdlib_reader.directory(pool["xml"]) for pool in libvirt_query.pools(connection) if pool["active"]]
    return [folder for folder in found if folder]


def own_chains(connection: t.Any, found: FoundGuest) -> list[list[str]]:
    """The files that only this guest writes, or wrote before a snapshot, each with its backing files.

    On another machine's libvirt only what definitions name. Devices are none: no file goes with them.
    """
    here, located = is_here(connection.getURI()), functools.partial(libvirt_storage.path_in, connection)
    resolved = os.path.realpath if here else os.path.normpath
    documents, made = [found.xml, *([found.live_xml] if found.live_xml else [])], list[str]()
    with contextlib.suppress(NotFound):
        domain = libvirt_query.by_uuid(connection, found.uuid)
        documents += filter(None, [libvirt_query.saved_xml(domain)])
        for _name, xml in libvirt_query.snapshots(domain):  # disks, and files with memory
            *kept, files_of_it = of_snapshot(xml)
            documents += kept
            made += sources(files_of_it, located)
    tops = [link.path for xml in documents for link in links(xml, located, resolved) if link.target]
    raw = {path for xml in documents for path in raw_sources(xml, located)} if here else None
    return [[top, *_below(top, raw)] for top in dict.fromkeys((*tops, *made)) if not top.startswith("/dev/")]


def _below(path: str, raw: t.Collection[str] | None) -> t.Iterator[str]:
    """The backing files of a file; none of raw disks, whose first bytes the guest wrote, and none at all if `raw` is
    None.
    """
    seen = {path}
    while raw is not None and path not in raw:
        path = next(iter(files_header.bases(path)), path)
        if path in seen:
            return
        seen.add(path)
        yield path


def _documents(connection: t.Any, but: str) -> list[DefinedFiles]:
    """The files in all documents of all guests, except the guest with UUID `but`."""

    def located(pool: str, volume: str) -> str:
        return libvirt_storage.path_in(connection, pool, volume) or volume

    guests = libvirt_query.of_all(connection, _of_guest)
    return [_files_in(user, uuid, xml, located) for uuid, its in guests if uuid != but for user, xml in its]


def _files_in(user: str, guest: str, xml: str, located: Located) -> DefinedFiles:
    disks = sources(xml, located)
    below = set(sources(xml, located, below=True)).difference(disks)
    return DefinedFiles(user, disks, raw_sources(xml, located), below, files(xml), guest)


def _of_guest(domain: t.Any) -> tuple[str, list[tuple[str, str]]]:
    """The UUID of a guest, and all documents that name its files, each with its user."""
    seen, backup = libvirt_query.found(domain), libvirt_query.backup_xml(domain)
    guest = f"guest {seen.name}"
    its = [(guest, xml) for xml in (seen.xml, seen.live_xml, libvirt_query.saved_xml(domain)) if xml]
    its += [(f"the backup of {guest}", of_backup(backup))] if backup else []
    for name, xml in libvirt_query.snapshots(domain):
        its += [(f"snapshot {name} of {guest}", kept) for kept in of_snapshot(xml)]
    return seen.uuid, its


def _add_volume(found: Users, volume: t.Mapping[str, t.Any]) -> None:
    if volume["backing_path"]:
        found.add_base(volume["backing_path"], volume["path"])
    if volume["format"] == "qcow2":
        found.add_data(volume["path"], volume["path"])
