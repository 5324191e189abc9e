# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Disks that are being removed, in `.corral/.removed/` beside them, where nobody takes one for a disk.

A disk is renamed before the look at its users: whoever comes by its name from then on finds nothing there, and it can
be given back. A note, written to disk before, tells a later run what it is and where it was; its lock tells that the
run is alive.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import secrets
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._storage import files_disk
from ansible_collections.corral.virt.plugins.module_utils._storage.files_removal_notes import (
    DISK,
    NOTE,
    folder,
    is_free,
    read,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.model_removed_disk import PARTS, RemovedDisk
from ansible_collections.corral.virt.plugins.module_utils._system import identity, locks, private
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import remedy

_BEGUN = ".new"
_NAME_LENGTH = 180
_ATTEMPTS = 5


@dataclasses.dataclass
class Quarantine:
    """One disk that is being removed, by descriptors, whatever becomes of the names of the directories."""

    directory: str
    name: str  # of the disk in it
    key: str  # of disk and note in `folder`
    note: RemovedDisk
    pool: int
    place: int

    @property
    def path(self) -> str:
        """The path of the disk in the folder of removed disks."""
        return os.path.join(folder(self.directory), self.key + DISK)

    @property
    def is_moved(self) -> bool:
        """True if the disk is in that folder."""
        return self._inode(self.key + DISK, self.place) is not None

    @property
    def returned(self) -> bool:
        """True if the disk has its old name too: a filesystem without another way links it before it unlinks it."""
        here = self._inode(self.key + DISK, self.place)
        return here is not None and here == self._inode(self.name, self.pool)

    def _inode(self, name: str, inside: int) -> int | None:
        try:
            return os.stat(name, dir_fd=inside, follow_symlinks=False).st_ino
        except FileNotFoundError:
            return None

    def take(self) -> None:
        """Move the disk into the folder; raises OSError."""
        _rename(self.name, self.key + DISK, self.pool, self.place)
        self._fsync()

    def give_back(self) -> bool:
        """Move the disk back and remove its note; False if another file has its name."""
        if self.returned:
            os.unlink(self.key + DISK, dir_fd=self.place)
        elif self.is_moved:
            try:
                _rename(self.key + DISK, self.name, self.place, self.pool)
            except FileExistsError:
                return False
        self._fsync()
        self.forget()
        return True

    def delete(self) -> None:
        """Delete the disk for good, and its note."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.key + DISK, dir_fd=self.place)
        self._fsync()
        self.forget()

    def forget(self) -> None:
        """Remove the note and what killed runs left beside it, and the folder if it is empty then."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.key + NOTE, dir_fd=self.place)
        os.fsync(self.place)
        _tidy(self.directory)
        with contextlib.suppress(OSError):  # there are others
            os.rmdir(folder(self.directory))
            os.rmdir(os.path.dirname(folder(self.directory)))

    def _fsync(self) -> None:
        for directory in (self.place, self.pool):
            os.fsync(directory)

    @contextlib.contextmanager
    def opened(self) -> t.Iterator[int]:
        """Yields a descriptor of the disk; raises OSError."""
        found = private.opened(self.key + DISK, os.O_RDONLY, inside=self.place)
        try:
            yield found
        finally:
            os.close(found)

    def identity(self) -> FileIdentity:
        """The identity of the disk in the folder."""
        with self.opened() as found:
            return identity.of(found)

    def is_locked(self) -> bool:
        """True if a QEMU process has the disk open."""
        with self.opened() as found:
            return files_disk.is_locked(found, self.path)


def _rename(name: str, to: str, inside: int, to_inside: int) -> None:
    if files_disk.renamed(name, to, inside=inside, to_inside=to_inside):
        return
    # NFS: a power cut in between leaves both names of the one file, which `returned` tells
    os.link(name, to, src_dir_fd=inside, dst_dir_fd=to_inside, follow_symlinks=False)
    os.unlink(name, dir_fd=inside)


def begin(stack: contextlib.ExitStack, path: str, describe: t.Callable[[FileIdentity, int], RemovedDisk]) -> Quarantine:
    """Write the note on a disk, then move the disk aside; the note is locked until the stack is closed.

    `describe` returns the note for the disk's identity and size (bytes); its errors are passed on. Raises Failed.
    """
    directory, name = os.path.split(path)
    for attempt in range(_ATTEMPTS):
        try:
            pool = _directory(stack, os.path.realpath(directory))
            note = describe(*_measured(name, pool))
            place = _place(stack, directory, make=True)
            key = f"{name[:_NAME_LENGTH]}.{secrets.token_hex(4)}"
            quarantine = Quarantine(directory, name, key, note, pool, place)
            _write_note(stack, quarantine)
            _take(quarantine)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and os.path.lexists(path) and attempt + 1 < _ATTEMPTS:
                continue  # another run has removed the empty place in between
            raise Failed(
                f"cannot remove disk {path}: {error.strerror}; it is where it was; {remedy(error, path)}"
            ) from error
        else:
            return quarantine
    raise AssertionError  # the last attempt raises


def _take(quarantine: Quarantine) -> None:
    try:
        quarantine.take()
    except BaseException:
        quarantine.give_back()
        raise


def _measured(name: str, pool: int) -> tuple[FileIdentity, int]:
    found = private.opened(name, os.O_RDONLY, inside=pool)
    try:
        return identity.of(found), os.fstat(found).st_size
    finally:
        os.close(found)


def _directory(stack: contextlib.ExitStack, path: str, inside: int | None = None) -> int:
    """Descriptor of a directory, open until the stack is closed."""
    found = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=inside)
    stack.callback(os.close, found)
    return found


def _place(stack: contextlib.ExitStack, directory: str, *, make: bool) -> int:
    """Descriptor of `folder`; raises OSError, or Refused if another user can reach it."""
    home, place = os.path.realpath(directory), folder(directory)
    foreign = locks.shared_filesystem(home) is not None
    for path in (os.path.dirname(place), place):
        (private.make if make else private.check)(path, foreign=foreign)
    found = _directory(stack, home)
    for part in PARTS:
        found = _directory(stack, part, found)
    return found


def _write_note(stack: contextlib.ExitStack, quarantine: Quarantine) -> None:
    """Write the note to disk and lock it before it gets its name."""
    name, place = quarantine.key + _BEGUN, quarantine.place
    note = private.opened(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, inside=place)
    stack.callback(os.close, note)
    fcntl.flock(note, fcntl.LOCK_EX)
    os.write(note, json.dumps(quarantine.note.fields(), indent=1).encode())
    os.fsync(note)
    os.rename(name, quarantine.key + NOTE, src_dir_fd=place, dst_dir_fd=place)
    os.fsync(place)


def _tidy(directory: str) -> None:
    """Remove notes that killed runs were still writing: their disks were not moved."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:  # there are none, or they are others'
        place = _place(stack, directory, make=False)
        for name in os.listdir(place):
            if name.endswith(_BEGUN):
                note = private.opened(name, os.O_RDWR, inside=place)
                stack.callback(os.close, note)
                if is_free(note):
                    os.unlink(name, dir_fd=place)


def resume(stack: contextlib.ExitStack, directory: str, key: str) -> Quarantine | None:
    """The disk, locked until the stack is closed; None if another run is at work on it, or has finished it.

    Raises Failed, or Refused if another user can reach the folder.
    """
    try:
        pool = _directory(stack, os.path.realpath(directory))
        place = _place(stack, directory, make=False)
        told = private.opened(key + NOTE, os.O_RDWR, inside=place)
        stack.callback(os.close, told)
        fcntl.flock(told, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.stat(key + NOTE, dir_fd=place)  # else the other run has just removed it
    except (FileNotFoundError, BlockingIOError):
        return None
    except OSError as error:
        raise Failed(
            f"cannot finish the removal of {key} in {folder(directory)}: {error.strerror}; "
            f"{remedy(error, folder(directory))}"
        ) from error
    note = read(told)
    # nothing but a name in its own directory is believed of the note
    return Quarantine(directory, os.path.basename(note.path), key, note, pool, place) if note else None
