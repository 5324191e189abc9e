# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Disks as files in a pool's directory: check who has them open, and create them complete or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import socket
import stat
import struct
import subprocess
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._system import durable
from ansible_collections.corral.virt.plugins.module_utils._system.durable import fsync, remove
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import explained, remedy

_PIECE = 1024**2
_FICLONE = 0x40049409
_LOCKS_START, _LOCKS_LENGTH = 100, 200  # the bytes of an image that QEMU's processes lock to know of each other
# QEMU, block/file-posix.c: who writes locks the one byte, who lets nobody write or resize the others; each lock is a
# shared one.
_WRITES, _LETS_NOBODY_WRITE = 101, (201, 203)
# of a filesystem without; QEMU has none there either
_NO_LOCKS = (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_HERE, _RENAME_NOREPLACE = -100, 1  # AT_FDCWD and a flag of renameat2(2)
_NO_RENAME = (errno.EINVAL, errno.ENOSYS)  # of a filesystem, or kernel, without that flag
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)


def overwrite(path: str) -> None:
    """Overwrite the data of a regular file with zeros, in place; its holes stay holes."""
    with open(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "r+b", buffering=0) as file:
        at, end = 0, os.fstat(file.fileno()).st_size
        while at < end:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:  # nothing but a hole follows
                    raise
                break
            hole = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            while at < hole:
                at += os.pwrite(file.fileno(), bytes(min(_PIECE, hole - at)), at)
        os.fsync(file.fileno())


def kind(path: str) -> str:
    """What is at a path: nothing, file, link or other."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return "nothing"
    except OSError as error:
        raise Failed(f"cannot inspect {path}: {error.strerror}; {remedy(error, path)}") from error
    if stat.S_ISLNK(mode):
        return "link"
    return "file" if stat.S_ISREG(mode) else "other"


def is_device(path: str) -> bool:
    """True if a path leads to a block device."""
    try:
        return stat.S_ISBLK(os.stat(path).st_mode)
    except OSError:
        return False


def locked(path: str) -> bool:
    """True if a QEMU process, a guest or a tool, has the image open. Only asks: no lock is taken."""
    with open(path, "rb") as image:
        return is_locked(image.fileno(), path)


def is_locked(image: int, path: str) -> bool:
    """`locked` for an open descriptor; `path` is for messages."""
    return _is_locked(image, path, _LOCKS_START, _LOCKS_LENGTH)


def is_opened(path: str) -> bool:
    """True if a QEMU process has the file open; False also if it is no file or may not be read."""
    try:
        return os.path.isfile(path) and locked(path)
    except (OSError, Failed):
        return False


def opener(path: str, *, writes: bool = False) -> str | None:
    """Who has the file open, in words, where no libvirt object of this host tells: perhaps a guest of another host.

    With `writes`, only who writes it. None also if it is no file or may not be read.
    """
    start, length = (_WRITES, 1) if writes else (_LOCKS_START, _LOCKS_LENGTH)
    with contextlib.suppress(OSError, Failed):
        if os.path.isfile(path):
            with open(path, "rb") as image:
                if _is_locked(image.fileno(), path, start, length):
                    return "a QEMU process, perhaps on another host,"
    return None


def keep_unwritten(path: str, stack: contextlib.ExitStack) -> bool:
    """Keep QEMU processes from writing to the image, as `locked_against_writers` does.

    False if a process writes to it now; True also on a filesystem without locks.
    """
    return locked_against_writers(path, stack) != "taken"


def locked_against_writers(path: str, stack: contextlib.ExitStack) -> str:
    """Keep QEMU processes from writing to the image until the stack is closed or this process ends: they fail to open
    it.

    `held`; `taken` if a process writes now; `none` if the filesystem has no locks.
    """
    with explained(f"read {path}", path):
        image = stack.enter_context(open(path, "rb"))  # noqa: SIM115 - the stack closes it
    try:
        for byte in _LETS_NOBODY_WRITE:
            fcntl.fcntl(image, fcntl.F_OFD_SETLK, _lock(fcntl.F_RDLCK, byte, 1))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return "taken"
        if error.errno not in _NO_LOCKS:
            raise Failed(
                f"cannot protect {path} from being written to: {error.strerror}; {remedy(error, path)}"
            ) from error
        return "none"
    return "taken" if _is_locked(image.fileno(), path, _WRITES, 1) else "held"


def _lock(kind: int, start: int, length: int) -> bytes:
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0)


def _is_locked(image: int, path: str, start: int, length: int) -> bool:
    try:
        answer = fcntl.fcntl(image, fcntl.F_OFD_GETLK, _lock(fcntl.F_WRLCK, start, length))
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise Failed(f"cannot find out who has {path} open: {error.strerror}; {remedy(error, path)}") from error
    return bool(struct.unpack_from("h", answer)[0] != fcntl.F_UNLCK)


def hidden(path: str) -> str:
    """The hidden path where a disk is created: nobody takes it for one, and no other host of shared storage writes
    there.
    """
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{name}.{socket.gethostname()}.clone")


@contextlib.contextmanager
def new(path: str) -> t.Iterator[str]:
    """Yields a hidden path at which to create the disk.

    Afterwards the disk appears at once, complete and on disk, or not at all.
    """
    unfinished = hidden(path)
    remove(unfinished)  # of a run that was killed
    try:
        yield unfinished
        os.chmod(unfinished, 0o600)
        fsync(unfinished)
        publish(unfinished, path)
        fsync(os.path.dirname(path))
    except FileExistsError as error:
        raise Failed(
            f"cannot create disk {path}: a file with this name appeared in the meantime; inspect it"
        ) from error
    except OSError as error:
        raise Failed(f"cannot create disk {path}: {error.strerror}; {remedy(error, path)}") from error
    finally:
        remove(unfinished)


def publish(unfinished: str, path: str) -> None:
    """Rename a file to an unused name in one step; raises FileExistsError."""
    if not renamed(unfinished, path):
        _publish_by_link(unfinished, path)


def renamed(path: str, to: str, *, inside: int = _HERE, to_inside: int = _HERE) -> bool:
    """Rename a file to an unused name in one step; False if the filesystem cannot.

    Names are relative to the directory descriptors. Raises FileExistsError, or another OSError.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # glibc 2.28
    if rename is not None and rename(inside, os.fsencode(path), to_inside, os.fsencode(to), _RENAME_NOREPLACE) == 0:
        return True
    code = ctypes.get_errno() if rename is not None else errno.ENOSYS
    if code not in _NO_RENAME:
        raise OSError(code, os.strerror(code), to)
    return False


def _publish_by_link(unfinished: str, path: str) -> None:
    """`publish` for NFS, which cannot rename like this.

    A power cut in between leaves both names; who removes the disk removes the hidden one with it. Where there are no
    hard links either, what appears between the look and the renaming is lost.
    """
    try:
        os.link(unfinished, path)
    except FileExistsError:
        if os.stat(unfinished).st_nlink == 1:  # else the answer to our own link was lost, and NFS asked again
            raise
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
        os.rename(unfinished, path)


def reflink(path: str, to: str) -> bool:
    """Let `to` share all blocks with `path` until one of them is written; False if the filesystem cannot."""
    with open(path, "rb") as source, open(to, "wb") as copy:
        try:
            fcntl.ioctl(copy, _FICLONE, source.fileno())
        except OSError:
            return False
    return True


def copy(path: str, to: str) -> None:
    """Copy the content of a file into an existing one, holes as holes, and compare both; raises Failed."""
    for command in (
        ["cp", "--sparse=always", "--reflink=auto", "--", path, to],
        ["cmp", "--", path, to],
    ):
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
        if done.returncode:
            reason = " ".join((done.stderr or done.stdout).split())
            raise Failed(f"cannot copy {path} to {to}: {reason}; the disk is where it was; mend that, and run again")
    durable.fsync(to)
