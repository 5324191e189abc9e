# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Which networks and volumes libvirt does not have ready for a guest."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt

__all__ = ["inactive_networks", "missing_volumes", "networks_without_autostart"]


def inactive_networks(connection: Connection, networks: t.Collection[str]) -> dict[str, bool]:
    """Those of these networks that are not active, each with whether there is one."""
    there, off = _named(connection, 0), _named(connection, libvirt.VIR_CONNECT_LIST_NETWORKS_INACTIVE)
    return {name: name in there for name in networks if name in off or name not in there}


def networks_without_autostart(connection: Connection, networks: t.Collection[str]) -> frozenset[str]:
    """Those of these networks that do not start with the host."""
    return _named(connection, libvirt.VIR_CONNECT_LIST_NETWORKS_NO_AUTOSTART).intersection(networks)


def _named(connection: Connection, flags: int) -> frozenset[str]:
    """Names of networks: libvirt chooses them, so that none can go before it is asked how it is."""
    with explained("list the networks of", connection.getURI()):
        return frozenset(network.name() for network in connection.listAllNetworks(flags))


def missing_volumes(connection: Connection, volumes: t.Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Those of these volumes (pool, name) that libvirt does not find, each with what it says."""
    found: dict[tuple[str, str], str] = {}
    gone = (libvirt.VIR_ERR_NO_STORAGE_POOL, libvirt.VIR_ERR_NO_STORAGE_VOL, libvirt.VIR_ERR_OPERATION_INVALID)
    for pool, name in volumes:
        try:
            connection.storagePoolLookupByName(pool).storageVolLookupByName(name)
        except libvirt.libvirtError as error:
            if error.get_error_code() not in gone:
                with explained("find volume", f"{name} in pool {pool}"):
                    raise
            found[pool, name] = str(error.get_error_message())
    return found
