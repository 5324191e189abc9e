# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Choose a hypervisor for each of many guests at once. Pure; milliseconds for thousands.

Big guests first (by their dominant share of the biggest host), each to the host where it raises the sum of squared
loads least; a guest that fits nowhere may push one smaller guest of the same batch aside. Guests that exist stay where
they are, except on hosts to be left.
"""

from __future__ import annotations

import dataclasses
import typing as t

__all__ = ["ACTIVE", "Copy", "Guest", "Host", "Load", "Placement", "Policy", "place"]


ACTIVE = ("running", "paused")  # states in which a guest holds memory


@dataclasses.dataclass(frozen=True)
class Guest:
    """What a guest needs. `host` pins it; guests of the same `apart` group never share a host."""

    name: str
    vcpus: int
    memory_mib: int
    host: str | None = None
    apart: str | None = None
    bridges: frozenset[str] = frozenset()
    pools: frozenset[str] = frozenset()
    uuid: str | None = None  # None: not made yet, so known by its name


class Copy(t.NamedTuple):
    """A guest as one host has it."""

    state: str
    uuid: str | None = None
    moving: str | None = None  # to which host; only while the record of a migration stands
    moving_from: str | None = None  # UUID of the host it comes from

    @property
    def active(self) -> bool:
        """Whether it holds memory."""
        return self.state in ACTIVE


@dataclasses.dataclass(frozen=True)
class Host:
    """What a hypervisor has. `guests` are those that exist there, by name.

    `memory_mib` is what guests may use in all.
    """

    name: str
    cpus: int
    memory_mib: int
    vcpus_used: int = 0
    memory_used_mib: int = 0
    guests: t.Mapping[str, Copy] = dataclasses.field(default_factory=dict)
    apart: frozenset[str] = frozenset()  # groups that guests there belong to
    bridges: frozenset[str] | None = None  # None: not known
    pools: frozenset[str] | None = None
    maintenance: str | None = None  # why it takes no guests


@dataclasses.dataclass(frozen=True)
class Policy:
    """How much of a host may be promised: vCPUs per processor, and the share of its memory."""

    cpu_overcommit: float = 4.0
    memory_overcommit: float = 1.0


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where a guest goes and why.

    `host` is None when it is refused, or deferred because hosts that may have it were not reached.
    """

    guest: str
    host: str | None
    why: str
    exists: bool = False
    deferred: bool = False


class Load:
    """A host while guests are put on it."""

    def __init__(self, host: Host, policy: Policy) -> None:
        self.host = host
        self.cpu_room, self.memory_room = host.cpus * policy.cpu_overcommit, host.memory_mib * policy.memory_overcommit
        self.vcpus, self.memory_mib = host.vcpus_used, host.memory_used_mib
        self.batch: dict[str, Guest] = {}
        self.apart = set(host.apart)

    def against(self, guest: Guest) -> str | None:
        """Why the guest cannot go here; None when it can."""
        host = self.host
        if host.maintenance is not None:
            return f"is in maintenance: {host.maintenance}"
        namesake = host.guests.get(guest.name)
        if namesake and guest.uuid and namesake.uuid != guest.uuid:
            return f"has another guest named {guest.name} (UUID {namesake.uuid}); rename one of them (virsh domrename)"
        if host.bridges is not None and guest.bridges - host.bridges:
            return f"has no bridge {', '.join(sorted(guest.bridges - host.bridges))}"
        if host.pools is not None and guest.pools - host.pools:
            return f"has no active storage pool {', '.join(sorted(guest.pools - host.pools))}"
        if self.memory_mib + guest.memory_mib > self.memory_room:
            return f"{max(0, int(self.memory_room - self.memory_mib))} MiB of memory left"
        if self.vcpus + guest.vcpus > self.cpu_room:
            return f"{max(0, int(self.cpu_room - self.vcpus))} vcpus left"
        if guest.apart and (
            guest.apart in self.apart or any(other.apart == guest.apart for other in self.batch.values())
        ):
            return f"has a guest of group {guest.apart}, whose guests stay apart"
        return None

    def put(self, guest: Guest) -> None:
        """Count the guest in."""
        self.vcpus, self.memory_mib = self.vcpus + guest.vcpus, self.memory_mib + guest.memory_mib
        self.batch[guest.name] = guest

    def take(self, guest: Guest) -> None:
        """Count it out again."""
        self.vcpus, self.memory_mib = self.vcpus - guest.vcpus, self.memory_mib - guest.memory_mib
        del self.batch[guest.name]

    def cost(self, guest: Guest) -> float:
        """How much the guest raises the weighted sum of squared loads; memory counts twice as much as processors."""
        memory, cpu = self.memory_mib / self.memory_room, self.vcpus / self.cpu_room
        memory_after = (self.memory_mib + guest.memory_mib) / self.memory_room
        cpu_after = (self.vcpus + guest.vcpus) / self.cpu_room
        return self.memory_room * (memory_after**2 - memory**2) + 0.5 * self.memory_room * (cpu_after**2 - cpu**2)


def place(
    guests: t.Sequence[Guest],
    hosts: t.Sequence[Host],
    *,
    unreached: t.Sequence[str] = (),
    policy: Policy | None = None,
    leave: t.Collection[str] = (),
) -> list[Placement]:
    """A placement for every guest, in the order given.

    `unreached` hosts may hold guests that were not seen; guests that exist on hosts to `leave` are placed anew, those
    that are off last.
    """
    policy = policy or Policy()
    staying = [host for host in hosts if host.name not in leave]
    loads = {host.name: Load(host, policy) for host in staying if host.cpus > 0 and host.memory_mib > 0}
    done: dict[str, Placement] = {}
    new: list[Guest] = []
    for guest in guests:
        known = _known(guest, hosts, unreached, leave)
        if known is None:
            new.append(guest)
        else:
            done[guest.name] = known
            if known.host in loads and guest.apart:
                loads[known.host].apart.add(guest.apart)
    biggest_memory = max((load.memory_room for load in loads.values()), default=1.0)
    biggest_cpu = max((load.cpu_room for load in loads.values()), default=1.0)
    off = {name for host in hosts for name in host.guests} - {
        name for host in hosts for name, copy in host.guests.items() if copy.active
    }
    for guest in sorted(
        new, key=lambda g: (g.name in off, -max(g.memory_mib / biggest_memory, g.vcpus / biggest_cpu), g.name)
    ):
        done[guest.name] = _choose(guest, loads, done)
    return [done[guest.name] for guest in guests]


def _known(
    guest: Guest, hosts: t.Sequence[Host], unreached: t.Sequence[str], leave: t.Collection[str]
) -> Placement | None:
    """What is settled before any choice: it exists, it asks for an unknown host, or it may exist where we cannot
    look.
    """
    copies = {host.name: host.guests[guest.name] for host in hosts if guest.name in host.guests}
    copies = {name: copy for name, copy in copies.items() if guest.uuid in (None, copy.uuid)}
    holders = [host for host in hosts if host.name in copies]
    running = [host for host in holders if copies[host.name].active]
    if len(running) > 1 or any(copy.moving for copy in copies.values()):
        return _in_two_places(guest.name, copies, leave, {host.name for host in hosts})
    if holders and not running and unreached:
        # What is here may be a left-over of what runs there.
        here, there = " and ".join(sorted(host.name for host in holders)), ", ".join(sorted(unreached))
        why = f"{there} could not be reached and may have it running, and it is shut off on {here}; "
        why += f"bring {there} back online, or remove it from the inventory; {_dead(unreached)}"
        return Placement(guest.name, None, why, deferred=True)
    if holders:
        host = (running or holders)[0].name
        if host in leave:
            return None
        why = (
            "it is there"
            if guest.host in (None, host)
            else f"it is there; migrate it to {guest.host} with playbook migrate"
        )
        return Placement(guest.name, host, why, exists=True)
    known = sorted([host.name for host in hosts] + list(unreached))
    if guest.host is not None and guest.host not in known:
        return Placement(guest.name, None, f"there is no hypervisor {guest.host}; choose one of {', '.join(known)}")
    if unreached:
        # Making it here could make it twice.
        there = ", ".join(sorted(unreached))
        why = (
            f"{there} could not be reached and may have it; bring that host back online, or remove it from the "
            f"inventory; {_dead(unreached)}"
        )
        return Placement(guest.name, None, why, deferred=True)
    return None


def _dead(hosts: t.Sequence[str]) -> str:
    return f"where it is dead: -e gone={','.join(sorted(hosts))}"


def _in_two_places(
    name: str, copies: t.Mapping[str, Copy], leave: t.Collection[str], hosts: t.Collection[str]
) -> Placement:
    """A guest on its way has a copy on both hosts, of which at most one runs; only two that run are an error."""
    running = {where: copy for where, copy in copies.items() if copy.state == "running"}
    names = " and ".join(running)
    if len({copy.uuid for copy in running.values()}) > 1:
        copies_text = ", ".join(f"UUID {copy.uuid} on {where}" for where, copy in running.items())
        return Placement(
            name, None, f"{len(running)} guests have this name ({copies_text}); rename one of them (virsh domrename)"
        )
    if len(running) > 1:
        return Placement(
            name,
            None,
            f"it runs on {names} at once; nothing was touched: compare both copies, then destroy the wrong one",
        )
    source, dest = next(
        ((where, copy.moving) for where, copy in copies.items() if copy.moving and copy.moving != where), ("", None)
    )
    dest = dest or next((copy.moving for copy in copies.values() if copy.moving), None)
    if source in leave and dest in hosts and dest not in leave:
        return Placement(name, dest, f"it is being migrated to {dest}")
    if dest:
        remedy = f"run again when it is there, or finish it (playbook migrate -e guest={name} -e to={dest})"
        return Placement(name, None, f"it is being migrated to {dest}; {remedy}", deferred=True)
    copies_text = " and ".join(f"{copy.state} on {where}" for where, copy in copies.items())
    why = (
        f"it is {copies_text}, as during a migration; run again when it is on one host, or compare the copies if none "
        "is in progress"
    )
    return Placement(name, None, why, deferred=True)


def _choose(guest: Guest, loads: t.Mapping[str, Load], done: dict[str, Placement]) -> Placement:
    against = {name: load.against(guest) for name, load in loads.items()}
    if guest.host is not None:
        against.update({name: f"the guest requests {guest.host}" for name in loads if name != guest.host})
    fits = [name for name, reason in against.items() if reason is None]
    if fits:
        best = min(fits, key=lambda name: (loads[name].cost(guest), name))
        loads[best].put(guest)
        why = (
            "requested"
            if guest.host
            else "the only one with room"
            if len(fits) == 1
            else f"least loaded with it, of {len(fits)}"
        )
        return Placement(guest.name, best, why)
    pushed = _push_aside(guest, loads, done) if guest.host is None else None
    if pushed is not None:
        return Placement(guest.name, pushed, "made room by placing a smaller new guest elsewhere")
    reasons = "; ".join(f"{name}: {reason}" for name, reason in sorted(against.items()))
    need = f"{guest.vcpus} vcpus and {guest.memory_mib} MiB"
    return Placement(guest.name, None, f"it needs {need}, and no hypervisor fits: {reasons or 'there is none'}")


def _push_aside(guest: Guest, loads: t.Mapping[str, Load], done: dict[str, Placement]) -> str | None:
    """Move one guest of this batch to another host where that lets `guest` in."""
    for name in sorted(loads, key=lambda name: (loads[name].memory_mib - loads[name].memory_room, name)):
        load = loads[name]
        for other in sorted(load.batch.values(), key=lambda g: (g.memory_mib, g.name)):
            if other.host is not None:
                continue
            load.take(other)
            targets = [to for to in loads if to != name and loads[to].against(other) is None]
            if load.against(guest) is None and targets:
                to = min(targets, key=lambda to: (loads[to].cost(other), to))
                loads[to].put(other)
                load.put(guest)
                done[other.name] = Placement(other.name, to, f"made room for {guest.name} on {name}")
                return name
            load.put(other)
    return None
