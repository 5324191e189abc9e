# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The files and devices that the disks of a guest are."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

__all__ = ["sources"]


def sources(xml: str, *, below: bool = False) -> list[str]:
    """Paths of all files and devices of a definition's disks.

    With `below`, also of what these stand on, which only those that run tell.
    """
    found = [
        source.get(kind)
        for source in parse(xml).iterfind(f"devices/disk{'//' if below else '/'}source")
        for kind in ("file", "dev")
    ]
    return list(dict.fromkeys(path for path in found if path))
