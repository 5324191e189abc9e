# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A virtual network."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._network.fields_network_schema import NETWORK_SCHEMA
from ansible_collections.corral.virt.plugins.module_utils._network.plan_network import LIVE, RULES
from ansible_collections.corral.virt.plugins.module_utils._network.xml_network import SHAPE, finish, host, skeleton
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun_stages import Noun

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
