# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulates the loss of hosts: do their guests find room on the others? Pure.

The guests of the lost hosts are packed onto the remaining ones. Guests that are pinned to a lost
host end with it. A cluster is divided into failure domains, or else single hosts.
"""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text
from ansible_collections.corral.virt.plugins.module_utils._placement import plan_packing
from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import Guest, Host, Policy
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_host_load import bundles

Going = t.Sequence[tuple[Guest, str]]  # guests, and the hosts that they are to be on


@dataclasses.dataclass(frozen=True)
class _Loss:
    """Units that fail at once, failure domains or single hosts, and all of their hosts."""

    units: t.Sequence[str]
    hosts: frozenset[str]

    def text(self, homeless: t.Sequence[Guest]) -> str:
        """The message that the loss leaves these guests without a host."""
        one = homeless[0]
        more = f" and {len(homeless) - 1} more" if homeless[1:] else ""
        need = f"{one.vcpus} vcpus, {bytes_text(one.memory_mib * 1024**2)}"
        return f"the loss of {' and '.join(self.units)} would leave {one.name} ({need}){more} without a hypervisor"


def homeless_of_cluster(hosts: t.Sequence[Host], policy: Policy) -> dict[str, list[str]]:
    """By host, names of the guests that its cluster would start elsewhere when it dies, and for which no other member
    has room; only hosts with such guests.
    """
    found = {}
    by_name = {host.name: host for host in hosts}
    for host in hosts:
        protected = tuple(guest for guest in host.residents if guest.members)
        members = frozenset[str]().union(*(guest.members for guest in protected)) - {host.name}
        left = [by_name[name] for name in sorted(members) if name in by_name]
        lost = dataclasses.replace(host, residents=protected)
        homeless = _homeless([lost, *left], _Loss([host.name], frozenset({host.name})), policy) if protected else []
        if homeless:
            found[host.name] = [guest.name for guest in homeless]
    return found


def refusals(hosts: t.Sequence[Host], placed: Going, policy: Policy, losses: int) -> dict[str, str]:
    """Guests that cannot be added, with reasons: with them, a loss would leave a guest without a host.

    Earlier guests have precedence. Guests that stay together are added together, or not at all.
    """
    parties = _parties(placed)
    refused: dict[str, str] = {}
    filled = with_guests(hosts, placed)
    for loss in _losses(filled, losses):
        if _homeless(filled, loss, policy):
            found = _harmful(hosts, parties, loss, policy)
            refused.update((guest.name, why) for index, why in found.items() for guest, _host in parties[index])
            parties = [party for index, party in enumerate(parties) if index not in found]
            filled = with_guests(hosts, itertools.chain(*parties))
    return refused


def _parties(placed: Going) -> list[Going]:
    """Guests grouped with those that they stay together with, in the order of the first ones."""
    groups = bundles(guest for guest, _host in placed)
    found: dict[str, list[tuple[Guest, str]]] = {}
    for guest, host in placed:
        bundle = groups.get(min(guest.together, default=""))
        found.setdefault(bundle.guest.name if bundle else guest.name, []).append((guest, host))
    return list(found.values())


def _losses(hosts: t.Sequence[Host], losses: int) -> t.Iterator[_Loss]:
    units: dict[str, list[Host]] = {}
    for host in hosts:
        units.setdefault(host.domain or host.name, []).append(host)
    counted = [name for name in sorted(units) if any(host.residents for host in units[name])]
    for lost in itertools.combinations(counted, min(losses, len(counted))):
        yield _Loss(lost, frozenset(host.name for unit in lost for host in units[unit]))


def _homeless(hosts: t.Sequence[Host], loss: _Loss, policy: Policy) -> list[Guest]:
    """Guests without room on the remaining hosts, the largest first."""
    left = [host for host in hosts if host.name not in loss.hosts]
    lost = [each for host in hosts if host.name in loss.hosts for each in host.residents if each.host not in loss.hosts]
    placed = plan_packing.packed(lost, left, policy, apart={}, last=(), rounds=0)
    homeless = [guest for guest in lost if placed[guest.name].host is None]
    return sorted(homeless, key=lambda guest: (-guest.memory_mib, guest.name))


def _harmful(hosts: t.Sequence[Host], parties: t.Sequence[Going], loss: _Loss, policy: Policy) -> dict[int, str]:
    """Parties that must not be added because of this loss, by index, with the reason.

    Effects of the loss without any of them do not count, but room that is already short is not reduced.
    """
    homeless = _homeless(hosts, loss, policy)
    before = {guest.name for guest in homeless}
    scarce = _scarce(hosts, homeless, loss, policy)
    found = {
        index: loss.text([scarce[host]])
        for index, party in enumerate(parties)
        for _guest, host in party
        if host in scarce
    }
    kept: list[int] = []
    parts = [[index for index in range(len(parties)) if index not in found]]
    while parts:
        part = parts.pop()
        added = itertools.chain(*(parties[index] for index in (*kept, *part)))
        new = [one for one in _homeless(with_guests(hosts, added), loss, policy) if one.name not in before]
        if not new:
            kept += part
        elif len(part) == 1:
            found[part[0]] = loss.text(new)
        else:
            parts += [part[len(part) // 2 :], part[: len(part) // 2]]
    return found


def _scarce(hosts: t.Sequence[Host], homeless: t.Iterable[Guest], loss: _Loss, policy: Policy) -> dict[str, Guest]:
    """Hosts whose room is short for guests that they could have, with the first of these guests."""
    found: dict[str, Guest] = {}
    for host in hosts:
        emptied = dataclasses.replace(host, vcpus_used=0, memory_used_mib=0, disk_left_mib={})
        for guest in homeless if host.name not in loss.hosts else ():
            if plan_packing.packed([guest], [emptied], policy, apart={}, last=())[guest.name].host:
                found.setdefault(host.name, guest)
    return found


def with_guests(hosts: t.Sequence[Host], placed: t.Iterable[tuple[Guest, str]]) -> list[Host]:
    """The hosts with these guests added."""
    added: dict[str, list[Guest]] = {}
    for guest, name in placed:
        added.setdefault(name, []).append(guest)
    return [_filled(host, added[host.name]) if host.name in added else host for host in hosts]


def _filled(host: Host, guests: t.Sequence[Guest]) -> Host:
    disks = dict(host.disk_left_mib)
    for guest in guests:
        for pool, needed in guest.disks:
            for other in (each for each in disks if host.filesystem(each) == host.filesystem(pool)):
                disks[other] -= needed
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
