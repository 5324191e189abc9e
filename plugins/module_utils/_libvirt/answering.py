# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Filesystems whose server is gone: whoever reads them waits without end, and may not even be killed."""

from __future__ import annotations

import subprocess

__all__ = ["TIMEOUT_S", "answers"]

TIMEOUT_S = 30


def answers(path: str, timeout_s: float = TIMEOUT_S) -> bool:
    """True if the filesystem of a path answers in time, even that there is no such path. A process of its own asks."""
    quiet = subprocess.DEVNULL
    asked = subprocess.Popen(["stat", "--file-system", "--", path], stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        asked.wait(timeout_s)
    except subprocess.TimeoutExpired:
        asked.kill()  # it ends when the server answers, which nobody waits for
        return False
    return True
