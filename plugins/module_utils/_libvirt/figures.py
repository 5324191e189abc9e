# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What only reports ask of a host."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._libvirt import look
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, libvirt, said

__all__ = ["domain_capabilities", "networks", "states", "stats"]


def domain_capabilities(connection: Connection, virt_type: str) -> str | None:
    """What guests of that type may have; None where the driver cannot say."""
    try:
        return t.cast(str, connection.getDomainCapabilities(None, None, None, virt_type))
    except libvirt.libvirtError:
        return None


def stats(connection: Connection) -> list[tuple[t.Any, dict[str, t.Any]]]:
    """State, vCPUs, memory, disks and NICs of all guests, in one call."""
    kinds = (
        libvirt.VIR_DOMAIN_STATS_STATE | libvirt.VIR_DOMAIN_STATS_VCPU | libvirt.VIR_DOMAIN_STATS_BALLOON | libvirt.VIR_DOMAIN_STATS_BLOCK
    )
    with said("read the guests of", connection.getURI()):
        return t.cast("list[tuple[t.Any, dict[str, t.Any]]]", connection.getAllDomainStats(kinds, 0))


def states(connection: Connection) -> list[tuple[t.Any, str]]:
    """All guests with their states, in one call that a hung QEMU cannot hold up: it asks libvirt only."""
    with said("read the guests of", connection.getURI()):
        found = connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE, 0)
    return [(domain, look.state_word(statistics["state.state"])) for domain, statistics in found]


def networks(connection: Connection) -> list[dict[str, t.Any]]:
    """libvirt's virtual networks."""
    with said("read the networks of", connection.getURI()):
        return [
            {
                "name": item.name(),
                "active": bool(item.isActive()),
                "autostart": bool(item.autostart()),
                "xml": item.XMLDesc(),
            }
            for item in connection.listAllNetworks()
        ]
