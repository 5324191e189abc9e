# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's facts for a guest's seed, and the steps that write or apply the seed."""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_here
from ansible_collections.corral.virt.plugins.module_utils._domain import xml_host
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import GuestStep
from ansible_collections.corral.virt.plugins.module_utils._seed import files_seed
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    libvirt_storage,
    plan_disk_steps,
    plan_pool_files,
    run_pool_directory,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import (
    Customizing,
    HostKey,
    SeedDisk,
    SeedSite,
)

_ROOM_BYTES = 1024**2  # seeds are padded to this, so that a changed one fits where a running guest reads it


def answer(connection: t.Any, guest: str, question: SeedDisk | Customizing) -> SeedSite:
    """The host's facts for the seed; raises Unsupported for a missing program or library."""
    uri = connection.getURI()
    site = SeedSite(("", ""), None, exists=False, uri=uri, here=is_here(uri))
    if isinstance(question, Customizing):
        files_seed.need_customize(guest)
        return dataclasses.replace(site, host_key=_host_key(question.private))
    name = _pool(connection, question)
    pool = None if question.path else run_pool_directory.pool_of(connection, name)
    exists = libvirt_storage.volume_in(connection, name, question.name) is not None
    kept = _kept_key(connection, name, question) if question.ours and not question.private else None
    key = kept or _host_key(question.private)
    return dataclasses.replace(site, pool_name=name, pool=pool, exists=exists, host_key=key)


def _pool(connection: t.Any, question: SeedDisk) -> str:
    """The pool of the seed, which is a file: where it is, which may not be where the guest's disks are; else the pool
    of these if it has files, or the default one.
    """
    with contextlib.suppress(NotFound):
        if question.path:
            return libvirt_storage.pool_at(connection, question.path)
    return plan_pool_files.seed_pool(run_pool_directory.pool_of(connection, question.pool))


def _kept_key(connection: t.Any, pool: str, question: SeedDisk) -> HostKey | None:
    """The guest's current SSH host key, which a new seed keeps; None if there is none."""
    old = libvirt_storage.read(connection, pool, question.name)
    return files_seed.host_key_in(old) if old else None


def _host_key(private: str | None) -> HostKey:
    """The user's SSH host key, or a new one."""
    return (private, files_seed.public_key(private)) if private else files_seed.host_key()


def do(connection: t.Any, step: GuestStep) -> None:
    """Write the seed, or apply it to a disk."""
    if isinstance(step, plan_disk_steps.Customize):
        _customize(connection, step)
    else:
        _write(connection, t.cast(plan_disk_steps.WriteSeed, step))


def _customize(connection: t.Any, step: plan_disk_steps.Customize) -> None:
    files_seed.customize(step.source, step.commands, to=step.path, replace=step.replace)
    libvirt_storage.refresh(connection, step.pool)


def _write(connection: t.Any, step: plan_disk_steps.WriteSeed) -> None:
    """Write the seed in place if its size fits: a running guest then reads it after a mere reboot."""
    data = files_seed.iso(step.files)
    data = data.ljust(-(-len(data) // _ROOM_BYTES) * _ROOM_BYTES, b"\0")
    volume = dataclasses.replace(step.volume, capacity_bytes=len(data))
    there = libvirt_storage.volume_in(connection, volume.pool, volume.name) if step.replace else None
    if there is None or xml_host.volume(there)["capacity_bytes"] != len(data):
        libvirt_storage.create(
            connection, volume.pool, xml_host.new_volume(volume), name=volume.name, replace=step.replace
        )
    libvirt_storage.write(connection, volume.pool, volume.name, data)
