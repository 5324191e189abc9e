# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A storage pool that is a directory."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._noun.fields_schema import Schema
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun_stages import Noun
from ansible_collections.corral.virt.plugins.module_utils._storage.fields_pool import POOL as TABLE
from ansible_collections.corral.virt.plugins.module_utils._storage.fields_pool import SHAPE, host, skeleton
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool import RULES

__all__ = ["POOL"]

POOL = Noun(
    schema=Schema(kind="pool", table=TABLE, states=("active", "inactive", "absent"), without_option=("type",)),
    shape=SHAPE,
    skeleton=skeleton,
    rules=RULES,
    made=lambda values: f"in {values.get('path')}",
    shown=("path",),
    host=host,
)
