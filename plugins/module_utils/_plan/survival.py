# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Whether the guests of hosts that fail find room on the others. Pure.

The loss is simulated: the guests of the lost hosts are packed onto what is left. Guests that are pinned to a lost host
end with it. A cluster is divided into what fails as a whole: failure domains, or else single hosts.
"""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._model.placement import Guest, Host, Policy
from ansible_collections.corral.virt.plugins.module_utils._plan import packing
from ansible_collections.corral.virt.plugins.module_utils._units import bytes_text

__all__ = ["most", "unsurvived", "with_guests"]


def unsurvived(hosts: t.Sequence[Host], policy: Policy, losses: int) -> str | None:
    """The first loss of that many units after which a guest has no host, in words; None where there is none."""
    units: dict[str, list[str]] = {}
    for host in hosts:
        units.setdefault(host.domain or host.name, []).append(host.name)
    counted = [name for name in sorted(units) if any(host.residents for host in hosts if host.name in units[name])]
    for lost in itertools.combinations(counted, min(losses, len(counted))):
        gone = {name for unit in lost for name in units[unit]}
        homeless = _homeless(hosts, gone, policy)
        if homeless:
            one = homeless[0]
            more = f" and {len(homeless) - 1} more" if homeless[1:] else ""
            need = f"{one.vcpus} vcpus, {bytes_text(one.memory_mib * 1024**2)}"
            return f"the loss of {' and '.join(lost)} would leave {one.name} ({need}){more} without a hypervisor"
    return None


def _homeless(hosts: t.Sequence[Host], gone: t.Collection[str], policy: Policy) -> list[Guest]:
    left = [host for host in hosts if host.name not in gone]
    homeless = [guest for host in hosts if host.name in gone for guest in host.residents if guest.host not in gone]
    placed = packing.packed(homeless, left, policy, apart={}, last=())
    return sorted(
        (guest for guest in homeless if placed[guest.name].host is None),
        key=lambda guest: (-guest.memory_mib, guest.name),
    )


def most(
    hosts: t.Sequence[Host], placed: t.Sequence[tuple[Guest, str]], policy: Policy, losses: int
) -> tuple[int, str | None]:
    """How many of these guests, from the first, can be added so that such losses are survived, and what is against
    more.
    """
    why = unsurvived(with_guests(hosts, placed), policy, losses)
    if why is None:
        return len(placed), None
    low, high = 0, len(placed)  # the largest number that is known to do, and the smallest that is known not to
    while high - low > 1:
        middle = (low + high) // 2
        found = unsurvived(with_guests(hosts, placed[:middle]), policy, losses)
        low, high, why = (middle, high, why) if found is None else (low, middle, found)
    return low, why


def with_guests(hosts: t.Sequence[Host], placed: t.Iterable[tuple[Guest, str]]) -> list[Host]:
    """The hosts once these guests are there."""
    added: dict[str, list[Guest]] = {}
    for guest, name in placed:
        added.setdefault(name, []).append(guest)
    return [_filled(host, added[host.name]) if host.name in added else host for host in hosts]


def _filled(host: Host, guests: t.Sequence[Guest]) -> Host:
    disks = dict(host.disk_left_mib)
    for guest in guests:
        for pool, needed in guest.disks:
            if pool in disks:
                disks[pool] -= needed
    devices = dict(host.devices or {})
    for device in (each for guest in guests for each in guest.devices if each in devices):
        devices[device] -= 1
    return dataclasses.replace(
        host,
        vcpus_used=host.vcpus_used + sum(guest.vcpus for guest in guests),
        memory_used_mib=host.memory_used_mib + sum(guest.memory_mib for guest in guests),
        residents=(*host.residents, *guests),
        apart=host.apart.union(*(guest.apart for guest in guests)),
        together=host.together.union(*(guest.together for guest in guests)),
        disk_left_mib=disks,
        devices=None if host.devices is None else devices,
    )
