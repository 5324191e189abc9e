# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which disks are a guest's own, by its record: a disk in doubt is never deleted with the guest. Pure."""

from __future__ import annotations

import dataclasses
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import (
    EDITED,
    FileIdentity,
    OwnedVolume,
)


@dataclasses.dataclass(frozen=True)
class Owner:
    """A guest on a host, and the paths of the disks that its definition names."""

    name: str
    guest: str  # UUID
    host: str  # UUID
    disks: t.Collection[str] = ()

    def made(self, path: str) -> OwnedVolume:
        """The entry of a disk that this run makes; its identity is added once it is made."""
        return OwnedVolume(path, self.guest, self.host)


NOBODY = Owner("", "", "")


def counted(entries: t.Iterable[OwnedVolume], owner: Owner) -> tuple[str, ...]:
    """Paths of the entries that are not another guest's or another host's."""
    return tuple(one.path for one in entries if one.guest is None or one.is_of(owner.guest, owner.host))


def incomplete(entries: t.Iterable[OwnedVolume], owner: Owner, *, making: t.Collection[str] = ()) -> tuple[str, ...]:
    """Paths of the guest's disks whose entry is from an older version, without those that are being made.

    An entry that came with a migration counts by guest and host: to complete it would be a change in a run that has
    nothing to do.
    """
    return tuple(
        one.path for one in entries if one.guest is None and one.path in owner.disks and one.path not in making
    )


def tells(entries: t.Iterable[OwnedVolume], path: str, found: FileIdentity | None) -> bool:
    """True if the file at a path adds to what its entry says."""
    return bool(found and found.is_known) or any(one.path == path and one.guest is None for one in entries)


def adopted(
    entries: t.Sequence[OwnedVolume],
    owner: Owner,
    files: t.Mapping[str, FileIdentity | None],
    in_use: t.Collection[str],
) -> tuple[OwnedVolume, ...]:
    """The entries, with those completed whose disks only the guest uses.

    `files` maps the paths of incomplete ones to their files: None if unknown, no entry if there is none.
    """

    def completed(one: OwnedVolume) -> OwnedVolume:
        if one.path not in files or one.path in in_use:
            return one
        found = files[one.path]
        return OwnedVolume(one.path, owner.guest, owner.host, found if found and found.is_known else None)

    return tuple(map(completed, entries))


def doubt(entry: OwnedVolume, owner: Owner, found: FileIdentity | None) -> str:
    """Why a recorded disk is not deleted with the guest; empty if it is the guest's own. `found` is the file there."""
    if entry.guest is None:
        adopt = shlex.join(["ansible", "HOST", "-m", "corral.virt.virt_domain", "-a", f"name={owner.name}"])
        return (
            f"its entry is of an older version, and does not tell which file was created for {owner.name}; to have it "
            f"completed before the guest is removed: {adopt}"
        )
    if entry.guest == EDITED:
        return "its entry was edited, as when a definition is copied"
    if entry.guest != owner.guest:
        return f"it was created for the guest with UUID {entry.guest}; this definition is a copy"
    if entry.host != owner.host:
        return f"it was created on the host with UUID {entry.host}, and this definition was brought here by hand"
    if entry.path not in owner.disks:
        return f"{owner.name} does not have it any more"
    if entry.identity and found and not entry.identity.is_same(found):
        return f"another file than the one that was created for {owner.name} has this name"
    return ""
