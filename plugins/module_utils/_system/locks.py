# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and locks of this machine: the kind of a filesystem, digests, and a lock per guest."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._system import private
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import explained

_PIECE = 1024 * 1024
_SECTORS_WRITTEN = 6  # of /sys/dev/block/*/stat
LOCK = ".lock"
DISKS = "disks in use"  # a lock: exclusive while a disk is deleted, shared while existing ones are taken into use
# Filesystems that several hosts see at once, as /proc/self/mounts names them.
_SHARED = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "ceph",
    "fuse.ceph",
    "fuse.glusterfs",
    "fuse.cephfs",
    "gfs2",
    "ocfs2",
    "lustre",
    "gpfs",
)


def shared_filesystem(path: str, mounts: str = "/proc/self/mounts") -> str | None:
    """The kind of shared filesystem that holds `path`; None for a local one."""
    kind = _filesystem(path, mounts)
    return kind if kind in _SHARED else None


def _filesystem(path: str, mounts: str) -> str:
    """The kind of filesystem that holds `path`."""
    path = os.path.realpath(path)
    best, kind = "", ""
    with open(mounts) as lines:
        for line in lines:
            _device, point, fstype = line.split()[:3]
            point = point.replace("\\040", " ")
            inside = path == point or path.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, fstype
    return kind


def may_be_shared(path: str, mounts: str = "/proc/self/mounts") -> bool:
    """True if a shared filesystem holds `path`, or one that is mounted when somebody looks there."""
    kind = _filesystem(path, mounts)
    return kind in _SHARED or kind == "autofs"


def exists(path: str) -> bool:
    """True if the path exists on this host, also as a link; raises Failed if it cannot be inspected."""
    with explained(f"inspect {path}", path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.lstat(path)
        return True
    return False


def written_s(path: str) -> float | None:
    """When a file was last written, in seconds since the epoch; None if there is none."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def sectors_written(path: str) -> str:
    """How much was written to a device since it is there; empty for a file, which QEMU's locks protect."""
    found = os.stat(path)
    if not stat.S_ISBLK(found.st_mode):
        return ""
    number = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    with open(f"/sys/dev/block/{number}/stat", encoding="ascii") as counters:
        return counters.read().split()[_SECTORS_WRITTEN]


def digest(path: str, length: int) -> str | None:
    """The SHA-256 of the first `length` bytes of a file; None if it cannot be read so far."""
    found = hashlib.sha256()
    try:
        with open(path, "rb") as stream:
            while length > 0 and (piece := stream.read(min(length, _PIECE))):
                found.update(piece)
                length -= len(piece)
    except OSError:
        return None
    return None if length else found.hexdigest()


def bridge_calls(names: t.Iterable[str], directory: str = "/proc/sys/net/bridge") -> dict[str, bool]:
    """Which of these packet filters see bridged packets; empty while br_netfilter is not loaded."""
    calls = {}
    for name in names:
        with contextlib.suppress(FileNotFoundError), open(os.path.join(directory, name)) as stream:
            calls[name] = stream.read().strip() == "1"
    return calls


def held(name: str) -> bool:
    """True if another run holds the lock of that name on this host."""
    try:
        with open(private.opened(_lock(private.place(), name), os.O_RDONLY)) as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _lock(folder: str, name: str) -> str:
    return os.path.join(folder, name + LOCK)


@contextlib.contextmanager
def locked(name: str, refusal: str | None = None) -> t.Iterator[str]:
    """One run per name on this host: raises Refused with that text while there is another; without a text, waits.

    The lock ends with the process that holds it.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(flocked(name, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0)))
        except BlockingIOError:
            raise Refused(str(refusal)) from None
        yield name


@contextlib.contextmanager
def flocked(name: str, how: int) -> t.Iterator[None]:
    """Hold the lock of that name; raises BlockingIOError if another run has it and `how` is not to wait."""
    with open(private.opened(_lock(private.folder(), name), os.O_RDWR | os.O_CREAT), "r+b") as handle:
        fcntl.flock(handle, how)
        yield
