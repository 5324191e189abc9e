# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Read a network filter."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._domain.model_nwfilter import NetworkFilter
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

__all__ = ["read"]


def read(xml: str) -> tuple[str, NetworkFilter]:
    """Its name, and what it holds."""
    root = parse(xml)
    protocols = frozenset(part.tag for part in root.iterfind("rule/*") if isinstance(part.tag, str))
    return root.get("name"), NetworkFilter(protocols, tuple(one.get("filter") for one in root.findall("filterref")))
