# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The load of one host during placement. Pure."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import Guest, Host, Policy

Loads = t.Mapping[str, "Load"]


class Bundle(t.NamedTuple):
    """Guests of a batch whose `together` groups connect them; and one guest with the needs of all."""

    members: t.Sequence[Guest]
    guest: Guest
    conflict: str  # why no host can have all of them


def bundles(batch: t.Iterable[Guest]) -> dict[str, Bundle]:
    """The bundle of each `together` group."""
    found: dict[str, list[Guest]] = {}
    for guest in batch:
        lists = list({id(one): one for word in sorted(guest.together) if (one := found.get(word))}.values())
        members = lists[0] if lists else []
        members += [one for others in lists[1:] for one in others] + [guest]
        for word in guest.together.union(*(one.together for others in lists[1:] for one in others)):
            found[word] = members
    made = {id(members): _bundle(members) for members in found.values()}
    return {word: made[id(members)] for word, members in found.items()}


def _bundle(members: t.Sequence[Guest]) -> Bundle:
    hosts = sorted({one.host for one in members if one.host is not None})
    within = sorted({one.runs_within for one in members if one.runs_within is not None})
    clusters = [one.members for one in members if one.members]
    shared = functools.reduce(frozenset.intersection, clusters) if clusters else frozenset[str]()
    words = [word for one in members for word in one.apart]
    twice = sorted({word for word in words if words.count(word) > 1}) if words else []
    disks: dict[str, int] = {}
    for pool, needed in (each for one in members for each in one.disks):
        disks[pool] = disks.get(pool, 0) + needed

    fields = ("apart", "bridges", "networks", "pools", "thin_pools", "machines", "cpu_models", "platform", "groups")
    every: dict[str, t.Any] = {
        field: frozenset[str]().union(*(getattr(one, field) for one in members)) for field in fields
    }
    guest = Guest(
        members[0].name,
        sum(one.vcpus for one in members),
        sum(one.memory_mib for one in members),
        host=hosts[0] if hosts else None,
        disks=tuple(sorted(disks.items())),
        devices=tuple(sorted(device for one in members for device in one.devices)),
        versions=tuple(sorted({each for one in members for each in one.versions})),
        runs_within=within[0] if within else None,
        members=shared,
        refused=tuple(sorted((host, f"{one.name}: {why}") for one in members for host, why in one.refused)),
        **every,
    )
    conflicts = (
        f"they request {' and '.join(hosts)}" if hosts[1:] else "",
        f"they run in migration groups {' and '.join(map(repr, within))}" if within[1:] else "",
        "they run in different clusters" if clusters and not shared else "",
        f"they stay apart by group {', '.join(twice)}" if twice else "",
    )
    return Bundle(members, guest, ", and ".join(filter(None, conflicts)))


class Neighbours:
    """Where groups have guests, over all hosts: `together` by word, `apart` by word and failure domain."""

    def __init__(self, hosts: t.Iterable[Host] = (), batch: t.Iterable[Guest] = ()) -> None:
        self.together: dict[str, dict[str, int]] = {}
        self.apart: dict[tuple[str, str], int] = {}
        for host in hosts:
            for word in host.together:
                self._count(self.together.setdefault(word, {}), host.name, 1)
            for word in host.apart if host.domain else ():
                self._count(self.apart, (word, host.domain), 1)
        self.bundles = bundles(batch)

    @staticmethod
    def _count(counts: dict[t.Any, int], key: t.Any, sign: int) -> None:
        counts[key] = counts.get(key, 0) + sign
        if not counts[key]:
            del counts[key]

    def count(self, guest: Guest, host: Host, sign: int) -> None:
        """Add a guest to a host (sign 1), or remove it (sign -1)."""
        for word in guest.together:
            self._count(self.together.setdefault(word, {}), host.name, sign)
        for word in guest.apart if host.domain else ():
            self._count(self.apart, (word, host.domain), sign)


class Load:
    """The load of one host during placement."""

    def __init__(
        self, host: Host, policy: Policy, apart: t.Iterable[str] = (), neighbours: Neighbours | None = None
    ) -> None:
        self.host, self.neighbours = host, neighbours or Neighbours()
        self.cpu_capacity, self.memory_capacity = (
            host.cpus * policy.cpu_overcommit,
            host.memory_mib * policy.memory_overcommit,
        )
        self.vcpus, self.memory_mib = host.vcpus_used, host.memory_used_mib
        self.batch: dict[str, Guest] = {}
        self.apart = dict.fromkeys((*host.apart, *apart), 1)  # how many guests of each group
        self._disks: dict[str, int] = {}
        self._devices: dict[str, int] = {}

    @property
    def memory_left(self) -> float:
        """Free memory in MiB."""
        return self.memory_capacity - self.memory_mib

    @property
    def cpu_left(self) -> float:
        """Free vCPUs."""
        return self.cpu_capacity - self.vcpus

    def disk_left(self, pool: str) -> float | None:
        """Free MiB in a pool; None if unknown."""
        left = self.host.disk_left_mib.get(pool)
        return None if left is None else left - self._disks.get(self.host.filesystem(pool), 0)

    def devices_left(self, device: str) -> int | None:
        """The number of unused devices of that kind; None if the host has none."""
        free = (self.host.devices or {}).get(device)
        return None if free is None else free - self._devices.get(device, 0)

    def put(self, guest: Guest) -> None:
        """Add the guest to the load."""
        self._count(guest, 1)
        self.batch[guest.name] = guest

    def take(self, guest: Guest) -> None:
        """Remove the guest from the load."""
        self._count(guest, -1)
        del self.batch[guest.name]

    def _count(self, guest: Guest, sign: int) -> None:
        self.vcpus, self.memory_mib = self.vcpus + sign * guest.vcpus, self.memory_mib + sign * guest.memory_mib
        for word in guest.apart:
            self.apart[word] = self.apart.get(word, 0) + sign
            if not self.apart[word]:
                del self.apart[word]
        for pool, needed in guest.disks:
            place = self.host.filesystem(pool)
            self._disks[place] = self._disks.get(place, 0) + sign * needed
        for device in guest.devices:
            self._devices[device] = self._devices.get(device, 0) + sign
        if guest.apart or guest.together:
            self.neighbours.count(guest, self.host, sign)
