# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find prerequisites of a guest that a host lacks, from libvirt and from whoever sees the host's files and devices."""

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

_VIRTIOFSD = ("/usr/share/qemu/vhost-user", "/etc/qemu/vhost-user")  # where a program tells libvirt of itself


class HostLook(t.Protocol):
    """The questions to a host that libvirt does not answer."""

    def has_hook(self, of: str) -> bool:
        """True if libvirt there runs a hook script, which may set up what is missing."""

    def missing_links(self, names: t.Collection[str], switches: t.Collection[str]) -> frozenset[str]:
        """The network devices, and bridges of Open vSwitch, that the host is known not to have."""

    def missing_devices(self, names: t.Collection[str]) -> frozenset[str]:
        """The devices for guests that the host is known not to have."""

    def missing_paths(self, needed: Prerequisites) -> frozenset[str]:
        """The paths that are known to lead to nothing."""

    def missing_named(self, needed: Prerequisites) -> t.Mapping[str, NamedBy]:
        """The files that disk images name and that the host is known not to have."""

    def names_in(self, directory: str) -> t.Collection[str] | None:
        """The names in a directory; None if nobody can tell."""


def missing(connection: t.Any, needed: Prerequisites, host: HostLook | None) -> Missing:
    """The prerequisites that are known to be missing; without a `host` to ask, those that libvirt knows of."""
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
    """`found` with what only the host itself can tell."""
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
    """The needed helpers if no package describes one; none if the administrator's directory holds any file."""
    if not needed.helpers:
        return frozenset()
    packaged, own = map(host.names_in, _VIRTIOFSD)
    unknown = packaged is None or own is None
    return frozenset() if unknown or own or any("virtiofsd" in name for name in packaged or ()) else needed.helpers


def _uplinks(connection: t.Any, needed: Prerequisites) -> dict[str, Uplink]:
    found = active_networks(connection, needed.plugged) if needed.plugged else {}
    return {name: uplink(xml) for name, xml in found.items()}
