# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows that an interface of a guest, a network and a portgroup share."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml.row import ANY, Many, Row, Table
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element

_RATE = k.integer(1, 2**31 - 1)
BANDWIDTH: Table = {
    f"bandwidth.{side}.{what}": Row(
        f"bandwidth/{side}/@{what}",
        _RATE,
        valid_with={} if what == "average" else {f"bandwidth.{side}.average": ANY},
    )
    for side in ("inbound", "outbound")
    for what in ("average", "peak", "burst")
}
VLAN = Many("vlan/tag/@id", k.integer(0, 4095))


def same_mac(found: str | None, wanted: str) -> bool:
    """True if the MAC addresses match in any spelling; an empty one leaves the choice to libvirt."""
    return not wanted or (found or "").lower().replace("-", ":") == wanted


def normalise_vlan(holder: Element) -> None:
    """Remove an empty element, and mark several tags as a trunk."""
    vlan = holder.find("vlan")
    if vlan is None:
        return
    if not len(vlan):
        holder.remove(vlan)
    elif len(vlan) > 1:
        vlan.set("trunk", "yes")
