# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What a guest's seed needs: nothing, a seed disk, or its system disk customized before the first start."""

from __future__ import annotations

import dataclasses
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._files import seed as seed_files
from ansible_collections.corral.virt.plugins.module_utils._front import pool_directory
from ansible_collections.corral.virt.plugins.module_utils._libvirt import storage
from ansible_collections.corral.virt.plugins.module_utils._model.domain import OFFLINE, Disk, Found, Seed, Volume, Wanted
from ansible_collections.corral.virt.plugins.module_utils._plan import customize, new_disk, pool_files, steps
from ansible_collections.corral.virt.plugins.module_utils._plan import seed as seeds
from ansible_collections.corral.virt.plugins.module_utils._plan.disk import STARTED, DiskPlan
from ansible_collections.corral.virt.plugins.module_utils._plan.disk_facts import SEED, Known
from ansible_collections.corral.virt.plugins.module_utils._xml import caps

__all__ = ["UNSEEDED", "Seeding", "do", "plan"]

UNSEEDED = ".unseeded"  # after the path of a disk to which the seed is being applied: such a file there is, so no definition names it
_ROOM_BYTES = 1024**2  # seeds are padded to this, so that a changed one fits where a running guest reads it


@dataclasses.dataclass
class Seeding:
    """The disks with the seed's, its steps among theirs, and what must be remembered."""

    making: DiskPlan
    remember: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    rewritten: bool = False
    notes: list[str] = dataclasses.field(default_factory=list)


def plan(connection: t.Any, wanted: Wanted, making: DiskPlan, known: Known, found: Found | None, memory: t.Mapping[str, t.Any]) -> Seeding:
    """Look at what the guest was seeded with; raises BadInput, Refused or Unsupported before anything is touched."""
    seed = wanted.seed
    unfinished = tuple(path for path in memory.get("making") or () if path.endswith(SEED))
    if seed is None:
        return Seeding(_without(wanted, making, found, unfinished))
    offline = seed.method == OFFLINE
    disk = next((step for step in making.steps if isinstance(step, steps.CreateVolume) and step.volume.backing_path), None)
    first = found is None or {*memory.get("volumes", ())} <= {*memory.get("making", ())}  # all of its disks are yet to be made
    new = first and disk is not None if offline else found is None or "seed" not in memory or bool(unfinished)
    if not new and memory.get("seed") == seed.digest:
        return Seeding(making)
    if offline and not (new or "seed" in memory):
        raise Refused(
            f"cannot apply cloud_init of {wanted.name} with method virt_customize: none of its disks is made from an image now; "
            "give it an image when it is made, or use method: nocloud"
        )
    if not new and seed.on_change == "refuse":
        raise Refused(
            f"cloud_init of {wanted.name} differs from the seed it was made with; set cloud_init.on_change to next_boot or ignore"
        )
    if not new and seed.on_change == "ignore":
        note = f"cloud_init of {wanted.name} differs from the seed it was made with; nothing was done (cloud_init.on_change: ignore)"
        return Seeding(making, notes=[note])
    work = _customized(connection, wanted, seed, making, disk) if offline and disk else _written(connection, wanted, seed, making, known)
    return dataclasses.replace(work, rewritten=not new)


def _without(wanted: Wanted, making: DiskPlan, found: Found | None, unfinished: tuple[str, ...]) -> DiskPlan:
    """An interrupted run's seed, of which this one does not speak, goes on being remembered as unfinished."""
    unfinished = tuple(path for path in unfinished if path not in making.left)
    if unfinished and wanted.state in STARTED and found is not None and not found.active:
        raise Refused(
            f"cannot start {wanted.name}: an interrupted run left its seed {', '.join(unfinished)} incomplete; say its cloud_init again, "
            "to have it made, or remove the guest"
        )
    return dataclasses.replace(making, left=(*making.left, *unfinished))


def _written(connection: t.Any, wanted: Wanted, seed: Seed, making: DiskPlan, known: Known) -> Seeding:
    """A seed disk. It comes before the others: while one of those is missing, nobody can start the guest."""
    making, volume, replace = _with_seed(connection, wanted, making, known)
    old = storage.read(connection, volume.pool, volume.name) if replace and not seed.host_keys else None
    kept = seed_files.host_key_in(old) if old else None
    private, public = kept or _host_key(seed)
    content = seeds.files(seed, guest=wanted.name, host_key=(private, public))
    step = steps.WriteSeed(wanted.name, volume, content, replace=replace)
    return Seeding(dataclasses.replace(making, steps=(step, *making.steps)), _memory(wanted, seed, public))


def _with_seed(connection: t.Any, wanted: Wanted, making: DiskPlan, known: Known) -> tuple[DiskPlan, Volume, bool]:
    """Add the cloud-init seed: a read-only virtio disk, because cloud kernels have no driver for SATA."""
    pool = next((item.pool for item in making.disks or () if item.pool), new_disk.DEFAULT_POOL)
    device = known.devices.get("seed")
    name = os.path.basename(device.path) if device and device.path else f"{wanted.name}{SEED}"
    path = device.path if device and device.path else pool_files.file_in(pool_directory.pool_of(connection, pool), name)
    if storage.volume_in(connection, pool, name) is not None and device is None:
        raise Refused(f"cannot make the seed of {wanted.name}: {path} exists and belongs to no guest of ours; remove it first")
    item = Disk("seed", fields={"source": path, "format": "raw", "bus": "virtio", "readonly": True})
    others = tuple(disk for disk in making.disks or () if disk.name != "seed")
    made = dataclasses.replace(making, disks=(*others, item), making=(*making.making, path))
    return made, Volume(pool=pool, name=name, path=path, capacity_bytes=1, format="raw"), device is not None


def _customized(connection: t.Any, wanted: Wanted, seed: Seed, making: DiskPlan, disk: steps.CreateVolume) -> Seeding:
    """The system disk is made under another name, the seed applied to it; then it appears."""
    seed_files.need_customize(wanted.name)
    if ":///" not in connection.getURI():
        raise Refused(
            f"cannot apply cloud_init of {wanted.name} with method virt_customize over {connection.getURI()}: it needs the disk's file; "
            "run the module on the hypervisor, or use method: nocloud"
        )
    volume = dataclasses.replace(disk.volume, name=disk.volume.name + UNSEEDED, path=disk.volume.path + UNSEEDED)
    private, public = _host_key(seed)
    commands = customize.commands(seed, guest=wanted.name, keys=seed.host_keys or {"ed25519": private})
    made = steps.CreateVolume(wanted.name, volume, caps.new_volume(volume), replace=True)
    applied = steps.Customize(wanted.name, volume.pool, volume.path, disk.volume.path, commands)
    others = [step for step in making.steps if step is not disk]
    return Seeding(dataclasses.replace(making, steps=(*others, made, applied)), _memory(wanted, seed, public))


def _host_key(seed: Seed) -> tuple[str, str]:
    """The user's best key, or a new one: private and public."""
    if not seed.host_keys:
        return seed_files.host_key()
    private = next(iter(seed.host_keys.values()))
    return private, seed_files.public_key(private)


def _memory(wanted: Wanted, seed: Seed, public: str) -> dict[str, t.Any]:
    instance = seeds.instance_id(seed, wanted.name)
    return {"seed": seed.digest, "instance_id": instance, "ssh_host_key": public, "addresses": seed.addresses}


def do(connection: t.Any, step: steps.WriteSeed | steps.Customize) -> None:
    """Write the seed, in place where there is room: a running guest reads it after a mere reboot, too."""
    if isinstance(step, steps.Customize):
        seed_files.customize(step.source, step.commands, to=step.path)
        storage.refresh(connection, step.pool)
        return
    data = seed_files.iso(step.files)
    data = data.ljust(-(-len(data) // _ROOM_BYTES) * _ROOM_BYTES, b"\0")
    volume = dataclasses.replace(step.volume, capacity_bytes=len(data))
    there = storage.volume_in(connection, volume.pool, volume.name) if step.replace else None
    if there is None or caps.volume(there)["capacity_bytes"] != len(data):
        storage.create(connection, volume.pool, caps.new_volume(volume), name=volume.name, replace=step.replace)
    storage.write(connection, volume.pool, volume.name, data)
