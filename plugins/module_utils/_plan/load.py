# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A host while guests are put on it. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._model.placement import Guest, Host, Policy

__all__ = ["Load", "Loads", "Neighbours"]

Loads = t.Mapping[str, "Load"]


class Neighbours:
    """Where the guests of each group are, over all hosts: `together` by word, `apart` by word and failure domain."""

    def __init__(self, hosts: t.Iterable[Host] = (), batch: t.Iterable[Guest] = ()) -> None:
        self.together: dict[str, dict[str, int]] = {}
        self.apart: dict[tuple[str, str], int] = {}
        for host in hosts:
            for word in host.together:
                self._count(self.together.setdefault(word, {}), host.name, 1)
            for word in host.apart if host.domain else ():
                self._count(self.apart, (word, host.domain), 1)
        self.needs: dict[str, tuple[int, int]] = {}  # memory and vCPUs of a group of the batch, all of it
        for guest in batch:
            for word in guest.together:
                memory, vcpus = self.needs.get(word, (0, 0))
                self.needs[word] = (memory + guest.memory_mib, vcpus + guest.vcpus)

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
    """A host while guests are put on it."""

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
        self._apart = {*host.apart, *apart}
        self._groups: dict[str, int] = {}  # of the batch
        self._disks: dict[str, int] = {}
        self._devices: dict[str, int] = {}

    @property
    def memory_left(self) -> float:
        """MiB."""
        return self.memory_capacity - self.memory_mib

    @property
    def cpu_left(self) -> float:
        """vCPUs."""
        return self.cpu_capacity - self.vcpus

    def disk_left(self, pool: str) -> float | None:
        """MiB; None where that is not known."""
        left = self.host.disk_left_mib.get(pool)
        return None if left is None else left - self._disks.get(pool, 0)

    def devices_left(self, device: str) -> int | None:
        """How many of that device no guest uses; None where the host has none."""
        free = (self.host.devices or {}).get(device)
        return None if free is None else free - self._devices.get(device, 0)

    def holds_apart(self, word: str) -> bool:
        """Whether a guest of that group is here."""
        return word in self._apart or bool(self._groups.get(word))

    def put(self, guest: Guest) -> None:
        """Count the guest in."""
        self._count(guest, 1)
        self.batch[guest.name] = guest

    def take(self, guest: Guest) -> None:
        """Count it out again."""
        self._count(guest, -1)
        del self.batch[guest.name]

    def _count(self, guest: Guest, sign: int) -> None:
        self.vcpus, self.memory_mib = self.vcpus + sign * guest.vcpus, self.memory_mib + sign * guest.memory_mib
        for word in guest.apart:
            self._groups[word] = self._groups.get(word, 0) + sign
        for pool, needed in guest.disks:
            self._disks[pool] = self._disks.get(pool, 0) + sign * needed
        for device in guest.devices:
            self._devices[device] = self._devices.get(device, 0) + sign
        if guest.apart or guest.together:
            self.neighbours.count(guest, self.host, sign)

    def cost(self, guest: Guest) -> float:
        """How much the guest raises the weighted sum of squared loads; memory counts twice as much as processors."""
        total, cpu_total, memory, vcpus = self.memory_capacity, self.cpu_capacity, guest.memory_mib, guest.vcpus
        return memory * (2 * self.memory_mib + memory) / total + 0.5 * total * vcpus * (2 * self.vcpus + vcpus) / (
            cpu_total * cpu_total
        )

    def skew(self, guest: Guest) -> float:
        """How much further apart the guest brings the host's shares of memory and of processors.

        Where both are scarce, neither is left over that nobody can use.
        """
        now = self.memory_mib / self.memory_capacity - self.vcpus / self.cpu_capacity
        then = now + guest.memory_mib / self.memory_capacity - guest.vcpus / self.cpu_capacity
        return self.memory_capacity * (then * then - now * now)
