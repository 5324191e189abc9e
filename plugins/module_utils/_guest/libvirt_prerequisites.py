# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find networks, filters, volumes and secrets that libvirt does not have ready for a guest."""

from __future__ import annotations

import contextlib
import typing as t
import weakref

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, NotOffered
from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import Offer
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._xml import stdlib_reader

_COMPLETE: weakref.WeakKeyDictionary[Connection, set[str]] = weakref.WeakKeyDictionary()  # names of network filters


def inactive_networks(connection: Connection, networks: t.Collection[str]) -> dict[str, bool]:
    """The networks that are not active, each with True if it is defined."""
    there, off = _named(connection, 0), _named(connection, libvirt.VIR_CONNECT_LIST_NETWORKS_INACTIVE)
    return {name: name in there for name in networks if name in off or name not in there}


def networks_without_autostart(connection: Connection, networks: t.Collection[str]) -> frozenset[str]:
    """The networks that do not start with the host."""
    return _named(connection, libvirt.VIR_CONNECT_LIST_NETWORKS_NO_AUTOSTART).intersection(networks)


def transient_networks(connection: Connection, networks: t.Collection[str]) -> frozenset[str]:
    """The networks that are transient: they are gone once stopped."""
    return _named(connection, libvirt.VIR_CONNECT_LIST_NETWORKS_TRANSIENT).intersection(networks)


def active_networks(connection: Connection, networks: t.Collection[str]) -> dict[str, str]:
    """The active networks, each with its XML."""
    found: dict[str, str] = {}
    with explained("list the networks of", connection.getURI()):
        for network in connection.listAllNetworks(libvirt.VIR_CONNECT_LIST_NETWORKS_ACTIVE):
            if network.name() in networks:
                with contextlib.suppress(NotFound), explained("read network", network.name()):
                    found[network.name()] = network.XMLDesc()
    return found


def missing_filters(connection: Connection, names: t.Collection[str]) -> frozenset[str]:
    """The network filters, and filters to which they refer, that do not exist.

    Filters that were complete once are not looked up again over the same connection.
    """
    complete = _COMPLETE.setdefault(connection, set())
    if complete.issuperset(names):
        return frozenset()
    there = None
    with contextlib.suppress(NotOffered), explained("list the network filters of", connection.getURI()):
        there = {one.name(): one for one in connection.listAllNWFilters()}
    if there is None:
        return frozenset()
    reached, waiting = set[str](), set(names)
    while waiting:
        reached |= waiting
        with explained("read the network filters of", connection.getURI()):
            documents = [there[name].XMLDesc() for name in waiting if name in there]
        waiting = {name for document in documents for name in stdlib_reader.references(document)} - reached
    gone = reached - there.keys()
    complete |= set() if gone else reached
    return frozenset(gone)


def _named(connection: Connection, flags: int) -> frozenset[str]:
    """Names of networks with these flags: libvirt filters the list, so no network can disappear in between."""
    with explained("list the networks of", connection.getURI()):
        return frozenset(network.name() for network in connection.listAllNetworks(flags))


def missing_volumes(connection: Connection, volumes: t.Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The volumes (pool, name) that libvirt does not find, each with libvirt's message."""
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


def missing_secrets(connection: Connection, names: t.Collection[str]) -> frozenset[str]:
    """The secrets, by UUID or usage, that do not exist; empty if the driver does not support secrets."""
    with contextlib.suppress(NotOffered), explained("list the secrets of", connection.getURI()):
        there = {name for one in connection.listAllSecrets() for name in (one.UUIDString(), one.usageID())}
        return frozenset(names) - there
    return frozenset()


def missing_offers(connection: Connection, offers: t.Collection[Offer]) -> frozenset[Offer]:
    """The offers that libvirt says it cannot provide."""
    return frozenset(one for one in offers if not _is_offered(connection, one))


def _is_offered(connection: Connection, one: Offer) -> bool:
    """True if libvirt offers it, or cannot tell: it may not know the machine type itself."""
    with contextlib.suppress(libvirt.libvirtError):
        kind = (one.arch or None, one.machine or None, one.virt_type or None)
        return stdlib_reader.offers(connection.getDomainCapabilities(None, *kind), one.what)
    return True


def volume_paths(connection: Connection, volumes: t.Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Paths of the volumes (pool, name), without volumes that libvirt does not find."""
    found = {}
    for pool, name in volumes:
        with contextlib.suppress(libvirt.libvirtError):
            found[pool, name] = str(connection.storagePoolLookupByName(pool).storageVolLookupByName(name).path())
    return found
