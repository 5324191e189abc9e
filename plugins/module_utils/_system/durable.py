# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""File operations that survive a power cut."""

from __future__ import annotations

import contextlib
import os


def fsync(path: str | os.PathLike[str]) -> None:
    """Wait until a file, or the names in a directory, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(path: str, to: str) -> None:
    """Rename a file over another: a power cut leaves the old one, or all of the new one."""
    fsync(path)
    os.replace(path, to)
    fsync(os.path.dirname(to))


def remove(path: str) -> None:
    """Remove a file, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
