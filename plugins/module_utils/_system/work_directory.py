# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work directory of one name in a pool's directory, for one run at a time: `.corral/NAME/`.

Other programs do not look there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._system import locks, private
from ansible_collections.corral.virt.plugins.module_utils._system.durable import remove
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import remedy

_ROOT, _LOCK = ".corral", "lock"


class Named(t.Protocol):
    """An image or a disk in a pool's directory."""

    @property
    def directory(self) -> str:
        """The pool's directory."""

    @property
    def name(self) -> str:
        """The file's name in that directory."""


def path(named: Named, kind: str = "") -> str:
    """The path of an unfinished file of this kind."""
    return os.path.join(named.directory, _ROOT, named.name, kind)


@contextlib.contextmanager
def locked(named: Named) -> t.Iterator[str]:
    """One writer per name, which gets the directory's path; a second run waits and then finds the work done.

    The lock ends with its process.
    """
    with _lock(named):
        try:
            yield path(named)
        finally:
            if os.listdir(path(named)) == [_LOCK]:  # nothing to go on with: leave no trace
                os.unlink(path(named, _LOCK))
                with contextlib.suppress(OSError):  # somebody else begins just now, or is at work on another name
                    os.rmdir(path(named))
                    os.rmdir(os.path.join(named.directory, _ROOT))


def check(named: Named) -> None:
    """Raises Refused if another user can write to the directory; writes nothing."""
    with contextlib.suppress(FileNotFoundError, PermissionError):  # who may not look there may not work there either
        for directory in _directories(named):
            private.check(directory, foreign=_shared(named))


def _directories(named: Named) -> tuple[str, str]:
    return os.path.join(named.directory, _ROOT), os.path.join(named.directory, _ROOT, named.name)


def _shared(named: Named) -> bool:
    return locks.shared_filesystem(named.directory) is not None


def _lock(named: Named) -> t.IO[str]:
    """The locked file; if the lock was removed while waiting, the new one."""
    lock, shared = path(named, _LOCK), _shared(named)
    while True:
        try:
            for directory in _directories(named):
                private.make(directory, foreign=shared)
            handle = os.fdopen(private.opened(lock, os.O_RDWR | os.O_CREAT), "r+")
        except OSError as error:
            if isinstance(error, FileNotFoundError) and os.path.isdir(named.directory):
                continue  # another run removed .corral/NAME in between
            raise Failed(
                f"cannot write to the pool's directory {named.directory}: {error.strerror}; "
                f"{remedy(error, os.path.join(named.directory, _ROOT))}"
            ) from error
        fcntl.flock(handle, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.stat(lock).st_ino == os.fstat(handle.fileno()).st_ino:
                return handle
        handle.close()


def wait(named: Named) -> bool:
    """Wait for the end of a run there, without writing; True if there is a work directory."""
    # Who may not look there may not work there either, and hears of it then.
    with (
        contextlib.suppress(FileNotFoundError, PermissionError),
        open(private.opened(path(named, _LOCK), os.O_RDONLY)) as handle,
    ):
        fcntl.flock(handle, fcntl.LOCK_SH)
    return os.path.isdir(path(named))


def tidy(named: Named, *, but: str = "") -> None:
    """Remove unfinished files, except those whose path begins with `but`."""
    directory = path(named)
    for name in os.listdir(directory) if os.path.isdir(directory) else []:
        file = os.path.join(directory, name)
        if name != _LOCK and not (but and file.startswith(but)):
            remove(file)
