# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of a virtual network."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._network.fields_network import NETWORK as TABLE
from ansible_collections.corral.virt.plugins.module_utils._network.model_network import NETWORK_KIND
from ansible_collections.corral.virt.plugins.module_utils._noun.fields_schema import Schema

NETWORK_SCHEMA = Schema(
    kind=NETWORK_KIND,
    table=TABLE,
    states=("active", "present", "inactive", "absent"),
    extras=("uuid", "xml", "allow_restart", "force"),
)
