# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Storage that several hosts share: known shared filesystems, and directories that qemu.conf declares shared."""

from __future__ import annotations

import os.path

from ansible_collections.corral.virt.plugins.module_utils._guest import files_qemu
from ansible_collections.corral.virt.plugins.module_utils._system import locks


def holder(path: str) -> str | None:
    """The shared filesystem, or the directory that qemu.conf declares shared, that holds the path; None if neither
    does.
    """
    _owns, listed = files_qemu.settings()
    declared = next((f"{its}, declared shared in qemu.conf" for its in listed if _inside(path, its)), None)
    return locks.shared_filesystem(path) or declared


def _inside(path: str, directory: str) -> bool:
    path, directory = os.path.realpath(path), os.path.realpath(directory)
    return path != directory and os.path.commonpath((path, directory)) == directory
