# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a process can write what it has to remember, and what to do when it cannot."""

from __future__ import annotations

import os
from pathlib import Path

from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import remedy

__all__ = ["DENIED", "FILES", "problem"]

_MIB = 1024 * 1024
DENIED = "give it back to the user of the console (`chown`), or run the role console again"
FILES = 64  # a job is some 20 of them while it runs


def problem(directory: Path, least_mib: int) -> str:
    """Why there is no room below a directory, and the remedy; empty where there is room."""
    try:
        status = os.statvfs(directory)
    except OSError as error:
        return f"cannot read {directory}: {error.strerror}; {remedy(error, str(directory), denied=DENIED)}"
    if status.f_flag & os.ST_RDONLY:
        return f"the file system of {directory} is read-only; repair it, and mount it for writing"
    if status.f_bavail * status.f_frsize < least_mib * _MIB:
        return f"the disk of {directory} is full; free {least_mib} MiB there"
    if status.f_files and status.f_favail < FILES:
        return f"the disk of {directory} can hold no more files; remove some there"
    return ""
