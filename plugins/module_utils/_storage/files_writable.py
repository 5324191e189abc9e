# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Try to write in a directory as libvirt and QEMU do."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import select
import signal

_SELINUX = "/sys/fs/selinux"


def attempt(path: str, user: tuple[int, int], groups: list[int], timeout_s: int) -> tuple[str, int]:
    """The stage that failed and its errno; ("", 0) if the user can write a file that root has made.

    A process of its own tries, because one that waits for a dead server may not even be killed.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for inherited in (0, 1, 2):  # or Ansible would wait for it, too
                os.dup2(null, inherited)
            stage, code = _write(os.path.join(path, f".corral-probe-{platform.node()}"), user, groups)
            os.write(writer, f"{stage} {code}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    ready, _none, _nothing = select.select([reader], [], [], timeout_s)
    told = os.read(reader, 64).decode() if ready else ""
    os.close(reader)
    if not told:
        os.kill(child, signal.SIGKILL)  # it ends when the server answers
        return "answer", errno.ETIMEDOUT
    os.waitpid(child, 0)
    stage, _space, number = told.rpartition(" ")
    return stage, int(number)


def _write(file: str, user: tuple[int, int], groups: list[int]) -> tuple[str, int]:
    with contextlib.suppress(OSError):
        os.unlink(file)  # of a run that was killed
    stage = "create"
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        stage = "own"
        try:  # by the open file: whoever may write in the directory could put a link in its place
            with contextlib.suppress(OSError):  # some filesystems have no owners, and let everybody write
                os.fchown(descriptor, *user)
            stage = "write" if os.fstat(descriptor).st_uid == user[0] else "own"
        finally:
            os.close(descriptor)
        _write_as(file, user, groups)
    except OSError as error:
        return stage, error.errno or errno.EIO
    finally:
        with contextlib.suppress(OSError):
            os.unlink(file)
    return "", 0


def _write_as(file: str, user: tuple[int, int], groups: list[int]) -> None:
    """Write as a user; the process is root again afterwards."""
    os.setgroups(groups)
    os.setegid(user[1])
    os.seteuid(user[0])
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            os.write(descriptor, b"\0" * 4096)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    finally:
        os.seteuid(0)
        os.setegid(0)


def boolean_is_off(name: str, place: str = _SELINUX) -> bool:
    """True if SELinux is enforced, and this switch of its policy is off."""
    try:
        with open(f"{place}/enforce") as enforce, open(f"{place}/booleans/{name}") as boolean:
            return enforce.read().strip() == "1" and boolean.read().split()[:1] == ["0"]
    except OSError:  # no SELinux, or no such switch
        return False
