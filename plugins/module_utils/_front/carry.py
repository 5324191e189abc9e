# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What a guest takes along beside what QEMU sends: files of its disks, its UEFI variables and TPM state, its definition when it is off."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._files.progress import Tell
from ansible_collections.corral.virt.plugins.module_utils._front.ends import Ends
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition, look, migrate, storage, transfer
from ansible_collections.corral.virt.plugins.module_utils._model.domain import Found, Volume
from ansible_collections.corral.virt.plugins.module_utils._model.move import DiskMove
from ansible_collections.corral.virt.plugins.module_utils._xml import caps, tied

__all__ = ["carry", "carry_file", "files", "make", "release", "reserve"]

_TPM = "/var/lib/libvirt/swtpm"


def make(dest: t.Any, disk: DiskMove) -> None:
    """An empty disk on the destination, thin, of the right size and on the right base."""
    volume = t.cast(Volume, disk.volume)
    storage.create(dest, volume.pool, caps.new_volume(volume), name=volume.name, replace=disk.replace)


def carry(ends: Ends, disk: DiskMove, tell: Tell) -> None:
    """Copy a disk that nobody writes to, byte for byte, holes kept; raises Failed when somebody did write meanwhile."""
    volume = t.cast(Volume, disk.volume)
    before = _volume(ends.source, disk.path)
    # A plain file: what it holds (a qcow2 header, say) travels with its bytes.
    file = Volume(volume.pool, volume.name, volume.path, before["physical_bytes"], "raw")
    storage.create(ends.dest, file.pool, caps.new_volume(file), name=file.name, replace=disk.replace)
    phase = f"copying {disk.target}"
    transfer.copy(ends.source, disk.path, ends.dest, file.pool, file.name, lambda done: tell(phase, done, file.capacity_bytes))
    after = _volume(ends.source, disk.path)
    if any(before[key] != after[key] for key in ("modified_s", "physical_bytes")):
        raise Failed(f"cannot copy {disk.path}: somebody wrote to it meanwhile; run again when nobody does")
    storage.refresh(ends.dest, file.pool)


def _volume(connection: t.Any, path: str) -> dict[str, t.Any]:
    xml = storage.volume_at(connection, path)
    if xml is None:
        raise Failed(f"cannot copy {path}: it is gone from its pool")
    return caps.volume(xml)


def files(found: Found) -> list[str]:
    """What a guest that is off keeps beside its disks."""
    state = [os.path.join(folder, name) for folder, _below, names in os.walk(os.path.join(_TPM, found.uuid)) for name in names]
    nvram = [path for path in tied.files(found.xml) if os.path.exists(path)]  # none before its first start
    return [*nvram, *sorted(path for path in state if not path.endswith(".lock"))]


def carry_file(ends: Ends, path: str) -> None:
    """Copy a file that is in no pool: for that moment, its directory is one."""
    directory, name = os.path.split(path)
    with transfer.pool_for(ends.source, directory) as here, transfer.pool_for(ends.dest, directory) as there:
        size = caps.volume(t.cast(str, storage.volume_in(ends.source, here, name)))["physical_bytes"]
        new = caps.new_volume(Volume(there, name, path, size, "raw"))
        storage.create(ends.dest, there, new, name=name, replace=True)
        transfer.copy(ends.source, path, ends.dest, there, name, lambda _done: None)


def reserve(ends: Ends, name: str) -> None:
    """Define the guest on the destination so that nobody can start it; raises Failed when it is no longer off here."""
    domain = look.lookup(ends.source, name)
    definition.define(ends.dest, name, tied.reserved(definition.portable(domain)))
    if look.state(domain) not in ("shutdown", "crashed"):
        migrate.discard(ends.dest, name)
        raise Failed(f"cannot move {name}: it was started meanwhile; run again, it then travels while it runs")


def release(dest: t.Any, name: str) -> None:
    """Let it be started there."""
    definition.define(dest, name, tied.released(look.found(look.lookup(dest, name)).xml))
