# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests, hosts and placements: what is placed, where it can run, and where it is put."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._libvirt.model_state import ACTIVE

__all__ = ["ACTIVE", "Guest", "GuestCopy", "Host", "Placement", "Policy"]


@dataclasses.dataclass(frozen=True)
class Guest:
    """The needs of a guest.

    `host` pins it; guests of one `apart` group never share a host, those of one `together` group always do. `prefer`
    are hosts, or groups of hosts.
    """

    name: str
    vcpus: int
    memory_mib: int
    host: str | None = None
    apart: frozenset[str] = frozenset()
    together: frozenset[str] = frozenset()
    prefer: frozenset[str] = frozenset()
    bridges: frozenset[str] = frozenset()
    networks: frozenset[str] = frozenset()
    pools: frozenset[str] = frozenset()
    thin_pools: frozenset[str] = frozenset()  # each as POOL/NAME
    disks: tuple[tuple[str, int], ...] = ()  # pools and thin pools, and MiB that it needs there
    machines: frozenset[str] = frozenset()
    cpu_models: frozenset[str] = frozenset()
    platform: frozenset[str] = frozenset()  # efi, secure_boot, tpm
    groups: frozenset[str] = frozenset()  # of hosts, all of which its host must be in
    devices: tuple[str, ...] = ()  # of the host, which it alone uses
    versions: tuple[tuple[str, str], ...] = ()  # programs of the host, and the oldest version that does
    runs_within: str | None = None  # the migration group of its host; None where it is off, or new
    uuid: str | None = None  # None: not made yet, so known by its name
    refused: tuple[tuple[str, str], ...] = ()  # hosts that cannot take it, each with the reason
    members: frozenset[str] = frozenset()  # of the cluster with Pacemaker that runs it, and sees it on no other host

    @functools.cached_property
    def needs(self) -> tuple[t.Any, ...]:
        """A sortable key, equal for guests that the same hosts take."""
        groups = (self.apart, self.together, self.prefer, self.groups, self.members)
        offers = (
            self.bridges,
            self.networks,
            self.pools,
            self.thin_pools,
            self.machines,
            self.cpu_models,
            self.platform,
        )
        names = (tuple(sorted(each)) for each in (*groups, *offers))
        bound = (self.devices, self.versions, self.runs_within is not None, self.runs_within or "", self.refused)
        return (self.memory_mib, self.vcpus, self.host or "", self.disks, *names, *bound)


class GuestCopy(t.NamedTuple):
    """A guest as it is on one host."""

    state: str
    uuid: str | None = None
    moving: str | None = None  # to which host; only while the record of a migration stands
    moving_from: str | None = None  # UUID of the host it comes from

    @property
    def active(self) -> bool:
        """True if the guest holds memory."""
        return self.state in ACTIVE


@dataclasses.dataclass(frozen=True)
class Host:
    """The resources of a hypervisor. `guests` are those that exist there, by name.

    `memory_mib` is what guests may use in all.
    """

    name: str
    cpus: int
    memory_mib: int
    vcpus_used: int = 0
    memory_used_mib: int = 0
    guests: t.Mapping[str, GuestCopy] = dataclasses.field(default_factory=dict)
    residents: tuple[Guest, ...] = ()  # those that hold memory, with their needs
    apart: frozenset[str] = frozenset()  # groups that guests there belong to
    together: frozenset[str] = frozenset()
    bridges: frozenset[str] | None = None  # None: not known
    networks: frozenset[str] | None = None
    pools: frozenset[str] | None = None
    thin_pools: frozenset[str] | None = None  # those that take new volumes
    disk_left_mib: t.Mapping[str, float] = dataclasses.field(default_factory=dict)  # by (thin) pool, where it is known
    filesystems: t.Mapping[str, str] = dataclasses.field(default_factory=dict)  # by pool: several may share one's room
    machines: frozenset[str] | None = None
    cpu_models: frozenset[str] | None = None
    platform: frozenset[str] | None = None
    groups: frozenset[str] | None = None  # of hosts
    devices: t.Mapping[str, int] | None = None  # how many of each are there and in use by no guest
    versions: t.Mapping[str, str] = dataclasses.field(default_factory=dict)  # of programs, where they are known
    migration_group: str = ""  # hosts between which running guests migrate
    domain: str = ""  # what fails as a whole: a rack, a room
    maintenance: str | None = None  # why it takes no guests

    def filesystem(self, pool: str) -> str:
        """What the room of a pool is counted by: its filesystem, or the pool itself where that is not known."""
        return self.filesystems.get(pool, f"pool {pool}")

    @property
    def has_capacity(self) -> bool:
        """True if processors and memory are known; a host that reports none takes no guests."""
        return self.cpus > 0 and self.memory_mib > 0


@dataclasses.dataclass(frozen=True)
class Policy:
    """Overcommit limits: vCPUs per processor, and the share of memory."""

    cpu_overcommit: float = 4.0
    memory_overcommit: float = 1.0
    losses: int = 0  # of hosts, or failure domains, whose guests must find room on the others


@dataclasses.dataclass(frozen=True)
class Placement:
    """The host of a guest, and the reason.

    `host` is None if the guest is refused, or deferred: left as it is, since it is not known where it runs, or which of
    several it is. A refused guest stops the whole batch, a deferred one does not; where it is `unclear` which one is
    meant, only the admin can tell.
    """

    guest: str
    host: str | None
    why: str
    exists: bool = False
    deferred: bool = False
    unclear: bool = False
