# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The table and the document of a storage pool that is a directory."""

from __future__ import annotations

import posixpath

from ansible_collections.corral.virt.plugins.module_utils._model.noun import Spec
from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml import row, tree
from ansible_collections.corral.virt.plugins.module_utils._xml.overlay import Shape
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Row

__all__ = ["POOL", "SHAPE", "skeleton"]

SHAPE = Shape("pool")


def _same_path(found: str | None, wanted: str) -> bool:
    """A path that is only written differently is the same."""
    return found is not None and posixpath.normpath(found) == posixpath.normpath(wanted)


POOL: row.Table = {
    "type": Row("./@type"),
    "path": Row("target/path", k.PATH, same=_same_path),
}


def skeleton(spec: Spec) -> str:
    """A directory, of which the user says where it is."""
    pool = tree.parse("<pool type='dir'/>")
    tree.make(pool, "name").text = spec.name
    return tree.text(pool)
