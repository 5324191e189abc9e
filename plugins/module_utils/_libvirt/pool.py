# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Storage pools as libvirt names them."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._libvirt.library import Library
from ansible_collections.corral.virt.plugins.module_utils._libvirt.stored import Stored
from ansible_collections.corral.virt.plugins.module_utils._plan.noun import NounStep, Start

__all__ = ["LIBRARY"]


def _start(pool: t.Any, _step: NounStep) -> None:
    pool.build(0)  # for a directory: mkdir
    pool.create()


_POOLS = Stored(
    what="storage pool",
    lookup="storagePoolLookup",
    missing="VIR_ERR_NO_STORAGE_POOL",
    flag="VIR_STORAGE_XML_INACTIVE",
)
LIBRARY = Library(_POOLS, define="storagePoolDefineXML", own={Start: _start})
