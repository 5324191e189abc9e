# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A disk of a pool, as wanted and as found, and the image it is created from or backed by."""

from __future__ import annotations

import dataclasses
import os.path


@dataclasses.dataclass(frozen=True)
class BaseImage:
    """An image: `path` is its content, never the link that may point elsewhere one day."""

    name: str
    path: str
    format: str
    size_bytes: int
    chain: tuple[str, ...]  # itself and all it stands on
    uses: tuple[Use, ...] = ()  # none of an immutable one: everybody may have it
    locked: bool = False


@dataclasses.dataclass(frozen=True)
class Use:
    """How a guest of this host uses a file."""

    guest: str
    uuid: str
    state: str  # running, saved (what it ran with waits on disk), or off
    target: str | None = None  # where the running guest writes it (vda); None: beneath another image, or read-only
    # its definition without what that says the file stands on
    forget_xml: str | None = dataclasses.field(default=None, repr=False)
    seen: str = dataclasses.field(default="", repr=False)  # the digest of its definition as it is

    @property
    def busy(self) -> bool:
        """True if the guest would notice a change of the file."""
        return self.state != "off"


@dataclasses.dataclass(frozen=True)
class CloneSpec:
    """What the user wants of one disk."""

    name: str
    state: str
    directory: str
    format: str
    base: BaseImage | None = None
    copy: bool = False
    size_bytes: int | None = None
    allow_shrink: bool = False
    remove_storage: bool = False
    timeout_s: int = 0
    reserve_bytes: int | None = None  # of room that stays free; None: as always

    @property
    def path(self) -> str:
        """The path of the disk."""
        return os.path.join(self.directory, self.name)


@dataclasses.dataclass(frozen=True)
class FoundDisk:
    """What is at the disk's path: nothing, a file, a link, or something else."""

    kind: str
    format: str = ""
    size_bytes: int = 0
    backing: str | None = None  # the file it stands on, as it says itself
    unknown_base: str = ""  # a file below it that neither a guest's definition nor a manifest vouches for
    snapshots: bool = False  # kept inside
    uses: tuple[Use, ...] = ()
    overlays: tuple[str, ...] = ()  # images that stand on it
    locked: bool = False  # a process has it open
    lacks_room: str = ""  # why its filesystem cannot take what is to be written now
    left: str | None = None  # by a run that was killed while making it
