# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The disks that a guest has, and whose they are by its record."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain import fields_disk
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import UNFINISHED_SUFFIX
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_removal
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_host_questions import GuestHost
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_disk_record
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_record import Owner
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import OwnedVolume
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

__all__ = ["adopted", "owner", "with_paths"]


def owner(found: FoundGuest, recorded: t.Mapping[str, t.Any], host: GuestHost) -> Owner:
    """The guest with its disks; of one that has no record the host is not asked."""
    if not recorded:
        return Owner(found.name, found.uuid, "")
    disks = [str(item.get("source") or "").removesuffix(UNFINISHED_SUFFIX) for item in with_paths(found, host)]
    return Owner(found.name, found.uuid, host.host_uuid(), frozenset(filter(None, disks)))


def with_paths(found: FoundGuest, host: GuestHost) -> list[dict[str, t.Any]]:
    """The guest's disks; those that its definition names by pool and volume with their path."""
    return [
        {**item, "source": host.located(item["pool"], item["volume"])} if item.get("pool") else item
        for item in fields_disk.read_all(parse(found.xml))
    ]


def adopted(
    found: FoundGuest, recorded: t.Mapping[str, t.Any], owner: Owner, host: GuestHost
) -> tuple[OwnedVolume, ...] | None:
    """Entries of its record, with those completed that an older version or another host wrote, where the guest alone
    uses their disks; None where there is nothing to complete.
    """
    entries = tuple(recorded.get("volumes") or ())
    paths = plan_disk_record.incomplete(entries, owner, making=recorded.get("making") or ())
    files = host.identities(paths) if paths and not recorded.get("moving") else {}
    telling = [path for path in files if plan_disk_record.tells(entries, path, files[path])]
    if not telling:
        return None
    in_use = {**host.users(telling, but=found.uuid), **plan_removal.shared(with_paths(found, host))}
    return plan_disk_record.adopted(entries, owner, {path: files[path] for path in telling}, in_use)
