# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A guest that is removed: what it owns, what of that others use, and the plan."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain import fields_domain
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_disks, plan_removal, plan_seeding
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_domain import GuestPlan
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_host_questions import GuestHost
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import OwnedVolume

__all__ = ["plan"]


def plan(wanted: GuestSpec, found: FoundGuest | None, recorded: t.Mapping[str, t.Any], host: GuestHost) -> GuestPlan:
    """The plan that removes the guest, and its disks if wanted; raises a refusal."""
    unfinished = host.unfinished_removals() if wanted.remove_storage else ()
    if found is None:
        left_over = _left_over_images(wanted.name, host) if wanted.remove_storage else ()
        return plan_removal.gone(wanted.name, left_over, unfinished, uri=host.uri)
    owner = plan_guest_disks.owner(found, recorded, host)
    entries: tuple[OwnedVolume, ...] = tuple(recorded.get("volumes") or ())
    unseeded = [path + plan_seeding.UNSEEDED for path in recorded.get("making") or ()]
    told = [one.path for one in entries] if wanted.remove_storage else []
    disks = host.owned_disks((*told, *unseeded))
    left = [path for path in unseeded if not disks[path].gone]
    owner = dataclasses.replace(owner, disks=frozenset((*owner.disks, *left)))
    owned = (*entries, *map(owner.made, left))
    chains = host.own_chains(found) if wanted.remove_storage else ()
    others = plan_removal.unrecorded(chains, [one.path for one in owned])
    paths = [one.path for one in owned]
    in_use = {**host.users(paths, but=found.uuid), **plan_removal.shared(plan_guest_disks.with_paths(found, host))}
    in_use = {**(host.users(others, but=found.uuid) if others else {}), **in_use}
    managed_state = (*host.managed_state(found.uuid), *fields_domain.managed_state(found.xml))
    return plan_removal.absent(
        wanted,
        found,
        managed_state=managed_state,
        owned=owned,
        in_use=in_use,
        disks=disks,
        owner=owner,
        others=others,
        unfinished=unfinished,
        uri=host.uri,
    )


def _left_over_images(guest: str, host: GuestHost) -> list[str]:
    """Images that are named like the guest's and that nothing uses."""
    paths = plan_removal.named_after(guest, host.volumes())
    users = host.users(paths)
    return [path for path in paths if path not in users]
