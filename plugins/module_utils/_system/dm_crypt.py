# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel says a file lies on, and whether dm-crypt encrypts it."""

from __future__ import annotations

import glob
import os
import stat

from ansible_collections.corral.virt.plugins.module_utils._system.command import answer

_BLOCK = "/sys/dev/block"
_BTRFS = "/sys/fs/btrfs"
_NOT_SECRET = ("CRYPT-VERITY-", "CRYPT-INTEGRITY-")  # targets of cryptsetup that hide nothing


def unencrypted(path: str) -> str:
    """What a directory lies on, such as `ext4 of /dev/sda1`; empty if all of that is encrypted by dm-crypt."""
    if _lies_on_dm_crypt(path):
        return ""
    source, kind = _mounted(path)
    return f"{kind} of {source}"


def below(device: str) -> list[str]:
    """The devices that an open device lies on, such as the loop of an image file; empty if it is not open."""
    if not os.path.exists(device):
        return []
    return [f"/dev/{name}" for name in _names(f"{_place(os.stat(device).st_rdev)}/slaves")]


def holders(device: str) -> list[str]:
    """Devices that are open on a device or image file."""
    found = os.stat(device)
    if not stat.S_ISBLK(found.st_mode):
        return answer("losetup", "--noheadings", "--output=NAME", "--associated", device).split()
    return [_device(name) for name in _names(f"{_place(found.st_rdev)}/holders")]


def _device(name: str) -> str:
    mapped = _text(f"/sys/class/block/{name}/dm/name")
    return f"/dev/mapper/{mapped}" if mapped else f"/dev/{name}"


def _lies_on_dm_crypt(path: str) -> bool:
    number = os.stat(path).st_dev
    if os.path.exists(_place(number)):
        return is_encrypted(_place(number))
    source, _kind = _mounted(path)  # a filesystem with a number of its own, such as btrfs or NFS
    if not source.startswith("/dev/"):
        return False
    own = os.path.basename(os.path.realpath(source))
    members = [names for names in map(_names, glob.glob(f"{_BTRFS}/*/devices")) if own in names]
    return all(is_encrypted(f"/sys/class/block/{name}") for name in (members[0] if members else [own]))


def is_encrypted(place: str) -> bool:
    """True if nothing gets past dm-crypt to what a block device (its directory in /sys) lies on: volumes, arrays,
    partitions, images.
    """
    name = _text(f"{place}/dm/uuid")
    if name.startswith("CRYPT-") and not name.startswith(_NOT_SECRET):
        return True
    if os.path.exists(f"{place}/partition"):
        return is_encrypted(os.path.dirname(os.path.realpath(place)))
    image = _text(f"{place}/loop/backing_file")
    if image:
        return os.path.exists(image) and _lies_on_dm_crypt(image)
    members = _names(f"{place}/slaves")
    return bool(members) and all(is_encrypted(f"{place}/slaves/{each}") for each in members)


def _mounted(path: str) -> tuple[str, str]:
    """Source and type of the filesystem of a path."""
    found = answer("findmnt", "--noheadings", "--raw", "--nofsroot", "--output=SOURCE,FSTYPE", "--target", path)
    source, _space, kind = found.strip().rpartition("\n")[2].partition(" ")
    return source, kind


def _place(number: int) -> str:
    return f"{_BLOCK}/{os.major(number)}:{os.minor(number)}"


def _names(place: str) -> list[str]:
    return sorted(os.listdir(place)) if os.path.isdir(place) else []


def _text(file: str) -> str:
    """The line in a file of the kernel; empty if there is none."""
    if not os.path.exists(file):
        return ""
    with open(file, encoding="utf-8", errors="surrogateescape") as stream:
        return stream.read().rstrip("\n")
