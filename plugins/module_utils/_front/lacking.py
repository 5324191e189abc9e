# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What a host lacks of what a guest needs to start."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._files import devices, named, present
from ansible_collections.corral.virt.plugins.module_utils._libvirt import surroundings
from ansible_collections.corral.virt.plugins.module_utils._model.start import Lacking, NamedBy, Needs, Uplink
from ansible_collections.corral.virt.plugins.module_utils._model.uri import has_files_here
from ansible_collections.corral.virt.plugins.module_utils._xml.uplink import uplink

__all__ = ["lacking"]


def lacking(connection: t.Any, needs: Needs) -> Lacking:
    """What is known not to be there. Of files and devices of another machine, or that a hook sets up, nobody knows."""
    hooked = present.is_hooked()
    if needs.restored and hooked:
        return Lacking()
    here = has_files_here(connection.getURI()) and not hooked
    by_hand = surroundings.by_hand(connection, needs.networks) if needs.networks else frozenset()
    uplinks = _uplinks(connection, needs) if here and not present.is_hooked("network") else {}
    links = {*needs.links, *(link for one in uplinks.values() for link in (one.bridge, *one.interfaces) if link)}
    return Lacking(
        networks=surroundings.inactive(connection, needs.networks) if needs.networks else {},
        by_hand=by_hand,
        transient=surroundings.transient(connection, by_hand) if by_hand else frozenset(),
        uplinks=uplinks,
        filters=surroundings.missing_filters(connection, needs.filters) if needs.filters else frozenset(),
        links=present.missing_links(links) if here else frozenset(),
        devices=devices.missing(needs.devices) if here else frozenset(),
        paths=present.missing(needs.paths) if here else frozenset(),
        named=_named(connection, needs) if here else {},
        volumes=surroundings.lost(connection, needs.volumes) if needs.volumes else {},
    )


def _uplinks(connection: t.Any, needs: Needs) -> dict[str, Uplink]:
    found = surroundings.active(connection, needs.plugged) if needs.plugged else {}
    return {name: uplink(xml) for name, xml in found.items()}


def _named(connection: t.Any, needs: Needs) -> dict[str, NamedBy]:
    volumes = {image.place for image in needs.images if isinstance(image.place, tuple)}
    places = surroundings.located(connection, volumes)
    paths = {
        image: places.get(image.place) if isinstance(image.place, tuple) else image.place for image in needs.images
    }
    return named.missing({path: not image.is_alone for image, path in paths.items() if path})
