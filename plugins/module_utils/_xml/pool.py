# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A storage pool's document."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._xml import tree

__all__ = ["new"]


def new(name: str, path: str) -> str:
    """A pool that is a directory."""
    pool = tree.parse("<pool type='dir'/>")
    tree.make(pool, "name").text = name
    tree.make(tree.make(pool, "target"), "path").text = path
    return tree.text(pool)
