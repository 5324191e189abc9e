# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Which prerequisites of a guest a host lacks, by what libvirt and somebody who sees its files and devices tell."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import (
    Missing,
    NamedBy,
    Prerequisites,
    Uplink,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_prerequisites import uplink
from ansible_collections.corral.virt.plugins.module_utils._guest.libvirt_prerequisites import (
    active_networks,
    inactive_networks,
    missing_filters,
    missing_offers,
    missing_secrets,
    missing_volumes,
    networks_without_autostart,
    transient_networks,
)

__all__ = ["HostLook", "missing"]

_VIRTIOFSD = ("/usr/share/qemu/vhost-user", "/etc/qemu/vhost-user")  # where a program tells libvirt of itself


class HostLook(t.Protocol):
    """What a host is asked beside libvirt."""

    def has_hook(self, of: str) -> bool:
        """Whether libvirt there runs a script that may set up what is missing."""

    def missing_links(self, names: t.Collection[str], switches: t.Collection[str]) -> frozenset[str]:
        """Network devices of these names, and bridges of Open vSwitch, that it is known not to have."""

    def missing_devices(self, names: t.Collection[str]) -> frozenset[str]:
        """Devices for guests that it is known not to have."""

    def missing_paths(self, needed: Prerequisites) -> frozenset[str]:
        """Paths that are known to lead to nothing."""

    def missing_named(self, needed: Prerequisites) -> t.Mapping[str, NamedBy]:
        """Files that its disks name, and that it is known not to have."""

    def names_in(self, directory: str) -> t.Collection[str] | None:
        """What a directory holds; None where nobody knows."""


def missing(connection: t.Any, needed: Prerequisites, host: HostLook | None) -> Missing:
    """What is known not to be there; without a `host` to ask, as far as libvirt tells."""
    no_autostart = networks_without_autostart(connection, needed.networks) if needed.networks else frozenset()
    found = Missing(
        networks=inactive_networks(connection, needed.networks) if needed.networks else {},
        no_autostart=no_autostart,
        transient=transient_networks(connection, no_autostart) if no_autostart else frozenset(),
        filters=missing_filters(connection, needed.filters) if needed.filters else frozenset(),
        volumes=missing_volumes(connection, needed.volumes) if needed.volumes else {},
        secrets=missing_secrets(connection, needed.secrets) if needed.secrets else frozenset(),
        offers=missing_offers(connection, needed.offers),
    )
    return _beside_libvirt(connection, needed, found, host) if host else found


def _beside_libvirt(connection: t.Any, needed: Prerequisites, found: Missing, host: HostLook) -> Missing:
    """The same with what only the host itself can tell."""
    uplinks = _uplinks(connection, needed)
    links = {*needed.links, *(link for one in uplinks.values() for link in (one.bridge, *one.interfaces) if link)}
    absent = host.missing_links(links, needed.switches)
    if not absent.issubset(needed.links) and host.has_hook("network"):
        uplinks = {}
    seen = dataclasses.replace(
        found,
        links=absent,
        devices=host.missing_devices(needed.devices),
        paths=host.missing_paths(needed),
        helpers=_missing_helpers(needed, host),
        named=host.missing_named(needed),
    )
    if seen != found and host.has_hook("qemu"):
        return dataclasses.replace(found, hooked=True)
    return dataclasses.replace(seen, uplinks=uplinks)


def _missing_helpers(needed: Prerequisites, host: HostLook) -> frozenset[str]:
    """Those of which no description is there; only the administrator's may have any name."""
    if not needed.helpers:
        return frozenset()
    packaged, own = map(host.names_in, _VIRTIOFSD)
    unknown = packaged is None or own is None
    return frozenset() if unknown or own or any("virtiofsd" in name for name in packaged or ()) else needed.helpers


def _uplinks(connection: t.Any, needed: Prerequisites) -> dict[str, Uplink]:
    found = active_networks(connection, needed.plugged) if needed.plugged else {}
    return {name: uplink(xml) for name, xml in found.items()}
