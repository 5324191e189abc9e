# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What a host lacks of what a guest needs to start."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._files import present
from ansible_collections.corral.virt.plugins.module_utils._libvirt import surroundings
from ansible_collections.corral.virt.plugins.module_utils._model.start import Lacking, Needs
from ansible_collections.corral.virt.plugins.module_utils._model.uri import has_files_here

__all__ = ["lacking"]


def lacking(connection: t.Any, needs: Needs) -> Lacking:
    """What is known not to be there. Of files and devices of another machine, or that a hook sets up, nobody knows."""
    here = has_files_here(connection.getURI()) and not present.is_hooked()
    return Lacking(
        networks=surroundings.inactive(connection, needs.networks) if needs.networks else {},
        by_hand=surroundings.by_hand(connection, needs.networks) if needs.networks else frozenset(),
        links=present.missing_links(needs.links) if here else frozenset(),
        paths=present.missing(needs.paths) if here else frozenset(),
        volumes=surroundings.lost(connection, needs.volumes) if needs.volumes else {},
    )
