# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A guest that is removed: what it owns, what of that others use, and the plan."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._model.domain import FoundGuest, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._noun.host import GuestHost
from ansible_collections.corral.virt.plugins.module_utils._plan import removal
from ansible_collections.corral.virt.plugins.module_utils._plan import seeding as seedings
from ansible_collections.corral.virt.plugins.module_utils._plan.domain import GuestPlan
from ansible_collections.corral.virt.plugins.module_utils._xml import disk, domain
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

__all__ = ["plan"]


def plan(wanted: GuestSpec, found: FoundGuest | None, recorded: t.Mapping[str, t.Any], host: GuestHost) -> GuestPlan:
    """The plan that removes the guest, and its disks if wanted; raises a refusal."""
    if found is None:
        left_over = _left_over_images(wanted.name, host) if wanted.remove_storage else ()
        return removal.gone(wanted.name, left_over, uri=host.uri)
    unseeded = [path + seedings.UNSEEDED for path in recorded.get("making") or ()]
    volumes = recorded.get("volumes", ())
    disks = host.owned_disks((*(volumes if wanted.remove_storage else ()), *unseeded))
    owned = (*volumes, *(path for path in unseeded if not disks[path].gone))
    in_use = {**host.users(owned, but=found.uuid), **removal.shared(_with_paths(found, host))}
    managed_state = (*host.managed_state(found.uuid), *domain.managed_state(found.xml))
    return removal.absent(
        wanted, found, managed_state=managed_state, owned=owned, in_use=in_use, disks=disks, uri=host.uri
    )


def _with_paths(found: FoundGuest, host: GuestHost) -> list[dict[str, t.Any]]:
    """The guest's disks; those that its definition names by pool and volume with their path."""
    return [
        {**item, "source": host.located(item["pool"], item["volume"])} if item.get("pool") else item
        for item in disk.read_all(parse(found.xml))
    ]


def _left_over_images(guest: str, host: GuestHost) -> list[str]:
    """Images that are named like the guest's and that nothing uses."""
    paths = removal.named_after(guest, host.volumes())
    users = host.users(paths)
    return [path for path in paths if path not in users]
