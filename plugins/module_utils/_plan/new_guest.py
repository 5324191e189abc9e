# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What a guest is made with where the user is silent, and what its host must have. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._model.defaults import BRIDGE
from ansible_collections.corral.virt.plugins.module_utils._model.domain import Disk, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._model.item import Item

__all__ = ["check_links", "completed", "described", "equipped", "machine", "virt_type", "with_image"]

_NEEDED = {"vcpus.current": "vcpus", "memory.current_kib": "memory"}
_FOLLOW = (("vcpus.current", "vcpus.maximum"), ("memory.current_kib", "memory.maximum_kib"))
_PREFERRED = ("kvm", "qemu", "test")
_NIC = Item("eth0", fields={"type": "bridge", "bridge": BRIDGE})  # of the seeds' default profile, as the one disk is


def described(wanted: GuestSpec) -> GuestSpec:
    """What runs at first follows the maximum, and that the cells of NUMA.

    Raises BadInput where nobody says how large the guest is.
    """
    cells = [item.fields["memory_kib"] for item in wanted.fields.get("numa.cells", ()) if "memory_kib" in item.fields]
    fields = {**({"memory.maximum_kib": sum(cells)} if cells else {}), **wanted.fields}
    follows = {current: fields[maximum] for current, maximum in _FOLLOW if maximum in fields}
    wanted = wanted.with_fields(**{**follows, **fields})
    missing = [option for field, option in _NEEDED.items() if wanted.fields.get(field) is None]
    if missing:
        raise BadInput(
            f"cannot create {wanted.name}: there is no such guest here, and creating it requires "
            f"{' and '.join(missing)}"
        )
    return wanted


def completed(wanted: GuestSpec, found: t.Mapping[str, t.Any]) -> GuestSpec:
    """Let a maximum follow its current value where the user said only the latter.

    A guest without room to grow (current = maximum) keeps having none; one with room keeps its maximum unless it is
    exceeded. A current value told by its name leaves the maximum alone where it fits below it.
    """
    fields = dict(wanted.fields)
    for current, maximum in (("vcpus.current", "vcpus.maximum"), ("memory.current_kib", "memory.maximum_kib")):
        value, limit = fields.get(current), fields.get(maximum)
        if value is None:
            # A lowered maximum takes the current value with it.
            if limit is not None and (found.get(current) or limit) > limit:
                fields[current] = limit
        elif limit is None:
            stays = (found.get(current) or 0) < (found.get(maximum) or 0) or current.partition(".")[
                0
            ] not in wanted.as_numbers
            fields[maximum] = max(value, found.get(maximum) or 0) if stays else value
    return wanted.with_fields(**fields)


def virt_type(wanted: GuestSpec, by_arch: t.Mapping[str, t.Sequence[str]], arch: str) -> str:
    """How it is run: the best that the host offers; raises Refused for what it does not."""
    offered = by_arch.get(arch) or [kind for kinds in by_arch.values() for kind in kinds]
    if wanted.virt_type == "auto":
        return next((kind for kind in _PREFERRED if kind in offered), offered[0] if offered else "qemu")
    if wanted.virt_type not in offered:
        raise Refused(
            f"cannot create {wanted.name}: this host offers {', '.join(offered)}, not {wanted.virt_type}; set "
            "virt_type: auto"
        )
    return wanted.virt_type


def machine(wanted: GuestSpec, offered: t.Collection[str]) -> str:
    """The machine type; empty for libvirt's choice."""
    return str(wanted.fields.get("machine") or ("q35" if "q35" in offered else ""))


def equipped(wanted: GuestSpec) -> GuestSpec:
    """One `system` disk, and `eth0` on `br0`, where nothing is said of them."""
    return wanted.with_fields(
        interfaces=(_NIC,) if wanted.interfaces is None else wanted.interfaces,
        disks=(Disk("system", image=wanted.image),) if wanted.disks is None else wanted.disks,
    )


def check_links(what: str, interfaces: t.Sequence[Item], bridges: set[str] | None, networks: set[str]) -> None:
    """Raise NotFound where a guest is to be plugged into what is not there: it would be defined and then fail to
    start.
    """
    wanted = [
        (item.name, kind, item.fields[kind])
        for item in interfaces
        for kind in ("bridge", "network")
        if item.fields.get(kind)
    ]
    there = {"bridge": bridges, "network": networks}
    known = [(name, kind, place, there[kind]) for name, kind, place in wanted]
    missing = {
        f"{kind} {place} (interface {name})": kind
        for name, kind, place, those in known
        if those is not None and place not in those
    }
    if missing:
        makes = {"bridge": "create it with role corral.virt.bridge", "network": "create it with virt_network"}
        remedy = ", ".join(makes[kind] for kind in dict.fromkeys(missing.values()))
        raise NotFound(f"cannot {what}: this host has no {' and no '.join(missing)}; {remedy}, or name one that exists")


def with_image(guest: GuestSpec) -> GuestSpec:
    """`image` is short for the image of the first disk; raises BadInput where it means none."""
    disks = list(guest.disks or ())
    first = next((i for i, disk in enumerate(disks) if disk.state == "present" and _has_image(disk)), None)
    if guest.image and disks:
        if first is None:
            raise BadInput(
                f"image of {guest.name}: none of its disks is created, so none is created from it; omit it, or list a "
                "disk for it"
            )
        if disks[first].image not in (None, guest.image):
            raise BadInput(
                f"image of {guest.name}: disk {disks[first].name} has its own image, {disks[first].image}; omit one"
            )
        disks[first] = dataclasses.replace(disks[first], image=guest.image)
    bare = [disk.name for disk in disks if disk.clone and not disk.image]
    if bare:
        raise BadInput(
            [f"disk {name} of {guest.name}: clone says how it is created from image; set image too" for name in bare]
        )
    return guest.with_fields(disks=tuple(disks)) if disks else guest


def _has_image(disk: Disk) -> bool:
    return not disk.places and disk.fields.get("device", "disk") == "disk"
