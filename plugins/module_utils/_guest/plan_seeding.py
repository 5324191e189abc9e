# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what a guest's seed needs: nothing, a seed disk, or its system disk customized before the first start.

Pure.
"""

from __future__ import annotations

import dataclasses
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.defaults import POOL
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._core.units import check_name
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import (
    OFFLINE,
    Disk,
    GuestSpec,
    Seed,
    Volume,
)
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_steps
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_disk import STARTED, DiskPlan, NewVolume, UserOf
from ansible_collections.corral.virt.plugins.module_utils._seed import plan_seed
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_pool_files
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import (
    SEED,
    Customizing,
    Known,
    SeedDisk,
    SeedSite,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory

# suffix of a disk's path while the seed is applied to it; no definition names this file, so no guest can start on it
UNSEEDED = ".unseeded"

# What becomes of a seed. UNSPOKEN: cloud_init is not given. The last two are refused.
UNSPOKEN, WRITE, REWRITE, CUSTOMIZE, DONE, IGNORED = "unspoken", "write", "rewrite", "customize", "done", "ignored"
TOO_LATE, DIFFERS = "too late", "differs"
_CHANGED = {"next_boot": REWRITE, "ignore": IGNORED, "refuse": DIFFERS}


@dataclasses.dataclass(frozen=True)
class SeedCase:
    """What is done with a seed, and the question to the host for that."""

    name: str
    question: SeedDisk | Customizing | None = None


@dataclasses.dataclass(frozen=True)
class Seeding:
    """The plan for the disks with the seed's disk and steps in it, and what the guest's record keeps."""

    disks: DiskPlan
    remember: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    rewritten: bool = False
    notes: tuple[str, ...] = ()


def case_of(seed: Seed, *, first: bool, recorded: str | None) -> str:
    """The case of a seed; `recorded` is the digest of the guest's last seed."""
    if first:
        return CUSTOMIZE if seed.method == OFFLINE else WRITE
    if recorded == seed.digest:
        return DONE
    if recorded is None:  # a seed disk can be written at any time: this is one that is applied to a disk
        return TOO_LATE
    return _CHANGED[seed.on_change]


def seed_case(wanted: GuestSpec, known: Known, disks: DiskPlan) -> SeedCase:
    """The case of a guest's seed, with the question to the host that its plan needs answered."""
    seed = wanted.seed
    if seed is None:
        return SeedCase(UNSPOKEN)
    name = case_of(seed, first=_is_first(seed, known, disks), recorded=known.seed)
    private = next(iter(seed.host_keys.values()), None)
    if name == CUSTOMIZE:
        return SeedCase(name, Customizing(private))
    return SeedCase(name, _seed_disk(wanted, known, disks, private) if name in (WRITE, REWRITE) else None)


def _is_first(seed: Seed, known: Known, disks: DiskPlan) -> bool:
    """True if the guest has not started with any seed yet."""
    if seed.method == OFFLINE:
        # A disk can be customized while none of the guest's was ever started.
        return _overlay(disks) is not None and set(known.volumes) <= set(known.making)
    return known.seed is None or any(path.endswith(SEED) for path in known.making)


def _seed_disk(wanted: GuestSpec, known: Known, disks: DiskPlan, private: str | None) -> SeedDisk:
    """Where the seed is written: to the guest's seed disk, or to a new one beside its other disks."""
    device = known.devices.get("seed")
    path = device.path if device else ""
    if not path:
        check_name(wanted.name, what="a new seed is named after its guest")
    made = (step.volume.pool for step in disks.steps if isinstance(step, plan_guest_steps.CreateVolume))
    pool = next((item.pool for item in disks.disks or () if item.pool), None) or next(made, POOL)
    # an interrupted run that had not begun to write it has left none
    ours = device is not None and (path not in known.making or path in known.volumes)
    return SeedDisk(pool, os.path.basename(path) or f"{wanted.name}{SEED}", path, ours, private)


def plan(
    wanted: GuestSpec,
    known: Known,
    disks: DiskPlan,
    case: SeedCase,
    site: SeedSite | None,
    new_volume: NewVolume,
    user_of: UserOf,
) -> Seeding:
    """The disks of a guest with its seed; `site` answers the question of the case. Raises Refused."""
    seed, asked = wanted.seed, case.question
    if seed is None:
        return Seeding(_unspoken(wanted, known, disks))
    if site is not None and isinstance(asked, SeedDisk):
        written = _written(wanted, seed, disks, asked, site, user_of)
        return dataclasses.replace(written, rewritten=case.name == REWRITE)
    if site is not None:
        return _customized(wanted, seed, disks, site, new_volume)
    return _left(wanted.name, case.name, disks)


def _overlay(disks: DiskPlan) -> plan_guest_steps.CreateVolume | None:
    """The step that creates the disk to which the seed is applied."""
    made = (step for step in disks.steps if isinstance(step, plan_guest_steps.CreateVolume))
    return next((step for step in made if step.volume.backing_path), None)


def _copied(disks: DiskPlan) -> Volume | None:
    """A disk that is created as a copy, of an image or of another guest's disk, as logical volumes are."""
    kinds = (plan_guest_steps.CreateVolume, plan_guest_steps.CreateLogicalVolume)
    made = (step.volume for step in disks.steps if isinstance(step, kinds))
    return next((volume for volume in made if volume.copy_of), None)


def _unspoken(wanted: GuestSpec, known: Known, disks: DiskPlan) -> DiskPlan:
    """Without `cloud_init`, keep the record of a seed that an interrupted run left unfinished."""
    unfinished = tuple(path for path in known.making if path.endswith(SEED) and path not in disks.left)
    if unfinished and wanted.state in STARTED and not known.active:
        raise Refused(
            f"cannot start {wanted.name}: an interrupted run left its seed {', '.join(unfinished)} incomplete; set its "
            "cloud_init again to finish creating it, or remove the guest"
        )
    return dataclasses.replace(disks, left=(*disks.left, *unfinished))


def _left(guest: str, case: str, disks: DiskPlan) -> Seeding:
    """Keep the guest's seed; raises Refused if another one is requested and cannot be applied."""
    differs = f"cloud_init of {guest} differs from the seed it was created with"
    if case == TOO_LATE:
        why = "none of its disks is created from an image now; set an image when it is created"
        if copied := _copied(disks):
            why = (
                f"it is applied to overlays of images, and {copied.path} is a copy; let it be an overlay in a directory"
            )
        raise Refused(f"cannot apply cloud_init of {guest} with method virt_customize: {why}, or use method: nocloud")
    if case == DIFFERS:
        raise Refused(f"{differs}; set cloud_init.on_change to next_boot or ignore")
    if case == IGNORED:
        return Seeding(disks, notes=(f"{differs}; nothing was done (cloud_init.on_change: ignore)",))
    return Seeding(disks)


def _written(
    wanted: GuestSpec, seed: Seed, disks: DiskPlan, asked: SeedDisk, site: SeedSite, user_of: UserOf
) -> Seeding:
    """A seed disk: read-only virtio, because cloud kernels have no driver for SATA.

    It is written before the other disks are created: while one of them is missing, nobody can start the guest.
    """
    path = asked.path or plan_pool_files.file_in(t.cast(PoolDirectory, site.pool), asked.name)
    if site.exists and not asked.ours:
        cannot, user = f"cannot create the seed of {wanted.name}: {path} exists already", user_of(path)
        if user:
            raise Refused(f"{cannot}, and {user} uses it; choose another name for the guest")
        raise Refused(f"{cannot}; another host may use it. If not, remove it")
    pool = site.pool_name or asked.pool
    volume = Volume(pool=pool, name=asked.name, path=path, capacity_bytes=1, format="raw")
    step = plan_guest_steps.WriteSeed(
        wanted.name, volume, plan_seed.files(seed, guest=wanted.name, host_key=site.host_key), replace=asked.ours
    )
    item = Disk("seed", fields={"source": path, "format": "raw", "bus": "virtio", "readonly": True})
    others = tuple(disk for disk in disks.disks or () if disk.name != "seed")
    made = dataclasses.replace(disks, disks=(*others, item), making=(*disks.making, path), steps=(step, *disks.steps))
    return Seeding(made, _record(wanted, seed, site))


def _customized(wanted: GuestSpec, seed: Seed, disks: DiskPlan, site: SeedSite, new_volume: NewVolume) -> Seeding:
    """Create the system disk under another name, apply the seed to it, then rename it."""
    if not site.here:
        raise Refused(
            f"cannot apply cloud_init of {wanted.name} with method virt_customize over {site.uri}: it needs the disk's "
            "file; run the module on the hypervisor, or use method: nocloud"
        )
    from ansible_collections.corral.virt.plugins.module_utils._seed import plan_customize

    disk = t.cast(plan_guest_steps.CreateVolume, _overlay(disks))
    volume = dataclasses.replace(disk.volume, name=disk.volume.name + UNSEEDED, path=disk.volume.path + UNSEEDED)
    commands = plan_customize.commands(seed, guest=wanted.name, keys=seed.host_keys or {"ed25519": site.host_key[0]})
    made = plan_guest_steps.CreateVolume(wanted.name, volume, new_volume(volume), replace=True)
    applied = plan_guest_steps.Customize(
        wanted.name, volume.pool, volume.path, disk.volume.path, commands, disk.replace, expected=disk.expected
    )
    others = tuple(step for step in disks.steps if step is not disk)
    return Seeding(dataclasses.replace(disks, steps=(*others, made, applied)), _record(wanted, seed, site))


def _record(wanted: GuestSpec, seed: Seed, site: SeedSite) -> dict[str, t.Any]:
    instance = plan_seed.instance_id(seed, wanted.name)
    return {"seed": seed.digest, "instance_id": instance, "ssh_host_key": site.host_key[1], "addresses": seed.addresses}
