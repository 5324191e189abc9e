"""All that can be seen of a host, asked of libvirt itself: to prove that nothing was written."""

from __future__ import annotations

import typing as t

__all__ = ["snapshot"]

SECURE, INACTIVE = 1, 2  # libvirt.VIR_DOMAIN_XML_*


def snapshot(connection: t.Any) -> dict[str, object]:
    """Documents and states of guests, pools, volumes and networks."""
    seen: dict[str, object] = {}
    for guest in connection.listAllDomains():
        seen[f"guest {guest.name()}"] = (
            guest.state(),
            guest.autostart(),
            guest.XMLDesc(SECURE),
            guest.XMLDesc(SECURE | INACTIVE),
        )
    for pool in connection.listAllStoragePools():
        seen[f"pool {pool.name()}"] = (pool.isActive(), pool.autostart(), pool.XMLDesc())
        volumes = pool.listAllVolumes() if pool.isActive() else []
        seen.update({f"volume {volume.key()}": volume.XMLDesc() for volume in volumes})
    for network in connection.listAllNetworks():
        seen[f"network {network.name()}"] = (network.isActive(), network.autostart(), network.XMLDesc())
    return seen
