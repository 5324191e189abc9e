# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What a guest takes along beside what QEMU sends: files of its disks, its UEFI variables and TPM state, its
definition when it is off.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._files.progress import Tell
from ansible_collections.corral.virt.plugins.module_utils._front import directories, made
from ansible_collections.corral.virt.plugins.module_utils._front.ends import Ends
from ansible_collections.corral.virt.plugins.module_utils._libvirt import (
    definition,
    look,
    migrate,
    states,
    storage,
    transfer,
)
from ansible_collections.corral.virt.plugins.module_utils._model.domain import FoundGuest, Volume
from ansible_collections.corral.virt.plugins.module_utils._model.move import DiskMove, Move
from ansible_collections.corral.virt.plugins.module_utils._plan import meanwhile
from ansible_collections.corral.virt.plugins.module_utils._xml import caps, tied

__all__ = ["carry", "carry_file", "files", "make", "release", "reserve"]

_TPM = "/var/lib/libvirt/swtpm"


def make(ends: Ends, uuid: str, disk: DiskMove) -> None:
    """An empty disk on the destination, thin, of the right size and on the right base."""
    made.create(ends, uuid, t.cast(Volume, disk.volume), replace=disk.replace)


def carry(ends: Ends, uuid: str, disk: DiskMove, tell: Tell) -> None:
    """Copy a disk that nobody writes to, byte for byte, holes kept; raises Failed when somebody did write meanwhile."""
    volume = t.cast(Volume, disk.volume)
    before = _volume(ends.source, disk.path)
    # A plain file: what it holds (a qcow2 header, say) travels with its bytes.
    file = Volume(volume.pool, volume.name, volume.path, before["physical_bytes"], "raw")
    made.create(ends, uuid, file, replace=disk.replace)
    made.opened(ends, uuid, file.path)
    phase = f"copying {disk.target}"
    transfer.copy(
        ends.source, disk.path, ends.dest, file.pool, file.name, lambda done: tell(phase, done, file.capacity_bytes)
    )
    meanwhile.check_unchanged(disk.path, before, _volume(ends.source, disk.path))
    storage.refresh(ends.dest, file.pool)
    made.finished(ends, uuid, file)


def _volume(connection: t.Any, path: str) -> t.Mapping[str, t.Any]:
    xml = storage.volume_at(connection, path)
    return meanwhile.check_there(path, None if xml is None else caps.volume(xml))


def files(found: FoundGuest) -> list[str]:
    """What a guest that is off keeps beside its disks."""
    state = [
        os.path.join(folder, name)
        for folder, _below, names in os.walk(os.path.join(_TPM, found.uuid))
        for name in names
    ]
    nvram = [path for path in tied.files(found.xml) if os.path.exists(path)]  # none before its first start
    return [*nvram, *sorted(path for path in state if not path.endswith(".lock"))]


def carry_file(ends: Ends, uuid: str, path: str) -> None:
    """Copy a file that is in no pool: for that moment, its directory is one.

    Raises Failed for a path that somebody else uses there.
    """
    directory, name = os.path.split(path)
    meanwhile.check_room(path, user=made.users(ends.dest, uuid).get(path), taken=False)
    with directories.pool_for(ends.source, directory) as here, directories.pool_for(ends.dest, directory) as there:
        made.clear(ends, uuid, [path])
        meanwhile.check_room(path, user=None, taken=storage.volume_in(ends.dest, there, name) is not None)
        size = caps.volume(t.cast(str, storage.volume_in(ends.source, here, name)))["physical_bytes"]
        file = Volume(there, name, path, size, "raw")
        made.create(ends, uuid, file, replace=False)
        made.opened(ends, uuid, path)
        transfer.copy(ends.source, path, ends.dest, there, name, lambda _done: None)
        storage.refresh(ends.dest, there)
        made.finished(ends, uuid, file)


def reserve(ends: Ends, move: Move) -> None:
    """Define the guest on the destination so that nobody can start it; raises Failed when it is no longer off here."""
    domain = look.by_uuid(ends.source, move.uuid)
    definition.define(ends.dest, move.guest, tied.reserved(definition.portable(domain)))
    try:
        meanwhile.check_off(move.guest, states.of(domain))
    except VirtError:
        migrate.discard(ends.dest, move.uuid)
        raise


def release(dest: t.Any, uuid: str) -> None:
    """Let it be started there."""
    waiting = look.found(look.by_uuid(dest, uuid))
    definition.define(dest, waiting.name, tied.released(waiting.xml))
