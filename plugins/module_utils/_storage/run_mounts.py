# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of `virt_mounts`, and how it converges."""

from __future__ import annotations

import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import changes
from ansible_collections.corral.virt.plugins.module_utils._core.asking import asked
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate, Looked
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_luks,
    files_mount,
    libvirt_mount,
    plan_mount,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.files_pool import content
from ansible_collections.corral.virt.plugins.module_utils._storage.model_mount import Luks, Mounted, UnitFile
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

    @asked
    def unit(self, path: str) -> UnitFile:
        return files_mount.unit(path)

    @asked
    def mounted(self, path: str) -> Mounted | None:
        return files_mount.mounted(path)

    def fstab(self, path: str) -> int | None:
        return files_mount.fstab(path)

    def real(self, path: str) -> str:
        return os.path.realpath(path)

    def entries(self, path: str) -> list[str] | None:
        return files_mount.entries(path)

    @asked
    def device(self, src: str) -> str | None:
        return files_mount.device(src)

    @asked
    def filesystem(self, device: str) -> str | None:
        return files_mount.filesystem(device)

    @asked
    def opened(self, device: str) -> list[str]:
        return dm_crypt.below(device)

    def holders(self, device: str) -> list[str]:
        return dm_crypt.holders(device)

    @asked
    def luks(self, device: str) -> Luks:
        return files_luks.luks(device)

    @asked
    def is_opened_by(self, device: str, passphrase: str) -> bool:
        return files_luks.is_opened_by(device, passphrase)

    def free_bytes(self, file: str) -> int:
        return files_luks.free_bytes(file)

    def content(self, device: str) -> str | None:
        return content(device)

    def users(self, path: str) -> list[str]:
        return libvirt_mount.users(path)


def _still_empty(step: plan_mount.MakeFilesystem) -> None:
    device = _device(step.device)
    plan_mount.check_empty(step, content(device), files_mount.filesystem(device))


def _still_keyless(step: plan_mount.EncryptDevice) -> None:
    device = _device(step.device)
    plan_mount.check_keyless(step, files_luks.luks(device), content(device))


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
    plan_mount.EnableUnit: lambda step: files_mount.enable(step.unit),
    plan_mount.Mount: _mount,
    plan_mount.Unmount: Looked(
        lambda step: plan_mount.check_unused(step.path, libvirt_mount.users(step.path)),
        lambda step: files_mount.unmount(step.unit),
    ),
    plan_mount.CloseDevice: lambda step: files_luks.close(os.path.basename(step.mapped)),
    plan_mount.RemoveUnit: Looked(
        lambda step: plan_mount.check_ours(step, files_mount.text(step.file)),
        lambda step: files_mount.remove_unit(step.unit, step.file, step.path),
    ),
}
