# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What distinguishes a file or logical volume from others of its name: inode, birth time and our mark, or its UUID."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
import stat
import struct

from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity

MARK = "user.corral.disk"
_EMPTY_PATH, _BIRTH = 0x1000, 0x800  # AT_EMPTY_PATH and STATX_BTIME of statx(2)
_STATX_BYTES, _MASK_AT, _BIRTH_AT = 256, 0, 80
_LVM = re.compile("LVM-[A-Za-z0-9]{64}")  # UUIDs of the group and of the volume; parts of a volume have an ending


def of(descriptor: int) -> FileIdentity:
    """The identity of an open file."""
    found = None
    with contextlib.suppress(OSError, UnicodeDecodeError):  # none, or a filesystem without attributes
        found = os.getxattr(descriptor, MARK).decode("ascii")
    return FileIdentity(os.fstat(descriptor).st_ino, _born_ns(descriptor), found)


def of_path(path: str) -> FileIdentity | None:
    """The identity of a regular local file or a logical volume; None for a link to a file, or if it is unreadable."""
    volume = logical_volume(path)
    if volume:
        return FileIdentity(0, mark=volume)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return of(descriptor) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    finally:
        os.close(descriptor)


def logical_volume(path: str) -> str | None:
    """The UUIDs of the logical volume that is a device of this machine, as the kernel has them; else None."""
    with contextlib.suppress(OSError):
        found = os.stat(path) if path.startswith("/dev/") else None
        if found is not None and stat.S_ISBLK(found.st_mode):
            number = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
            with open(f"/sys/dev/block/{number}/dm/uuid", encoding="ascii") as told:
                uuid = told.read().strip()
            return uuid if _LVM.fullmatch(uuid) else None
    return None


def stamped(path: str) -> FileIdentity | None:
    """The identity of a new file, which gets a mark, or of a new logical volume; None if there is none."""
    volume = logical_volume(path)
    if volume:
        return FileIdentity(0, mark=volume)
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                mark(descriptor)
                return of(descriptor)
        finally:
            os.close(descriptor)
    return None


def mark(descriptor: int) -> None:
    """Give a new file a mark; without extended attributes, inode and birth time must do."""
    with contextlib.suppress(OSError):
        os.setxattr(descriptor, MARK, secrets.token_hex(16).encode(), os.XATTR_CREATE)


def _born_ns(descriptor: int) -> int | None:
    """The birth time; None if filesystem or C library does not report it. `os.stat` does not."""
    statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)  # glibc 2.28
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if statx is None or statx(descriptor, b"", _EMPTY_PATH, _BIRTH, answer) != 0:
        return None
    [mask] = struct.unpack_from("I", answer.raw, _MASK_AT)
    seconds, nanoseconds = struct.unpack_from("qI", answer.raw, _BIRTH_AT)
    return int(seconds * 10**9 + nanoseconds) if mask & _BIRTH else None
