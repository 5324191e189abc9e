# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of `virt_mounts`, and how it converges."""

from __future__ import annotations

import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import changes
from ansible_collections.corral.virt.plugins.module_utils._core.cached_answers import asked_of
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate, Looked
from ansible_collections.corral.virt.plugins.module_utils._host import files_systemd
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_luks,
    files_mount,
    files_pool,
    libvirt_mount,
    plan_mount,
)
from ansible_collections.corral.virt.plugins.module_utils._system import dm_crypt

OPTIONS: dict[str, t.Any] = {
    "mounts": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "path": {"type": "str", "required": True},
            "src": {"type": "str"},
            "fstype": {"type": "str"},
            "options": {"type": "list", "elements": "str"},
            "build": {"type": "bool", "default": False},
            "passphrase": {"type": "str", "no_log": True},
            "size": {"type": "str"},
            "state": {"type": "str", "choices": ["mounted", "closed", "absent"], "default": "mounted"},
        },
    },
}


def converge(params: t.Mapping[str, t.Any], gate: Gate) -> dict[str, t.Any]:
    """Read facts, plan, run the steps, and return the result."""
    plan = plan_mount.decide(plan_mount.specs(params["mounts"]), _Host())
    told = gate.run(plan.steps, lambda step: _DOERS[type(step)](step))
    return {
        "changed": bool(plan.steps),
        "diff": changes.diff(plan.changes),
        "steps": [str(step) for step in plan.steps],
        "pending": list(plan.pending),
        "notes": [*plan.notes, *(note for note in told if isinstance(note, str))],
    }


class _Host:
    """The `MountHost` that this machine is."""

    unit = asked_of(files_mount.unit)
    mounted = asked_of(files_mount.mounted)
    fstab = staticmethod(files_mount.fstab)
    entries = staticmethod(files_mount.entries)
    device = asked_of(files_mount.device)
    filesystem = asked_of(files_mount.filesystem)
    opened = asked_of(dm_crypt.below)
    holders = staticmethod(dm_crypt.holders)
    luks = asked_of(files_luks.luks)
    is_opened_by = asked_of(files_luks.is_opened_by)
    free_bytes = staticmethod(files_luks.free_bytes)
    content = staticmethod(files_pool.content)
    users = staticmethod(libvirt_mount.users)

    def real(self, path: str) -> str:
        return os.path.realpath(path)


def _still_empty(step: plan_mount.MakeFilesystem) -> None:
    device = _device(step.device)
    plan_mount.check_empty(step, files_pool.content(device), files_mount.filesystem(device))


def _still_keyless(step: plan_mount.EncryptDevice) -> None:
    device = _device(step.device)
    plan_mount.check_keyless(step, files_luks.luks(device), files_pool.content(device))


def _device(src: str) -> str:
    return files_mount.device(src) or src


def _make(step: plan_mount.MakeFilesystem) -> None:
    device = _device(step.device)
    if files_mount.filesystem(device) is None:
        files_mount.make_filesystem(device, step.fstype)
    if step.luks:
        files_luks.label_finished(_device(step.luks))


def _open(step: plan_mount.OpenDevice) -> None:
    files_luks.open_device(_device(step.device), os.path.basename(step.mapped), step.passphrase)


def _mount(step: plan_mount.Mount) -> None:
    files_mount.mount(step.unit)
    plan_mount.check_mounted(step, files_mount.mounted(step.path))


_DOERS: dict[type[plan_mount.MountStep], t.Callable[[t.Any], object]] = {
    plan_mount.CreateImage: lambda step: files_luks.create_image(step.file, step.size_bytes, step.passphrase),
    plan_mount.EncryptDevice: Looked(
        _still_keyless, lambda step: files_luks.encrypt(_device(step.device), step.passphrase)
    ),
    plan_mount.OpenDevice: _open,
    plan_mount.MakeFilesystem: Looked(_still_empty, _make),
    plan_mount.MakeMountPoint: lambda step: files_mount.make_mount_point(step.path),
    plan_mount.WriteUnit: lambda step: files_mount.write_unit(step.file, step.text),
    plan_mount.EnableUnit: lambda step: files_systemd.enable([step.unit]),
    plan_mount.Mount: _mount,
    plan_mount.Unmount: Looked(
        lambda step: plan_mount.check_unused(step.path, libvirt_mount.users(step.path)),
        lambda step: files_systemd.stop(step.unit),
    ),
    plan_mount.CloseDevice: lambda step: files_luks.close(os.path.basename(step.mapped)),
    plan_mount.RemoveUnit: Looked(
        lambda step: plan_mount.check_ours(step, files_mount.text(step.file)),
        lambda step: files_mount.remove_unit(step.unit, step.file, step.path),
    ),
}
