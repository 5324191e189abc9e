# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide where in a pool a disk goes that moves: its name and format there, and what it takes. Pure."""

from __future__ import annotations

import dataclasses
import os.path
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import VolumeGroup
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity

_ENDINGS = {".qcow2": "qcow2", ".img": "raw", ".raw": "raw"}
_LOGICAL_NAME = re.compile(r"[A-Za-z0-9+_.][A-Za-z0-9+_.-]{0,99}")


class DiskFile(t.NamedTuple):
    """The file or device of a disk: what it takes, how large the guest sees it, what it stands on, and which it is."""

    allocated_bytes: int
    capacity_bytes: int
    format: str  # as its first bytes say
    backing: str | None
    backing_format: str | None
    data_file: str | None
    encrypted: bool
    identity: FileIdentity | None
    is_device: bool = False
    opened: bool = False  # a device that a process has open


@dataclasses.dataclass(frozen=True)
class DiskPlace:
    """Where the disk goes."""

    pool: PoolDirectory
    path: str
    format: str
    group: VolumeGroup | None = None  # of a pool of type logical
    thin_pool: str | None = None  # in that group

    @property
    def name(self) -> str:
        """The name of the volume."""
        return os.path.basename(self.path)

    @property
    def is_logical(self) -> bool:
        """True for a logical volume."""
        return self.pool.type == "logical"

    def keeps(self, file: DiskFile) -> bool:
        """True if the copy is a file like the old one, on the same image; else only what the guest sees is copied."""
        return self.format == file.format and not (file.is_device or self.is_logical)

    def capacity_bytes(self, file: DiskFile) -> int:
        """The size that the guest sees: a logical volume has whole extents."""
        return self.group.rounded(file.capacity_bytes) if self.group else file.capacity_bytes

    def needed_bytes(self, file: DiskFile, copied_bytes: int) -> int:
        """What the disk takes there: all its size of a volume group, and else what is copied."""
        return self.capacity_bytes(file) if self.group and not self.thin_pool else copied_bytes


def place_in(
    pool: PoolDirectory,
    source: str,
    form: str,
    wanted: str | None = None,
    group: VolumeGroup | None = None,
    thin_pool: str | None = None,
    *,
    is_thin: bool = False,
) -> DiskPlace:
    """Where a disk with that file or device and format goes; in its own pool, beside itself. `is_thin`: it is a volume
    of that thin pool.
    """
    becomes = "raw" if pool.type == "logical" else wanted or form
    name = _name(os.path.basename(source), pool, same=becomes == form and not source.startswith("/dev/"), form=becomes)
    path = os.path.join(str(pool.path), name)
    if path == source and becomes != form:
        path += _ending(becomes)
    elif path == source and thin_pool and not is_thin:
        path += f".{thin_pool}"
    return DiskPlace(pool, path, becomes, group, thin_pool)


def _name(name: str, pool: PoolDirectory, *, same: bool, form: str) -> str:
    if same and pool.type != "logical":
        return name
    stem, ending = os.path.splitext(name)
    stem = stem if ending in _ENDINGS else name
    return stem if pool.type == "logical" else stem + _ending(form)


def _ending(form: str) -> str:
    return next((ending for ending, its in _ENDINGS.items() if its == form), "." + form)


def format_problems(
    cannot: str, place: DiskPlace, form: str, wanted: str | None, *, is_seed: bool
) -> t.Iterator[VirtError]:
    """Why a disk with the format `form` cannot have that one there, or that name."""
    if is_seed and (place.is_logical or place.format != form):
        yield Refused(
            f"{cannot}: a disk that is only read, as a seed of cloud-init, stays the file that it is; omit format, and "
            "choose a pool of type dir, fs or netfs"
        )
    if place.thin_pool and not place.is_logical:
        yield Refused(
            f"{cannot}: it is of type {place.pool.type}, and thin pools are in pools of type logical; omit thin_pool, "
            "or choose such a pool"
        )
    if place.is_logical and wanted not in (None, "raw"):
        yield Refused(f"{cannot} as {wanted}: a logical volume is always raw; omit format")
    if place.is_logical and place.group is None:
        yield Refused(
            f"{cannot}: volume group {place.pool.group} cannot be read from here; run the module on the hypervisor, as "
            "root, with lvm2 installed"
        )
    if place.is_logical and not _LOGICAL_NAME.fullmatch(place.name):
        yield Refused(
            f"{cannot}: {place.name} is no name for a logical volume (letters, digits, and + _ . -); rename the file "
            "while the guest is off"
        )


def cannot_grow(
    cannot: str, place: DiskPlace, file: DiskFile, group: VolumeGroup | None, *, is_thin: bool
) -> t.Iterator[VirtError]:
    """Why the device of a running guest cannot get the size that it has there, as it must for QEMU; `group` has it."""
    size = place.capacity_bytes(file)
    more = size - file.capacity_bytes
    lacks = group is not None and not is_thin and group.free_bytes < more
    if more and (group is None or group.rounded(size) != size or lacks):
        where = f"in volume group {group.name}" if group else "where it is"
        yield Refused(
            f"{cannot}: it has {bytes_text(size)} there, and while the guest runs its disk must first grow to that, "
            f"which it cannot {where}; shut the guest down, and run again"
        )


def lack_of_room(
    cannot: str, place: DiskPlace, needed_bytes: int, free_bytes: int, *, beside: bool, flattens: str
) -> t.Iterator[VirtError]:
    """Why there is too little room; `beside` other disks that move there."""
    if needed_bytes <= free_bytes:
        return
    takes = f"it takes {bytes_text(needed_bytes)}"
    if flattens and not place.group:
        takes += f" with what it reads of {flattens}"
    others = " beside the other disks that move" if beside else ""
    where, remedy = "there", "make room"
    if place.group:
        where, remedy = f"in volume group {place.group.name}", f"extend it (vgextend {place.group.name} DEVICE)"
    yield Refused(
        f"{cannot}: {takes}, and {bytes_text(free_bytes)} are free {where}{others}; {remedy}, or choose another pool"
    )
