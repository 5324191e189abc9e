# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that are there as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["RESERVE", "replace"]

RESERVE = "reserve"  # a file of a job with room for its result, which is written in any case


def replace(path: Path, content: bytes, mode: int = 0o600, *, lasting: bool = True) -> None:
    """Put a new file in the place of that one, of which one process is the writer.

    What is written again soon need not be `lasting`: readers see it whole, and a loss of power may lose it. Of what is,
    it leaves the old content or the new; once this returns, the new.
    """
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        fresh.rename(path)
    except OSError:
        with contextlib.suppress(OSError):  # half of a file keeps room that somebody may need
            fresh.unlink(missing_ok=True)
        raise
    if lasting:
        _fsync(path.parent)


def _fsync(directory: Path) -> None:
    """Wait until the names in a directory are on disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
