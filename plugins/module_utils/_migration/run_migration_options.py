# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of one migration."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._migration.plan_convergence import SCHEDULES
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migration_options import MODES

OPTIONS: dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "dest": {"type": "str", "required": True},
    "dest_uri": {"type": "str"},
    "dest_links": {"type": "list", "elements": "str"},
    "dest_maintenance": {"type": "str"},
    "state": {"type": "str", "choices": ["present", "aborted"], "default": "present"},
    "dest_gone": {"type": "bool", "default": False},
    "transport": {"type": "str", "choices": ["tls", "tunnelled", "plain"], "default": "tls"},
    "storage": {"type": "str", "choices": list(MODES), "default": "auto"},
    "disk_storage": {"type": "dict", "default": {}},
    "pool": {"type": "str"},
    "disk_pool": {"type": "dict", "default": {}},
    "bandwidth": {"type": "int"},
    "max_downtime": {"type": "int"},
    "auto_converge": {"type": "bool", "default": True},
    "postcopy": {"type": "bool", "default": False},
    "postcopy_after": {"type": "int"},
    "postcopy_after_passes": {"type": "int", "no_log": False},
    "parallel": {"type": "int"},
    "compression": {"type": "list", "elements": "str", "choices": ["xbzrle", "zlib", "zstd"], "default": []},
    "schedule": {"type": "str", "choices": sorted(SCHEDULES)},
    "timeout": {"type": "int", "default": 1800},
    "timeout_action": {"type": "str", "choices": ["abort", "suspend", "postcopy"], "default": "abort"},
    "stall_timeout": {"type": "int", "default": 120},
    "keep_source_storage": {"type": "bool", "default": False},
    "reserve": {"type": "str"},
    "assume_images": {"type": "bool", "default": False},
}
