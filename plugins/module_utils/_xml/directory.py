# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A directory as a storage pool."""

from __future__ import annotations

import hashlib

from ansible_collections.corral.virt.plugins.module_utils._xml.tree import make, parse, text

__all__ = ["new_pool"]


def new_pool(directory: str) -> str:
    """A storage pool that is this directory, for a moment: its name is no one's."""
    root = parse("<pool type='dir'/>")
    make(root, "name").text = "corral-" + hashlib.sha256(directory.encode()).hexdigest()[:12]
    make(make(root, "target"), "path").text = directory
    return text(root)
