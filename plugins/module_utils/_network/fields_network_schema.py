# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The schema of a virtual network."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._network.fields_network import NETWORK as TABLE
from ansible_collections.corral.virt.plugins.module_utils._network.model_network import NETWORK_KIND
from ansible_collections.corral.virt.plugins.module_utils._noun.fields_schema import Schema

__all__ = ["NETWORK_SCHEMA"]

NETWORK_SCHEMA = Schema(
    kind=NETWORK_KIND,
    table=TABLE,
    states=("active", "present", "inactive", "absent"),
    extras=("uuid", "xml", "allow_restart", "force"),
)
