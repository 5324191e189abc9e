# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A host while guests are put on it, and why a guest fits on none. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._model.output import some_of
from ansible_collections.corral.virt.plugins.module_utils._model.placement import Guest, Host, Policy
from ansible_collections.corral.virt.plugins.module_utils._plan.rules import RULES, Neighbours, Reason, mib

__all__ = ["Load", "Loads", "refusal"]

_FEW = 8  # hosts whose reasons are told one by one
_NAMED = 3

Loads = t.Mapping[str, "Load"]


class Load:
    """A host while guests are put on it."""

    def __init__(
        self, host: Host, policy: Policy, apart: t.Iterable[str] = (), neighbours: Neighbours | None = None
    ) -> None:
        self.host, self.neighbours = host, neighbours or Neighbours()
        self.cpu_room, self.memory_room = host.cpus * policy.cpu_overcommit, host.memory_mib * policy.memory_overcommit
        self.vcpus, self.memory_mib = host.vcpus_used, host.memory_used_mib
        self.batch: dict[str, Guest] = {}
        self._apart = {*host.apart, *apart}
        self._groups: dict[str, int] = {}  # of the batch
        self._disks: dict[str, int] = {}
        self._devices: dict[str, int] = {}

    @property
    def memory_left(self) -> float:
        """MiB."""
        return self.memory_room - self.memory_mib

    @property
    def cpu_left(self) -> float:
        """vCPUs."""
        return self.cpu_room - self.vcpus

    def against(self, guest: Guest) -> str | None:
        """Why the guest cannot go here; None when it can."""
        reason = self.reason(guest)
        return reason and reason[1]

    def reason(self, guest: Guest) -> Reason | None:
        """The kind of what is against it, and the reason in words."""
        host = self.host
        if host.maintenance is not None:
            return "is in maintenance", f"is in maintenance: {host.maintenance}"
        if why := self.namesake(guest):
            return "has another guest of that name", why
        return self.lack(guest)

    def namesake(self, guest: Guest) -> str | None:
        """Whether another guest has its name here."""
        there = self.host.guests.get(guest.name) if guest.uuid else None
        if there and there.uuid != guest.uuid:
            return f"has another guest named {guest.name} (UUID {there.uuid}); rename one of them (virsh domrename)"
        return None

    def lack(self, guest: Guest) -> Reason | None:
        """What is against any guest with these needs."""
        for rule in RULES:
            if reason := rule(self, guest):
                return reason
        return None

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
        room, cpu_room, memory, vcpus = self.memory_room, self.cpu_room, guest.memory_mib, guest.vcpus
        return memory * (2 * self.memory_mib + memory) / room + 0.5 * room * vcpus * (2 * self.vcpus + vcpus) / (
            cpu_room * cpu_room
        )

    def skew(self, guest: Guest) -> float:
        """How much further apart the guest brings the host's shares of memory and of processors.

        Where both are scarce, neither is left over that nobody can use.
        """
        now = self.memory_mib / self.memory_room - self.vcpus / self.cpu_room
        then = now + guest.memory_mib / self.memory_room - guest.vcpus / self.cpu_room
        return self.memory_room * (then * then - now * now)


def refusal(guest: Guest, loads: Loads) -> str:
    """Why no host takes the guest: host by host where these are few, else by what they lack."""
    reasons = {
        name: ("another host is requested", f"the guest requests {guest.host}")
        if guest.host not in (None, name)
        else t.cast("tuple[str, str]", load.reason(guest))
        for name, load in sorted(loads.items())
    }
    need = f"it needs {guest.vcpus} vcpus and {mib(guest.memory_mib)}, and no hypervisor fits"
    if len(reasons) <= _FEW:
        return f"{need}: {'; '.join(f'{name}: {why}' for name, (_kind, why) in reasons.items()) or 'there is none'}"
    kinds: dict[str, list[str]] = {}
    for name, (kind, _why) in reasons.items():
        kinds.setdefault(kind, []).append(name)
    groups = [_group(kind, names, loads) for kind, names in sorted(kinds.items(), key=lambda each: -len(each[1]))]
    return f"{need}, of {len(reasons)}: {'; '.join(groups)}"


def _group(kind: str, names: t.Sequence[str], loads: Loads) -> str:
    """`96 hosts: lacks memory (most left: 5.4 GiB on h000)`."""
    some = some_of(names, _NAMED)
    if kind == "lacks memory":
        name = max(names, key=lambda each: (loads[each].memory_left, each))
        return f"{some}: {kind} (most left: {mib(loads[name].memory_left)} on {name})"
    if kind == "lacks vcpus":
        name = max(names, key=lambda each: (loads[each].cpu_left, each))
        return f"{some}: {kind} (most left: {max(0, int(loads[name].cpu_left))} on {name})"
    return f"{some}: {kind}"
