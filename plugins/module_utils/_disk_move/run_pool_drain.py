# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Move all disks of guests out of a pool, one after the other, as `virt_disk_move` moves one."""

from __future__ import annotations

import os
import stat
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.cached_answers import asked
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._disk_move import plan_pool_drain, run_disk_move
from ansible_collections.corral.virt.plugins.module_utils._disk_move.plan_pool_drain import PoolMove
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._guest import run_guests
from ansible_collections.corral.virt.plugins.module_utils._storage import files_lvm, plan_clone_spec
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory
from ansible_collections.corral.virt.plugins.module_utils._system.progress import Progress
from ansible_collections.corral.virt.plugins.module_utils._volume import libvirt_volume


def converge(connection: t.Any, params: t.Mapping[str, t.Any], gate: Gate) -> dict[str, t.Any]:
    """Have no disks of guests in the pool, and return the result; it has `msg` if some are left that should not."""
    spec = plan_pool_drain.checked(params)
    plan_clone_spec.check_local(connection.getURI())
    made = plan_pool_drain.plan(spec, _Host(connection))

    def move(one: PoolMove) -> dict[str, t.Any]:
        progress = Progress(run_disk_move.progress_file(f".{spec.pool}"), f"disk {one.disk} of {one.guest}")
        return run_disk_move.converge(connection, {**params, "guest": one.guest, **_place(one)}, gate, progress)

    disks = run_guests.outcomes(made.moves, move, lambda one: {"name": one.guest, **_place(one)}, at_once=1)
    left = gate.perform(lambda: plan_pool_drain.left(spec, _Host(connection)), otherwise=lambda: made.left)
    return {
        "changed": any(disk["changed"] for disk in disks),
        "results": [_of_guest(name, disks) for name in dict.fromkeys(disk["name"] for disk in disks)],
        "steps": [step for disk in disks for step in disk["steps"]],
        "diff": run_guests.diffs(disks),
        "notes": [note for disk in disks for note in disk.get("notes", ())],
        "left": [one._asdict() for one in left],
        "msg": plan_pool_drain.unmoved([disk["msg"] for disk in disks if disk.get("failed")], made.refused, spec.pool),
    }


def _place(move: PoolMove) -> dict[str, str]:
    return {"disk": move.disk, "pool": move.pool}


def _of_guest(name: str, disks: t.Sequence[dict[str, t.Any]]) -> dict[str, t.Any]:
    """The result of one guest, with those of its disks."""
    its = [disk for disk in disks if disk["name"] == name]
    failed = [disk["msg"] for disk in its if disk.get("failed")]
    return {
        "name": name,
        "changed": any(disk["changed"] for disk in its),
        "disks": [{key: value for key, value in disk.items() if key not in ("name", "diff")} for disk in its],
        "steps": [step for disk in its for step in disk["steps"]],
        "notes": [note for disk in its for note in disk.get("notes", ())],
        **({"failed": True, "msg": "; ".join(failed)} if failed else {}),
    }


class _Host(run_disk_move.DiskMoveHost):
    """The `DrainHost` behind a connection."""

    @asked
    def guests(self) -> tuple[FoundGuest, ...]:
        return tuple(libvirt_query.of_all(self._connection, libvirt_query.found))

    def user(self, path: str, but: str) -> str | None:
        """Who uses a file, but the guest with this UUID; all guests are asked once, however many have disks."""
        return self._users("").of(path, but=but or None)

    @asked
    def files(self, pool: str) -> dict[str, int]:
        if group := self.group(pool):  # libvirt does not list thin volumes
            return files_lvm.volumes(group.name, str(self.pool(pool).path))
        paths = [volume.path() for _ref, volume in libvirt_volume.volumes(self._connection, pool, None, [])]
        shown = [path for path in paths if not os.path.basename(path).startswith(".")]
        return {path: self.taken_bytes(path) for path in shown if os.path.isfile(path)}

    def which(self, path: str) -> t.Hashable:
        try:
            found = os.stat(path)
        except OSError:
            return None
        return ("device", found.st_rdev) if stat.S_ISBLK(found.st_mode) else (found.st_dev, found.st_ino)

    @asked
    def storage(self, pool: PoolDirectory) -> t.Hashable:
        group = self.group(pool.name)
        return group.name if group else os.stat(str(pool.path)).st_dev
