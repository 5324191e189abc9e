# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files in the home directory of the user who runs Ansible, which a job in a container may not have."""

from __future__ import annotations

import os

from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import CA_DIR

__all__ = ["CA_DIR", "KNOWN_HOSTS", "lacks"]

KNOWN_HOSTS = "~/.config/corral/known_hosts"


def lacks(path: str, default: str) -> bool:
    """True if an absolute path is the default one and cannot be written.

    A path that the user chose is never replaced: a failure to write there is an error.
    """
    expanded = os.path.expanduser(default)
    if expanded.startswith("~"):  # no HOME, and no account with a directory
        return path.endswith(f"/{default}")
    if path != os.path.abspath(expanded):
        return False
    return os.environ.get("HOME") == "" or not _can_be_written(os.path.dirname(path))


def _can_be_written(folder: str) -> bool:
    """True if a folder, or its nearest existing ancestor, takes new files."""
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)
