# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text files of the host's own configuration: replaced atomically, keeping their permissions."""

from __future__ import annotations

import contextlib
import os
import stat
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._system.durable import fsync, remove
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import BECOME, explained

_ENCODING: t.Any = {"encoding": "utf-8", "errors": "surrogateescape"}  # a stranger's bytes stay
_NEW_MODE = 0o644


def read(path: str, *, denied: str = BECOME) -> str:
    """The text of a file; empty if there is none. `denied`: the remedy for a user who may not read it."""
    with explained(f"read {path}", path, denied=denied), contextlib.suppress(FileNotFoundError):
        with open(path, **_ENCODING) as stream:
            return str(stream.read())
    return ""


def write(
    path: str,
    text: str,
    *,
    mode: int | None = None,
    check: t.Callable[[str], object] | None = None,
    denied: str = BECOME,
) -> None:
    """Replace a file if `check`, which is called with the path of the new one, accepts it.

    The new file has its permissions from the first byte: `mode`, or else those of the old file.
    """
    path = _target(path)
    with explained(f"write {path}", path, denied=denied):
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        _replace(path, text, mode, check)


def _target(path: str) -> str:
    """The file that a link leads to; a link to anything else is itself replaced."""
    real = os.path.realpath(path)
    return real if os.path.isfile(real) else path


def _replace(path: str, text: str, mode: int | None, check: t.Callable[[str], object] | None) -> None:
    aside = f"{path}.corral-new"
    remove(aside)  # of a run that was killed
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(aside, flags, 0o600)
    try:
        with os.fdopen(descriptor, "w", **_ENCODING) as stream:
            _set_permissions(descriptor, path, mode)
            stream.write(text)
            stream.flush()
            os.fsync(descriptor)
        if check:
            check(aside)
        os.replace(aside, path)
    finally:
        remove(aside)
    fsync(os.path.dirname(path))


def _set_permissions(descriptor: int, path: str, mode: int | None) -> None:
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        os.fchmod(descriptor, _NEW_MODE if mode is None else mode)
        return
    if not stat.S_ISREG(there.st_mode):  # a link that is replaced
        os.fchmod(descriptor, _NEW_MODE if mode is None else mode)
        return
    os.fchown(descriptor, there.st_uid, there.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(there.st_mode) if mode is None else mode)
