# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Which prerequisites of a guest a host lacks."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._files import devices, named
from ansible_collections.corral.virt.plugins.module_utils._files.missing import has_hook, missing_links, missing_paths
from ansible_collections.corral.virt.plugins.module_utils._libvirt.prerequisites import (
    active_networks,
    inactive_networks,
    missing_filters,
    missing_volumes,
    networks_without_autostart,
    transient_networks,
    volume_paths,
)
from ansible_collections.corral.virt.plugins.module_utils._model.prerequisites import (
    Missing,
    NamedBy,
    Prerequisites,
    Uplink,
)
from ansible_collections.corral.virt.plugins.module_utils._model.uri import has_files_here
from ansible_collections.corral.virt.plugins.module_utils._xml.uplink import uplink

__all__ = ["missing"]


def missing(connection: t.Any, needed: Prerequisites) -> Missing:
    """What is known not to be there. Of files and devices of another machine, or that a hook sets up, nobody knows."""
    hooked = has_hook()
    if needed.restored and hooked:
        return Missing()
    here = has_files_here(connection.getURI()) and not hooked
    no_autostart = networks_without_autostart(connection, needed.networks) if needed.networks else frozenset()
    uplinks = _uplinks(connection, needed) if here and not has_hook("network") else {}
    links = {*needed.links, *(link for one in uplinks.values() for link in (one.bridge, *one.interfaces) if link)}
    return Missing(
        networks=inactive_networks(connection, needed.networks) if needed.networks else {},
        no_autostart=no_autostart,
        transient=transient_networks(connection, no_autostart) if no_autostart else frozenset(),
        uplinks=uplinks,
        filters=missing_filters(connection, needed.filters) if needed.filters else frozenset(),
        links=missing_links(links) if here else frozenset(),
        devices=devices.missing(needed.devices) if here else frozenset(),
        paths=missing_paths(needed.paths) if here else frozenset(),
        named=_named(connection, needed) if here else {},
        volumes=missing_volumes(connection, needed.volumes) if needed.volumes else {},
    )


def _uplinks(connection: t.Any, needed: Prerequisites) -> dict[str, Uplink]:
    found = active_networks(connection, needed.plugged) if needed.plugged else {}
    return {name: uplink(xml) for name, xml in found.items()}


def _named(connection: t.Any, needed: Prerequisites) -> dict[str, NamedBy]:
    volumes = {image.place for image in needed.images if isinstance(image.place, tuple)}
    places = volume_paths(connection, volumes)
    paths = {
        image: places.get(image.place) if isinstance(image.place, tuple) else image.place for image in needed.images
    }
    return named.missing({path: not image.is_alone for image, path in paths.items() if path})
