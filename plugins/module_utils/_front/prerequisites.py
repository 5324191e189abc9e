# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Which prerequisites of a guest a host lacks."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._files.missing import has_hook, missing_links, missing_paths
from ansible_collections.corral.virt.plugins.module_utils._libvirt.prerequisites import (
    inactive_networks,
    missing_volumes,
    networks_without_autostart,
)
from ansible_collections.corral.virt.plugins.module_utils._model.prerequisites import Missing, Prerequisites
from ansible_collections.corral.virt.plugins.module_utils._model.uri import has_files_here

__all__ = ["missing"]


def missing(connection: t.Any, needed: Prerequisites) -> Missing:
    """What is known not to be there. Of files and devices of another machine, or that a hook sets up, nobody knows."""
    here = has_files_here(connection.getURI()) and not has_hook()
    return Missing(
        networks=inactive_networks(connection, needed.networks) if needed.networks else {},
        no_autostart=networks_without_autostart(connection, needed.networks) if needed.networks else frozenset(),
        links=missing_links(needed.links) if here else frozenset(),
        paths=missing_paths(needed.paths) if here else frozenset(),
        volumes=missing_volumes(connection, needed.volumes) if needed.volumes else {},
    )
