# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The identity of a file, independent of its name, and disks that were created for a guest."""

from __future__ import annotations

import dataclasses
import hashlib

LOGICAL = "LVM-"  # before the UUIDs of a logical volume
_UUID_CHARACTERS = 32
EDITED = "edited"  # instead of the UUID of a guest


@dataclasses.dataclass(frozen=True)
class FileIdentity:
    """What distinguishes a file from others of its name; not its device number, which changes by the mount.

    A logical volume has its UUID as `mark`, after that of its group where that is known, and 0 as `inode`.
    """

    inode: int
    born_ns: int | None = None  # None: the filesystem does not tell
    mark: str | None = None  # random, an attribute that whoever created it for a guest gave it

    @property
    def is_known(self) -> bool:
        """True if more is known than the inode, which filesystems reuse."""
        return self.born_ns is not None or self.mark is not None

    def is_same(self, other: FileIdentity) -> bool:
        """True if both are one file, by all that is known of both; an inode alone is reused."""
        pairs = ((self.born_ns, other.born_ns), (_unprefixed(self.mark), _unprefixed(other.mark)))
        known = [(one, two) for one, two in pairs if one is not None and two is not None]
        return self.inode == other.inode and all(one == two for one, two in known)


def _unprefixed(mark: str | None) -> str | None:
    """The mark; of a logical volume without the UUID of its group, which another host's libvirt does not tell."""
    return mark[-_UUID_CHARACTERS:] if mark and mark.startswith(LOGICAL) else mark


@dataclasses.dataclass(frozen=True)
class OwnedVolume:
    """An entry of a guest's record: a disk that was created for it, and is removed with it.

    People copy definitions, records included. So an entry counts only for the guest and the host that it names.
    There is no identity if the file was on another machine when the entry was written, or is no file.
    Older versions wrote the path alone. An edited entry has a guest that does not exist.
    """

    path: str
    guest: str | None = None  # UUID
    host: str = ""  # UUID
    identity: FileIdentity | None = None

    @property
    def seal(self) -> str:
        """A digest of the entry: an editor that replaces a UUID or a name in the whole document does not update it."""
        found = self.identity
        told = (self.path, self.guest, self.host, *((found.inode, found.born_ns, found.mark) if found else ()))
        return hashlib.sha256("\n".join(map(str, told)).encode()).hexdigest()[:16]

    def is_of(self, guest: str, host: str) -> bool:
        """True if the entry was written for that guest on that host."""
        return (self.guest, self.host) == (guest, host)
