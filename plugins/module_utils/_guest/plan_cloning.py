# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what a clone takes from its original, and the seed for its first boot. Pure."""

from __future__ import annotations

import dataclasses
import json
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.output import agree
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems
from ansible_collections.corral.virt.plugins.module_utils._domain import plan_snapshot_names
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import (
    Disk,
    FoundGuest,
    GuestSpec,
    Original,
    OriginalDisk,
)
from ansible_collections.corral.virt.plugins.module_utils._seed import plan_seed

Recorded = t.Mapping[str, t.Any]  # what we record with a guest


def checked(
    wanted: GuestSpec, original: FoundGuest | None, *, managed_state: t.Sequence[str], recorded: Recorded, seed: bool
) -> FoundGuest:
    """The guest to copy; raises NotFound or Refused.

    `managed_state` is what libvirt keeps of it, `recorded` our record of it, `seed` True if it has a seed disk.
    """
    what, name = f"cannot create {wanted.name} as a copy of {wanted.clone_of}", wanted.clone_of
    if original is None:
        raise NotFound(f"{what}: there is no guest {name} here; a copy is created on the host that has the guest")
    if original.active:
        remedy = f"shut it down first: ansible-playbook corral.virt.shutdown -e guest={name}"
        raise Refused(
            f"{what}: {name} is {original.state}, and would write to its disks while they are copied; {remedy}"
        )
    if recorded.get("moving"):
        remedy = "finish it with virt_migrate (playbook migrate)"
        raise Refused(f"{what}: the migration of {name} is in progress or was interrupted; {remedy}")
    if recorded.get("making"):
        left = ", ".join(recorded["making"])
        raise Refused(f"{what}: an interrupted run left {left} incomplete; repeat it first")
    if "managed_save" in managed_state:
        remedy = f"start and shut down {name}, or discard the saved state: virsh managedsave-remove {name}"
        raise Refused(f"{what}: {name} has a managed save, so its disks are in the state of a running guest; {remedy}")
    if recorded.get("seed") and not seed:
        raise Refused(
            f"{what}: cloud-init is disabled in {name}, which was created with cloud_init.method: virt_customize, so "
            "the copy would keep its host keys and machine ID; create it from the image of that guest instead"
        )
    return original


def without_snapshots(original: str, clone: str, snapshots: t.Sequence[str]) -> list[str]:
    """A note on snapshots that stay with the original: the copy has one file for each disk."""
    found = agree(len(snapshots), "is", "are")
    return [f"{plan_snapshot_names.named(snapshots)} of {original} {found} not copied to {clone}"]


def refuse_half(wanted: GuestSpec) -> t.NoReturn:
    """Raise Refused: a half-finished clone can only be finished as the same clone."""
    raise Refused(
        f"cannot change {wanted.name}: an interrupted run was creating it as a copy of another guest; set clone_of "
        f"again to finish it, or remove it: ansible-playbook corral.virt.purge -e guest={wanted.name}"
    )


def resumed(
    wanted: GuestSpec,
    original: FoundGuest,
    disks: t.Sequence[OriginalDisk],
    recorded: Recorded,
    begun: t.Mapping[str, str],
) -> GuestSpec:
    """The clone that an interrupted run began, with the disks still to be copied; raises Refused.

    `recorded` is our record of the clone, `begun` the paths of its disks by name.
    """
    again = f"remove {wanted.name}, and run this again"
    if recorded.get("copy_of") != original.uuid:
        raise Refused(
            f"cannot finish {wanted.name} as a copy of {wanted.clone_of}: an interrupted run copied the guest with "
            f"UUID {recorded.get('copy_of')}, and {wanted.clone_of} has UUID {original.uuid}; {again}"
        )
    copying = recorded["copying"]
    wanted = described(wanted, disks, only={name for name, path in begun.items() if path in copying})
    missing = set(copying) - {begun.get(disk.name) for disk in wanted.disks or () if disk.copy_of}
    if missing:
        raise Refused(
            f"cannot finish {wanted.name}: {', '.join(sorted(missing))} {agree(len(missing), 'is', 'are')} incomplete, "
            f"and {wanted.clone_of} no longer has the disk of which "
            f"{agree(len(missing), 'it is a copy', 'they are copies')}; {again}"
        )
    return wanted


def described(
    wanted: GuestSpec, disks: t.Sequence[OriginalDisk], *, only: t.Collection[str] | None = None
) -> GuestSpec:
    """The clone with copies of the original's `disks`, limited to the names in `only`.

    Raises BadInput for disks that cannot be copied.
    """
    listed = {item.name: item for item in wanted.disks or ()}
    stated = {one.name: listed.get(one.name) or listed.get(one.target) for one in disks}
    copied = [one for one in disks if not one.shared and not _replaced(stated[one.name])]
    copied = [one for one in copied if only is None or one.name in only]
    Problems(
        f"cannot copy disk {one.name} of {wanted.clone_of} for {wanted.name}: {one.obstacle}; list a disk of that name "
        f"for {wanted.name} with source, image or state: absent"
        for one in copied
        if one.obstacle
    ).refuse()
    copies = [_copy(str(wanted.clone_of), one, stated[one.name]) for one in copied]
    names = {copy.name for copy in copies}
    return wanted.with_fields(disks=(*copies, *(item for item in wanted.disks or () if item.name not in names)))


def seeded(wanted: GuestSpec, *, uuid: str, macs: t.Sequence[str], original: Recorded | None = None) -> GuestSpec:
    """The clone with its seed: without one it would keep the keys, machine ID and addresses of its original.

    `macs` are those of the clone, `original` is our record of a guest that is being copied now. Raises BadInput.
    """
    seed = wanted.seed or plan_seed.seed({}, guest=wanted.name)
    instance_id = seed.meta_data.get("instance-id")
    if instance_id and original and instance_id == original.get("instance_id"):
        raise BadInput(
            f"cloud_init.meta_data of {wanted.name}: {wanted.clone_of} has the instance-id {instance_id}, so "
            "cloud-init would do nothing; omit it, or set another one"
        )
    if str((seed.config.get("vendor_data") or {}).get("enabled")).lower() in plan_seed.OFF:
        raise BadInput(
            f"cloud_init.user_data of {wanted.name}: vendor_data.enabled: false disables what gives a copy its own "
            "machine ID; omit it"
        )
    # By its MAC: until it has another machine ID, a DHCP server would know it by that of its original.
    nic = {"dhcp4": True, "dhcp-identifier": "mac"}
    nics = {f"nic{number}": {"match": {"macaddress": mac}, **nic} for number, mac in enumerate(macs)}
    network = json.dumps({"version": 2, "ethernets": nics}, sort_keys=True) if nics else None
    seed = dataclasses.replace(seed, network_config=seed.network_config or network, of_a_copy=uuid)
    return dataclasses.replace(wanted, seed=seed)


def check_files(wanted: GuestSpec, before: t.Collection[str], after: t.Collection[str]) -> None:
    """Raise Refused if the clone (`after`) would write files of its original (`before`)."""
    both = sorted(set(before) & set(after))
    if both:
        raise Refused(
            f"cannot create {wanted.name} as a copy of {wanted.clone_of}: devices of both would use {', '.join(both)}; "
            f"set others for {wanted.name}, with their options or with xml"
        )


def _replaced(item: Disk | None) -> bool:
    """True if the user names another disk for the clone, or none."""
    if item is None:
        return False
    return item.state == "absent" or bool(item.image) or bool(item.places)


def _copy(guest: str, found: OriginalDisk, item: Disk | None) -> Disk:
    item = item or Disk(found.name)
    fields = {"format": found.format, **item.fields}
    return dataclasses.replace(item, fields=fields, copy_of=Original(guest, found.path, found.format))
