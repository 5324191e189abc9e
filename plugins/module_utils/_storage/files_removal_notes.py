# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Notes on disks that are being removed; reading them needs no right to remove disks."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os

from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._storage.model_removed_disk import (
    PARTS,
    DiskAside,
    RemovedDisk,
)
from ansible_collections.corral.virt.plugins.module_utils._system import private

NOTE, DISK = ".json", ".disk"
_NOTE_BYTES = 65536


def folder(directory: str) -> str:
    """The folder where disks of a pool's directory are while they are being removed."""
    return os.path.join(os.path.realpath(directory), *PARTS)


def located(place: str) -> tuple[str, str]:
    """Directory and key of a disk from its path in the folder."""
    directory, name = os.path.split(place)
    return os.path.dirname(os.path.dirname(directory)), name[: -len(DISK)]


def entries(directory: str) -> list[DiskAside]:
    """All disks of a directory that are being removed, as far as this user can see them."""
    place = folder(directory)
    try:
        names = sorted(os.listdir(place))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    keys = dict.fromkeys(os.path.splitext(name)[0] for name in names if name.endswith((NOTE, DISK)))
    return [_entry(directory, key, moved=key + DISK in names) for key in keys]


def _entry(directory: str, key: str, *, moved: bool) -> DiskAside:
    path = os.path.join(folder(directory), key)
    note, alive = None, False
    with contextlib.suppress(OSError, VirtError), contextlib.ExitStack() as stack:
        told = private.opened(path + NOTE, os.O_RDONLY)
        stack.callback(os.close, told)
        alive = not is_free(told)
        note = read(told)
    name = os.path.basename(note.path) if note else ""
    taken = bool(name) and os.path.lexists(os.path.join(directory, name))
    return DiskAside(path + DISK, note, alive, moved, taken)


def is_free(note: int) -> bool:
    """True if no run is at work on the disk of this open note."""
    try:
        fcntl.flock(note, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def read(note: int) -> RemovedDisk | None:
    """The content of an open note; None if it is damaged."""
    try:
        return RemovedDisk.parse(json.loads(os.pread(note, _NOTE_BYTES, 0)))
    except ValueError:
        return None
