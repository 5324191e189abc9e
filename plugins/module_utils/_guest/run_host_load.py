# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure how busy a host and its guests are."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._guest import run_summary
from ansible_collections.corral.virt.plugins.module_utils._libvirt import load

_MEASURED_S = 1


def measured(
    connection: t.Any, read: t.Callable[[], list[dict[str, t.Any]]]
) -> tuple[list[dict[str, t.Any]], dict[str, t.Any]]:
    """All guests that `read` returns, with `cpu_percent`, and the load of their host; takes a second."""
    before, begun = load.clocks(connection), time.monotonic()
    guests, node = read(), libvirt_query.node(connection)
    time.sleep(max(0.0, _MEASURED_S - (time.monotonic() - begun)))
    after = load.clocks(connection)
    for guest in guests:
        guest["cpu_percent"] = load.guest_percent(before, after, guest["uuid"], guest["vcpus"]["current"])
    return guests, {
        "cpus": node["cpus"],
        "cpu_percent": load.host_percent(before, after),
        "memory_mib": node["memory_mib"],
        "memory_used_mib": run_summary.memory_used_mib(guests),
    }
