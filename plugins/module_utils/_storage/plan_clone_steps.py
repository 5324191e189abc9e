# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps on one disk of a pool."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.step import Look, Step
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text
from ansible_collections.corral.virt.plugins.module_utils._storage.model_clone import BaseImage


@dataclasses.dataclass(frozen=True)
class CloneStep(Step):
    """One change of one disk."""

    doing: t.ClassVar[str] = ""  # what is told of work that may take long
    path: str


@dataclasses.dataclass(frozen=True)
class _Sized(CloneStep):
    size_bytes: int

    @property
    def size(self) -> str:
        """The size as text."""
        return bytes_text(self.size_bytes)


@dataclasses.dataclass(frozen=True)
class Overlay(_Sized):
    """Make the disk: what is written goes into it, the rest is read from the image."""

    template = "create disk {0.path} ({0.size}, {0.format}, on {0.base.path})"
    base: BaseImage
    format: str


class Copy(Overlay):
    """Make the disk: all of the image, and nothing below."""

    template = "create disk {0.path} ({0.size}, {0.format}, copy of {0.base.path})"
    doing = "copying"

    def resize(self, path: str) -> Grow | None:
        """The step that gives a full copy its size; None if it has that already."""
        if self.size_bytes > self.base.size_bytes:
            return Grow(path, self.size_bytes, self.format)
        return Shrink(path, self.size_bytes, self.format) if self.size_bytes < self.base.size_bytes else None


@dataclasses.dataclass(frozen=True)
class Grow(_Sized):
    """Enlarge a disk that nobody has open."""

    template = "grow disk {0.path} to {0.size}"
    format: str


class Shrink(Grow):
    """Cut off the end of a disk that nobody has open."""

    template = "shrink disk {0.path} to {0.size}"


@dataclasses.dataclass(frozen=True)
class GrowLive(_Sized):
    """Enlarge the disk of a running guest, which sees it at once."""

    template = "grow disk {0.path} to {0.size} while {0.guest} runs"
    guest: str
    uuid: str
    target: str


@dataclasses.dataclass(frozen=True)
class Forget(CloneStep):
    """Take the backing file of a disk out of a definition: the disk itself names it, and is about to get another."""

    template = "define {0.guest} (the backing file of {0.path} is read from the disk)"
    look: t.ClassVar[Look | None] = Look(
        at="UUID, and the whole stored definition",
        holds="the guest's lock on this host",
        leaves="the guest as others have changed it, and the disk on its backing file",
        by=("uuid", "seen"),
    )
    guest: str
    uuid: str
    seen: str  # the digest of its definition in the plan
    xml: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class RebaseDisk(CloneStep):
    """Let the disk stand on another image; what differs is copied into it first, so its content stays."""

    template = "rebase disk {0.path} on {0.base.path}"
    doing = "rebasing"
    base: BaseImage


class Flatten(CloneStep):
    """Copy all the disk reads from below into it."""

    template = "flatten disk {0.path}"
    doing = "flattening"


@dataclasses.dataclass(frozen=True)
class Pull(CloneStep):
    """Flatten a disk of a running guest with a block job."""

    template = "flatten disk {0.path} while {0.guest} runs"
    doing = "flattening"
    guest: str
    uuid: str
    target: str
    timeout_s: int


class Remove(CloneStep):
    """Remove a file."""

    look = Look(
        at="who uses it, as for the disk of a guest that is deleted",
        holds="the lock of its name, and the file, moved to .corral/.removed of its directory",
        leaves="the disk, under its name; its user",
    )

    template = "remove {0.path}"
