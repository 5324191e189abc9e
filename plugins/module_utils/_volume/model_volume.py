# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a volume is, and what is seen around it."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import ObjectKind

VOLUME_KIND = ObjectKind(
    "volume",
    within="pool",
    uuid=False,
    redefine=False,
    volatile=("allocation", "physical", "target/timestamps", "target/permissions"),
)
UNFINISHED = ".corral-unfinished"  # ends the name of the small volume beside one whose content is not complete


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """A file to upload."""

    size_bytes: int
    allocated_bytes: int
    format: str
    capacity_kib: int  # what a guest sees of it
    names: str | None = None  # other files that it names


@dataclasses.dataclass(frozen=True)
class CloneSource:
    """A volume to clone."""

    path: str
    capacity_kib: int
    encrypted: bool = False


Verb = t.Literal["create", "delete", "resize", "upload", "download", "clone", "back", "encrypt"]


class PoolVolumes(t.NamedTuple):
    """What this module does with volumes of pools of one type, and where the rest is done."""

    verbs: frozenset[Verb] = frozenset()
    otherwise: str = ""


_FILES = PoolVolumes(frozenset(t.get_args(Verb)))
_OF_THE_TARGET = "its volumes are what the storage offers: create, resize and remove them there, and refresh the pool"
_BY_VIRSH = "libvirt itself can: virsh vol-create-as, vol-delete"
POOLS: dict[str, PoolVolumes] = {
    "dir": _FILES,
    "fs": _FILES,
    "netfs": _FILES,
    "logical": PoolVolumes(frozenset({"create", "delete"}), "lvextend and lvreduce resize one, dd copies one"),
    "disk": PoolVolumes(otherwise=_BY_VIRSH),
    "rbd": PoolVolumes(otherwise=f"{_BY_VIRSH}, vol-resize"),
    "zfs": PoolVolumes(otherwise=_BY_VIRSH),
    "gluster": PoolVolumes(otherwise="mount it (virt_pool with type: netfs and source.format: glusterfs)"),
    "iscsi": PoolVolumes(otherwise=_OF_THE_TARGET),
    "iscsi-direct": PoolVolumes(otherwise=_OF_THE_TARGET),
    "scsi": PoolVolumes(otherwise=_OF_THE_TARGET),
    "mpath": PoolVolumes(otherwise=_OF_THE_TARGET),
}
