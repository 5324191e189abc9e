# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Free space of the filesystem that holds a directory."""

from __future__ import annotations

import os

from ansible_collections.corral.virt.plugins.module_utils._system.model_free_space import FreeSpace
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import explained


def measure(directory: str, reserve_bytes: int | None) -> FreeSpace:
    """The current free space; raises Failed."""
    with explained(f"read the free space in {directory}", os.path.join(directory, "")):
        found = os.statvfs(directory)
    return FreeSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, reserve_bytes)


def allocated(path: str) -> int:
    """Bytes that a file occupies; its holes occupy none."""
    return os.stat(path).st_blocks * 512
