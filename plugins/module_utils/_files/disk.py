# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Disks as files of a pool's directory: who has them open, how they appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import struct
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._files.durable import remove, settle

__all__ = ["hidden", "kind", "locked", "new", "reflink"]

_FICLONE = 0x40049409
_LOCKS_START, _LOCKS_LENGTH = 100, 200  # the bytes of an image that QEMU's processes lock to know of each other
_NO_LOCKS = (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # of a filesystem without; QEMU has none there either


def kind(path: str) -> str:
    """nothing, file, link or other."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return "nothing"
    except OSError as error:
        raise Failed(f"cannot look at {path}: {error.strerror}") from error
    return "link" if stat.S_ISLNK(mode) else "file" if stat.S_ISREG(mode) else "other"


def locked(path: str) -> bool:
    """Whether a QEMU process, a guest or a tool, has the image open. It only asks: no lock is taken."""
    asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, _LOCKS_START, _LOCKS_LENGTH, 0)
    with open(path, "rb") as image:
        try:
            answer = fcntl.fcntl(image, fcntl.F_OFD_GETLK, asked)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return False
            raise Failed(f"cannot ask who has {path} open: {error.strerror}") from error
    return bool(struct.unpack_from("h", answer)[0] != fcntl.F_UNLCK)


def hidden(path: str) -> str:
    """Where a disk is made: nobody takes it for one, and no other host of shared storage writes there."""
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{name}.{socket.gethostname()}.clone")


@contextlib.contextmanager
def new(path: str) -> t.Iterator[str]:
    """Inside, make the disk under the hidden name that is given; then it appears at once, complete and on disk, or not at all."""
    making = hidden(path)
    remove(making)  # of a run that was killed
    try:
        yield making
        os.chmod(making, 0o600)
        settle(making)
        if os.path.lexists(path):
            raise Failed(f"cannot make disk {path}: something of that name appeared meanwhile; look at it")
        os.rename(making, path)
        settle(os.path.dirname(path))
    except OSError as error:
        raise Failed(f"cannot make disk {path}: {error.strerror}") from error
    finally:
        remove(making)


def reflink(path: str, to: str) -> bool:
    """Make `to` share all blocks with `path` until one of them is written; False where the filesystem cannot."""
    with open(path, "rb") as source, open(to, "wb") as copy:
        try:
            fcntl.ioctl(copy, _FICLONE, source.fileno())
        except OSError:
            return False
    return True
