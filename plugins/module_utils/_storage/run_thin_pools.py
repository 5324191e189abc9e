# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The thin pools in the volume groups of a host's storage pools."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.uri import has_files_here
from ansible_collections.corral.virt.plugins.module_utils._storage import files_lvm

__all__ = ["told"]


def told(uri: str, pool: t.Mapping[str, t.Any], group: str) -> dict[str, t.Any]:
    """What LVM knows of the thin pools in the volume group of a pool (`thin_pools`); empty if nobody can ask it."""
    if pool["type"] != "logical" or not (pool["active"] and has_files_here(uri)):
        return {}
    return {"thin_pools": files_lvm.thin_pools(group)}
