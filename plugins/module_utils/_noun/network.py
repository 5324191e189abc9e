# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A virtual network."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._noun.network_schema import NETWORK_SCHEMA
from ansible_collections.corral.virt.plugins.module_utils._noun.noun import Noun
from ansible_collections.corral.virt.plugins.module_utils._plan.network import LIVE, RULES
from ansible_collections.corral.virt.plugins.module_utils._xml.network_document import SHAPE, finish, host, skeleton

__all__ = ["NETWORK"]

NETWORK = Noun(
    schema=NETWORK_SCHEMA,
    shape=SHAPE,
    skeleton=skeleton,
    rules=RULES,
    live=LIVE,
    finish=finish,
    made=lambda values: f"(mode {values['mode']})",
    shown=("mode", "bridge"),
    host=host,
)
