# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filesystems whose server is gone: whoever reads them waits without end, and may not even be killed."""

from __future__ import annotations

import subprocess

TIMEOUT_S = 30


def answers(path: str, timeout_s: float = TIMEOUT_S) -> bool:
    """True if the filesystem of a path answers in time, even that there is no such path. A process of its own asks."""
    return _stat(["--file-system"], path, timeout_s) is not None


def filesystem(path: str, timeout_s: float = TIMEOUT_S) -> str | None:
    """The device number of the filesystem of a directory; None if there is no such path, or no answer in time."""
    return (_stat(["--dereference", "--format=%d"], path, timeout_s) or "").strip() or None


def _stat(options: list[str], path: str, timeout_s: float) -> str | None:
    """What stat(1) prints; None if it does not end in time."""
    quiet = subprocess.DEVNULL
    asked = subprocess.Popen(
        ["stat", *options, "--", path], stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, text=True, errors="replace"
    )
    try:
        return asked.communicate(timeout=timeout_s)[0]
    except subprocess.TimeoutExpired:
        asked.kill()  # it ends when the server answers, which nobody waits for
        return None
