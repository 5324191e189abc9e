# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The questions of a guest's stages to its host."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import (
    DisplayDefaults,
    FoundGuest,
    OwnedDisk,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import Missing, Prerequisites
from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import Snapshot
from ansible_collections.corral.virt.plugins.module_utils._storage.model_removed_disk import DiskAside
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import (
    Answer,
    Customizing,
    Question,
    SeedDisk,
    SeedSite,
)
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity

# Whether a host still has the capacity that a placement saw: another controller may have placed guests there since.


@dataclasses.dataclass(frozen=True)
class Capacity:
    """What all guests of a host may use, and what the others use that run or start with it."""

    memory_mib: int
    vcpus: int
    memory_used_mib: int = 0
    vcpus_used: int = 0


def check_capacity(name: str, capacity: Capacity, *, memory_mib: int, vcpus: int) -> None:
    """Raise Refused if the guest does not fit."""
    lacks = [
        f"{what}: {used} of {limit} are allocated, and it needs {needed}"
        for what, limit, used, needed in (
            ("MiB of memory", capacity.memory_mib, capacity.memory_used_mib, memory_mib),
            ("vcpus", capacity.vcpus, capacity.vcpus_used, vcpus),
        )
        if used + needed > limit
    ]
    if lacks:
        raise Refused(
            f"cannot start {name}: this host no longer has room for it ({'; '.join(lacks)}), because another run "
            "placed guests here; run again to choose another host"
        )


class GuestHost(t.Protocol):
    """The host of a guest. Each question takes round trips: a stage asks only what it needs."""

    @property
    def uri(self) -> str:
        """The connection URI of the host."""

    def find(self, name: str) -> FoundGuest | None:
        """The guest with this name; None if there is none."""

    def managed_state(self, uuid: str) -> t.Sequence[str]:
        """What libvirt keeps beside the guest's definition."""

    def snapshots(self, uuid: str) -> t.Sequence[Snapshot]:
        """The guest's snapshots, parents first."""

    def saved_xml(self, uuid: str) -> str | None:
        """The definition in the managed save image of a guest that is off; None without an image, empty if it is
        unreadable.
        """

    def new_uuid(self) -> str:
        """A UUID that no guest has."""

    def host_uuid(self) -> str:
        """The UUID by which libvirt tells hosts apart; empty if it does not."""

    def identities(self, paths: t.Collection[str]) -> t.Mapping[str, FileIdentity | None]:
        """The files at these volume paths: None if nobody can tell which file; no entry if there is none."""

    def capabilities(self) -> t.Mapping[str, t.Any]:
        """What guests it can run, as `xml_host.host` reads it."""

    def libvirt_version(self) -> int:
        """The version of libvirt on the host; 9000000 is 9.0.0."""

    def capacity(self, uuid: str) -> Capacity | None:
        """What guests may use here, and what all others but this one use; no other guest starts until this one is done.
        None if no limit is set.
        """

    def links(self) -> tuple[t.AbstractSet[str] | None, t.AbstractSet[str]]:
        """The host's bridges (None if nobody can tell) and its networks."""

    def missing(self, needed: Prerequisites) -> Missing:
        """The prerequisites that the host is known not to have."""

    def filters(self) -> t.Sequence[str] | None:
        """XML of the host's network filters; None if its driver has none."""

    def bridge_calls(self) -> t.Mapping[str, bool] | None:
        """Which packet filters see bridged packets; None if nobody can tell."""

    def shared_filesystems(self, paths: t.Collection[str]) -> t.Mapping[str, str | None] | None:
        """The kinds of shared filesystems that hold the paths, with None for a local one; None if nobody can tell."""

    def displays(self) -> DisplayDefaults:
        """The host's defaults for displays."""

    def disks(self, questions: t.Mapping[str, Question]) -> t.Mapping[str, Answer]:
        """What exists where disks are or would be; their base images stay locked until the guest is done."""

    def seed(self, guest: str, question: SeedDisk | Customizing | None) -> SeedSite | None:
        """What exists where the guest's seed is or would be."""

    def located(self, pool: str, volume: str) -> str | None:
        """The path of a volume; None if no pool with that name has files."""

    def volumes(self) -> t.Sequence[str]:
        """The paths of all volumes of active pools."""

    def users(self, paths: t.Collection[str], *, but: str = "") -> t.Mapping[str, str]:
        """What but the guest `but` (a UUID) uses the files, by path: other guests, and volumes on top of them."""

    def own_chains(self, found: FoundGuest) -> t.Sequence[t.Sequence[str]]:
        """Files that only this guest writes, or wrote before a snapshot, each with its backing chain."""

    def unfinished_removals(self) -> t.Sequence[DiskAside]:
        """Disks that interrupted runs have moved aside, or whose time aside is over."""

    def owned_disks(self, paths: t.Collection[str]) -> t.Mapping[str, OwnedDisk]:
        """What exists of disks that were created for the guest, by path."""
