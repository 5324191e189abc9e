# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work files that no other user can access: one private folder per user, and safe opening of files."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import stat

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import remedy

_SYSTEM = "/run/corral"
# `place` for a shell, as its variable p
IN_SHELL = f'p={_SYSTEM}; [ "$(id -u)" = 0 ] || p="${{XDG_RUNTIME_DIR:-$HOME/.cache}}/corral"'
# a symbolic link, a pipe or socket without a reader, a directory
_NOT_A_FILE = (errno.ELOOP, errno.ENXIO, errno.EISDIR)


def place() -> str:
    """Path of this user's private folder; for root, it is empty after a boot."""
    if os.geteuid() == 0:
        return _SYSTEM
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return os.path.join(runtime or os.path.join(pwd.getpwuid(os.geteuid()).pw_dir, ".cache"), "corral")


def folder() -> str:
    """The private folder, created if missing; raises Refused if another user can write to it."""
    path = place()
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        make(path)
    except OSError as error:
        raise Failed(
            f"cannot keep work files in {path}: {error.strerror}; "
            f"{remedy(error, path, denied='set XDG_RUNTIME_DIR to a directory of your own')}"
        ) from error
    return path


def make(path: str, *, foreign: bool = False) -> None:
    """Create a private directory, or check an existing one; raises OSError, or Refused if another user can write to it.

    `foreign`: its owner may be any user, as on shared filesystems.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    check(path, foreign=foreign, mend=True)


def check(path: str, *, foreign: bool = False, mend: bool = False) -> None:
    """Raises OSError, or Refused unless it is a directory that no other user can write to.

    `mend`: remove others' read permission, too.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise Refused(
            f"cannot keep work files in {path}: it is not a directory; find out who created it, and remove it"
        ) from error
    try:
        status = os.fstat(descriptor)
        mode, ours = stat.S_IMODE(status.st_mode), status.st_uid == os.geteuid()
        if mend and ours and mode & 0o055 and not mode & 0o022:  # nobody else wrote there: a restored backup, say
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)
    if mode & 0o022 or not (foreign or ours):
        raise Refused(
            f"cannot keep work files in {path}: it belongs to user {status.st_uid} and has mode {mode:04o}, it must "
            f"belong to user {os.geteuid()} with mode 0700; find out who created it, and remove it"
        )


def opened(path: str, flags: int, mode: int = 0o600, *, inside: int | None = None) -> int:
    """A descriptor of a regular file, also by its name in the directory descriptor `inside`; no link is followed.

    Opening does not block. Raises OSError, or Refused for other kinds of files.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode, dir_fd=inside)
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            raise _no_file(path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _no_file(path)
    return descriptor


def _no_file(path: str) -> Refused:
    return Refused(f"cannot open {path}: it is not a regular file; find out who created it, and remove it")
