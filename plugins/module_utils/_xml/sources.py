# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Which files a guest has open, or would have."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

__all__ = ["sources"]


def sources(xml: str) -> list[str]:
    """Paths of all files and devices of a definition's disks; those that run also tell what these stand on."""
    found = [source.get(kind) for source in parse(xml).iterfind("devices/disk//source") for kind in ("file", "dev")]
    return list(dict.fromkeys(path for path in found if path))
