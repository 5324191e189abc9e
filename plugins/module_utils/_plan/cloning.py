# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide what a copy of a guest has from it, and what it is told at its first boot. Pure."""

from __future__ import annotations

import dataclasses
import json
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._model.domain import (
    Disk,
    FoundGuest,
    GuestSpec,
    Original,
    Seed,
)
from ansible_collections.corral.virt.plugins.module_utils._plan import seed as seeds
from ansible_collections.corral.virt.plugins.module_utils._plan.problems import Problems

__all__ = ["check_files", "checked", "described"]


def checked(
    wanted: GuestSpec, original: FoundGuest | None, *, keeps: t.Sequence[str], memory: t.Mapping[str, t.Any]
) -> FoundGuest:
    """The guest to be copied; raises NotFound or Refused. `keeps` is what libvirt keeps of it, `memory` what we do."""
    what, name = f"cannot make {wanted.name} as a copy of {wanted.clone_of}", wanted.clone_of
    if original is None:
        raise NotFound(f"{what}: there is no guest {name} here; a copy is made on the host that has the guest")
    if original.active:
        remedy = f"shut it down first: ansible-playbook corral.virt.shutdown -e guest={name}"
        raise Refused(f"{what}: it is {original.state}, and writes to its disks while they are copied; {remedy}")
    if memory.get("moving"):
        raise Refused(
            f"{what}: it is being moved, or a move was interrupted; finish it with virt_migrate (playbook migrate)"
        )
    if memory.get("making"):
        raise Refused(f"{what}: an interrupted run left {', '.join(memory['making'])} incomplete; run that again first")
    if "managed_save" in keeps:
        remedy = f"start it and shut it down, or give that up: virsh managedsave-remove {name}"
        raise Refused(f"{what}: it was saved while it ran, and its disks are those of a running guest; {remedy}")
    return original


def described(wanted: GuestSpec, disks: t.Sequence[t.Mapping[str, t.Any]], macs: t.Sequence[str]) -> GuestSpec:
    """The copy with the disks that it gets copies of, and with a seed; raises BadInput for disks that cannot be copied.

    `disks` are those of the original, `macs` the addresses of the copy's interfaces.
    """
    said = {item.name: item for item in wanted.disks or ()}
    copied = [found for found in disks if _is_copied(found, said.get(found["name"]))]
    Problems(
        [
            f"cannot copy disk {found['name']} of {wanted.clone_of} for {wanted.name}: it is no file; give "
            f"{wanted.name} a disk of that name with source or image, or say state: absent of it"
            for found in copied
            if not _is_file(found)
        ]
    ).refuse()
    copies = {found["name"]: _copy(str(wanted.clone_of), found, said.get(found["name"])) for found in copied}
    wanted = wanted.with_fields(
        disks=tuple({**copies, **{name: item for name, item in said.items() if name not in copies}}.values())
    )
    return dataclasses.replace(wanted, seed=_seed(wanted, macs))


def check_files(wanted: GuestSpec, before: t.Collection[str], after: t.Collection[str]) -> None:
    """Raises Refused where the copy (`after`) would write files of its original (`before`)."""
    both = sorted(set(before) & set(after))
    if both:
        raise Refused(
            f"cannot make {wanted.name} as a copy of {wanted.clone_of}: the devices of both would use "
            f"{', '.join(both)}; give those of {wanted.name} other paths, with their options or with xml"
        )


def _is_copied(found: t.Mapping[str, t.Any], item: Disk | None) -> bool:
    """Whether the copy needs one of its own; a medium, and what several guests may have, both have."""
    if item and (
        item.state == "absent" or item.image or any(item.fields.get(way) for way in ("source", "volume", "url"))
    ):
        return False
    shared = found.get("readonly") or found.get("shareable") or found.get("device", "disk") in ("cdrom", "floppy")
    return found["name"] != "seed" and not shared


def _is_file(found: t.Mapping[str, t.Any]) -> bool:
    path = str(found.get("source") or "")
    return (
        path.startswith("/")
        and not path.startswith("/dev/")
        and not found.get("url")
        and found.get("device", "disk") == "disk"
    )


def _copy(guest: str, found: t.Mapping[str, t.Any], item: Disk | None) -> Disk:
    form = found.get("format") or "raw"
    item = item or Disk(found["name"])
    fields = {"format": form, **item.fields}
    return dataclasses.replace(item, fields=fields, copy_of=Original(guest, str(found["source"]), form))


def _seed(wanted: GuestSpec, macs: t.Sequence[str]) -> Seed:
    """A copy without a seed would be its original inside: the same keys, machine ID, and addresses."""
    seed = wanted.seed or seeds.seed({}, guest=wanted.name)
    # By its MAC: until it has another machine ID, a DHCP server would know it by that of its original.
    nics = {
        f"nic{number}": {"match": {"macaddress": mac}, "dhcp4": True, "dhcp-identifier": "mac"}
        for number, mac in enumerate(macs)
    }
    network = json.dumps({"version": 2, "ethernets": nics}, sort_keys=True) if nics else None
    return dataclasses.replace(seed, network_config=seed.network_config or network, of_a_copy=True)
