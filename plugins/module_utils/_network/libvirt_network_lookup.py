# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks up virtual networks and their leases."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotOffered
from ansible_collections.corral.virt.plugins.module_utils._core.object_ref import Ref
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained
from ansible_collections.corral.virt.plugins.module_utils._network.model_network import NETWORK_KIND
from ansible_collections.corral.virt.plugins.module_utils._noun.libvirt_type import ObjectType

NETWORK_TYPE = ObjectType(
    NETWORK_KIND,
    what="network",
    lookup="networkLookup",
    missing="VIR_ERR_NO_NETWORK",
    flag="VIR_NETWORK_XML_INACTIVE",
)


def networks(connection: Connection) -> list[tuple[Ref, t.Any]]:
    """libvirt's network objects."""
    with explained("list the networks of", connection.getURI()):
        return [(NETWORK_KIND.ref(network.name()), network) for network in connection.listAllNetworks()]


def leases(network: t.Any) -> list[dict[str, t.Any]]:
    """Active DHCP leases of a network; empty if libvirt runs no DHCP server for it."""
    found: list[dict[str, t.Any]] = []
    with contextlib.suppress(NotOffered), explained("read the leases of network", network.name()):
        found = network.DHCPLeases() if network.isActive() else []
    names = {"ipaddr": "ip", "mac": "mac", "hostname": "hostname", "clientid": "id"}
    return [
        {
            **{ours: lease.get(theirs) for theirs, ours in names.items()},
            "expires": lease.get("expirytime"),
        }
        for lease in found
    ]
