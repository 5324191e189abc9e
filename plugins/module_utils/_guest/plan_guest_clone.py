# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A guest that is a clone: the stages that a clone has beside those of every guest."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain import (
    fields_disk,
    fields_domain,
    fields_record,
    xml_cloned,
    xml_summary,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_cloning, plan_guest_options
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_host_questions import GuestHost
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import Known
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

__all__ = ["check_files", "created", "existing"]


def created(wanted: GuestSpec, uuid: str, host: GuestHost) -> tuple[GuestSpec, str, FoundGuest]:
    """The options of a new clone with their defaults, the document to edit, and the original."""
    original = _original(wanted, host)
    base = xml_cloned.document(original.xml, name=wanted.name, uuid=uuid)
    if wanted.interfaces:
        plan_guest_options.check_links(f"create {wanted.name}", wanted.interfaces, *host.links())
    wanted = plan_guest_options.completed(
        plan_cloning.described(wanted, xml_cloned.disks(original.xml)), fields_domain.sizes(base)
    )
    return _with_seed(plan_guest_options.with_macs(wanted, uuid), base, uuid, original), base, original


def existing(
    wanted: GuestSpec, found: FoundGuest, recorded: t.Mapping[str, t.Any], known: Known, host: GuestHost
) -> tuple[GuestSpec, FoundGuest | None]:
    """The options of a clone that exists with their defaults; the original where disks are still to be copied."""
    original = None
    if recorded.get("copying"):
        if not wanted.clone_of:
            plan_cloning.refuse_half(wanted)
        original = _original(wanted, host)
        begun = {name: device.path for name, device in known.devices.items()}
        wanted = plan_cloning.resumed(wanted, original, xml_cloned.disks(original.xml), recorded, begun)
    wanted = plan_guest_options.with_macs(
        plan_guest_options.completed(wanted, fields_domain.sizes(found.xml)), found.uuid
    )
    if original or wanted.seed:
        wanted = _with_seed(wanted, found.xml, found.uuid, original)
    return wanted, original


def check_files(wanted: GuestSpec, original: FoundGuest, xml: str) -> None:
    """Refuse files that the clone would share with its original."""
    plan_cloning.check_files(wanted, *map(xml_cloned.own_files, (original.xml, xml)))


def _original(wanted: GuestSpec, host: GuestHost) -> FoundGuest:
    found = host.find(t.cast(str, wanted.clone_of))
    if found is None:
        return plan_cloning.checked(wanted, None, managed_state=(), recorded={}, seed=False)
    recorded, seed = fields_record.read(found.xml), "seed" in fields_disk.by_name(found.xml)
    return plan_cloning.checked(
        wanted, found, managed_state=host.managed_state(found.uuid), recorded=recorded, seed=seed
    )


def _with_seed(wanted: GuestSpec, base: str, uuid: str, original: FoundGuest | None) -> GuestSpec:
    """The guest with a seed for the interfaces of the clone."""
    nics = GuestSpec(wanted.name, fields={"interfaces": wanted.interfaces})
    macs = [nic.mac for nic in xml_summary.nics(parse(fields_domain.graft(base, nics).xml))]
    return plan_cloning.seeded(
        wanted, uuid=uuid, macs=macs, original=fields_record.read(original.xml) if original else None
    )
