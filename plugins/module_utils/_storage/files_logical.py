# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logical volumes as disks: created and filled, or enlarged; a guest never reads there what was stored before."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, NotMade
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import owner_tag
from ansible_collections.corral.virt.plugins.module_utils._storage import files_lvm, files_qemu_img
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_steps import (
    CreateLogicalVolume,
    GrowLogicalVolume,
    GrowThinVolume,
)
from ansible_collections.corral.virt.plugins.module_utils._system import command, durable, locks
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import explained

_UNREADY = "corral.unready.from."
_BLKZEROOUT = 0x127F
_PIECE, _BLOCK = 256 * 1024**2, 4096


def group(name: str) -> dict[str, t.Any] | None:
    """Name, extent size and free bytes of a volume group; None if there is none, or nobody may ask."""
    for row in files_lvm.rows("vg", "vgs", "vg_name,vg_extent_size,vg_free", "--", name):
        sizes = {"extent_bytes": row["vg_extent_size"], "free_bytes": row["vg_free"]}
        return {"name": row["vg_name"], **{field: int(float(size)) for field, size in sizes.items()}}
    return None


def create(step: CreateLogicalVolume, uuid: str) -> None:
    """Create a volume for the guest with this UUID, whole on disk; raises NotMade if there is one of its name."""
    volume = step.volume
    what = f"disk {volume.path} of {step.guest}"
    make(step.group, volume.name, volume.capacity_bytes, (owner_tag(uuid),), what, step.thin_pool)
    if volume.copy_of:
        before = locks.sectors_written(volume.copy_of)
        empty = bool(step.thin_pool)
        files_qemu_img.convert_onto(volume.copy_of, volume.path, from_format=step.copy_format, empty=empty)
        if locks.sectors_written(volume.copy_of) != before:
            raise Failed(
                f"cannot copy {volume.copy_of} for {step.guest}: it was written while it was copied; shut down who "
                "uses it, and run again"
            )
    if not step.thin_pool:
        zero(volume.path, step.copy_bytes, volume.capacity_bytes)
    durable.fsync(volume.path)


def make(group: str, name: str, size_bytes: int, tags: t.Sequence[str], what: str, thin_pool: str = "") -> None:
    """Create a volume with these tags; a thin one reads as zeros. Raises NotMade if there is one of its name."""
    size = ("--size", f"{size_bytes}b", "--wipesignatures", "y")
    if thin_pool:
        size = ("--virtualsize", f"{size_bytes}b", "--thinpool", thin_pool)
    tagged = [word for tag in tags for word in ("--addtag", tag)]
    try:
        command.run("lvcreate", "--yes", "--quiet", *size, *tagged, "--name", name, "--", group)
    except Failed as error:
        raise NotMade(
            f"cannot create {what}: {error}; inspect its volume group (lvs {group}), and run again"
        ) from error


def remove(path: str) -> None:
    """Remove a volume; LVM refuses one that somebody has open."""
    command.run("lvremove", "--quiet", "--yes", "--", path)


def untag(path: str, tag: str) -> None:
    """Remove a tag from a volume."""
    command.run("lvchange", "--quiet", "--deltag", tag, "--", path)


def grow(step: GrowLogicalVolume) -> None:
    """Enlarge a volume. Until what it gets is zeros, a tag tells where that begins."""
    tag = f"{_UNREADY}{step.before_bytes}"
    command.run("lvchange", "--quiet", "--addtag", tag, "--", step.path)
    if size_bytes(step.path) < step.size_bytes:  # else an interrupted run has enlarged it
        command.run("lvextend", "--quiet", "--size", f"{step.size_bytes}b", "--", step.path)
    zero(step.path, step.before_bytes, step.size_bytes)
    durable.fsync(step.path)
    untag(step.path, tag)


def grow_thin(step: GrowThinVolume) -> None:
    """Enlarge a thin volume."""
    command.run("lvextend", "--quiet", "--size", f"{step.size_bytes}b", "--", step.path)


def ready_bytes(path: str) -> int:
    """The size of a volume without what an interrupted run has added and not made zeros."""
    begins = [int(tag[len(_UNREADY) :]) for tag in files_lvm.tags(path) if re.fullmatch(f"{_UNREADY}[0-9]+", tag)]
    return min([size_bytes(path), *begins])


def size_bytes(path: str) -> int:
    """The size of a block device."""
    with _opened(path, os.O_RDONLY) as device:
        return device.seek(0, os.SEEK_END)


def zero(path: str, start: int, end: int) -> None:
    """Let a device read as zeros from `start` to `end`; the storage does that by itself if it can."""
    with explained(f"write zeros to {path}", path), _opened(path, os.O_WRONLY) as device:
        first = min(-(-start // _BLOCK) * _BLOCK, end)
        os.pwrite(device.fileno(), bytes(first - start), start)
        for at in range(first, end, _PIECE):
            fcntl.ioctl(device, _BLKZEROOUT, struct.pack("QQ", at, min(_PIECE, end - at)))


def _opened(path: str, flags: int) -> t.BinaryIO:
    return t.cast(t.BinaryIO, os.fdopen(os.open(path, flags | os.O_CLOEXEC), "rb" if flags == os.O_RDONLY else "wb", 0))
