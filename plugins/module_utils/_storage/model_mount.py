# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filesystems that systemd mounts for pools, and what is found of them on a host."""

from __future__ import annotations

import dataclasses
import typing as t

MARK = "# Managed by corral.virt (virt_mounts): what you change here is lost."
# How a filesystem is made on a device. No discard: it can take hours, and the device is said to be empty.
MADE_BY: dict[str, tuple[str, ...]] = {
    "ext4": ("mkfs.ext4", "-q", "-E", "nodiscard"),
    "xfs": ("mkfs.xfs", "-q", "-K"),
}


@dataclasses.dataclass(frozen=True)
class MountSpec:
    """One filesystem, as the user describes it."""

    path: str
    src: str = ""
    fstype: str = ""
    options: tuple[str, ...] = ()
    build: bool = False
    absent: bool = False
    closed: bool = False  # absent for now: its unit stays
    passphrase: str = dataclasses.field(default="", repr=False)  # of the LUKS device; empty: it is not encrypted
    size_bytes: int = 0  # of the image that is made; 0: none is

    @property
    def is_image(self) -> bool:
        """True if its source is a file."""
        return bool(self.passphrase) and self.src.startswith("/") and not self.src.startswith("/dev/")


@dataclasses.dataclass(frozen=True)
class Luks:
    """What the header of a LUKS device tells."""

    unfinished: bool = False  # this collection made it, and no filesystem yet
    has_key: bool = True  # else nobody could ever read or write it


@dataclasses.dataclass(frozen=True)
class Mounted:
    """What the kernel says is mounted at a path."""

    source: str
    fstype: str
    readonly: bool = False


@dataclasses.dataclass(frozen=True)
class UnitFile:
    """A systemd unit: its file in /etc, and the one that systemd reads (empty: none)."""

    name: str
    path: str
    text: str | None = None  # of the file in /etc; None: there is no such file
    read_from: str = ""
    enabled: bool = False

    @property
    def ours(self) -> bool:
        """True if this collection wrote it."""
        return self.text is not None and self.text.startswith(MARK)

    @property
    def foreign(self) -> str:
        """The file of somebody else that defines the unit; empty if there is none."""
        if self.text is not None:
            return "" if self.ours else self.path
        return self.read_from


class MountHost(t.Protocol):
    """What a plan asks of the host."""

    def unit(self, path: str) -> UnitFile:
        """The mount unit of a path."""

    def mounted(self, path: str) -> Mounted | None:
        """What is mounted there."""

    def fstab(self, path: str) -> int | None:
        """The number of the line of /etc/fstab that mounts something there."""

    def real(self, path: str) -> str:
        """The path without symbolic links."""

    def entries(self, path: str) -> list[str] | None:
        """Names in a directory; None if it does not exist. Raises Failed where it is something else."""

    def device(self, src: str) -> str | None:
        """The device that a source such as UUID=... names; None if there is none."""

    def filesystem(self, device: str) -> str | None:
        """The type of the filesystem on a device."""

    def opened(self, device: str) -> list[str]:
        """What a device of dm-crypt lies on; empty if it is not open."""

    def holders(self, device: str) -> list[str]:
        """What is open on a device or image file."""

    def luks(self, device: str) -> Luks:
        """What the header of a LUKS device tells."""

    def is_opened_by(self, device: str, passphrase: str) -> bool:
        """True if the passphrase is that of a LUKS device."""

    def free_bytes(self, file: str) -> int:
        """Room for an image file."""

    def content(self, device: str) -> str | None:
        """Why a device is not an empty one, in words."""

    def users(self, path: str) -> list[str]:
        """Pools and guests that have something there."""
