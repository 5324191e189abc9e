# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The thin pools in the volume groups of a host's storage pools."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.uri import has_files_here
from ansible_collections.corral.virt.plugins.module_utils._storage import files_lvm


def told(uri: str, pool: t.Mapping[str, t.Any], group: str) -> dict[str, t.Any]:
    """What LVM knows of the thin pools in the volume group of a pool (`thin_pools`); empty if nobody can ask it."""
    if pool["type"] != "logical" or not (pool["active"] and has_files_here(uri)):
        return {}
    return {"thin_pools": files_lvm.thin_pools(group)}
