# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find prerequisites of a guest that this host lacks."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.uri import has_files_here
from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import (
    Missing,
    NamedBy,
    Prerequisites,
)
from ansible_collections.corral.virt.plugins.module_utils._guest import files_prerequisites, run_host_prerequisites
from ansible_collections.corral.virt.plugins.module_utils._guest.files_prerequisites import (
    has_hook,
    missing_links,
    missing_paths,
    names_in,
)
from ansible_collections.corral.virt.plugins.module_utils._guest.libvirt_prerequisites import volume_paths
from ansible_collections.corral.virt.plugins.module_utils._host import files_maintenance


def missing(connection: t.Any, needed: Prerequisites) -> Missing:
    """The prerequisites known to be missing, without files and devices of another machine or that a hook may set up."""
    local = has_files_here(connection.getURI())
    mark = files_maintenance.read() if local else None
    reason = str(mark["reason"]) if mark else None
    if needed.restored and has_hook():
        return Missing(maintenance=reason)
    found = run_host_prerequisites.missing(connection, needed, _ThisHost(connection) if local else None)
    return dataclasses.replace(found, maintenance=reason)


class _ThisHost:
    """The host that this code runs on. Its kernel does not know bridges of Open vSwitch."""

    def __init__(self, connection: t.Any) -> None:
        self._connection = connection

    has_hook = staticmethod(has_hook)
    missing_devices = staticmethod(files_prerequisites.missing_devices)
    names_in = staticmethod(names_in)

    @staticmethod
    def missing_links(names: t.Collection[str], _switches: t.Collection[str]) -> frozenset[str]:
        return missing_links(names)

    @staticmethod
    def missing_paths(needed: Prerequisites) -> frozenset[str]:
        return missing_paths(needed.paths)

    def missing_named(self, needed: Prerequisites) -> dict[str, NamedBy]:
        return _named(self._connection, needed)


def _named(connection: t.Any, needed: Prerequisites) -> dict[str, NamedBy]:
    volumes = {image.place for image in needed.images if isinstance(image.place, tuple)}
    places = volume_paths(connection, volumes)
    paths = {
        image: places.get(image.place) if isinstance(image.place, tuple) else image.place for image in needed.images
    }
    return files_prerequisites.missing_named({path: not image.is_alone for image, path in paths.items() if path})
