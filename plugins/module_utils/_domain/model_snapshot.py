# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Snapshots of a guest as libvirt has them, and the tree that they form."""

from __future__ import annotations

import dataclasses
import json
import typing as t


@dataclasses.dataclass(frozen=True)
class SnapshotDisk:
    """A disk in a snapshot.

    An external snapshot leaves the content of then in the file that the disk had (`base`), and the guest writes to a
    new file on top of it (`overlay`). An internal one is kept inside the disk's own file.
    """

    target: str
    kind: str  # external, internal, no (left out), manual
    overlay: str | None = None  # of an external one: file or device
    format: str | None = None  # of the overlay
    base: str | None = None  # the file or device that the disk had then
    base_format: str | None = None
    reverted: str | None = None  # the overlay since the guest went back to it, where others stand on `overlay`


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """One snapshot of a guest. Its name may be any text without a slash: virsh and virt-manager create them, too."""

    name: str
    created_s: int = 0  # since the epoch, by the clock of the host
    parent: str | None = None
    current: bool = False  # the guest's disks stand on it
    description: str = ""
    state: str = (
        "shutoff"  # of the guest then: running, paused, shutoff; disk-snapshot: it ran, and memory is not in it
    )
    memory: str = "no"  # no, internal, external
    memory_file: str | None = None
    disks: tuple[SnapshotDisk, ...] = ()
    deleting: bool = False  # libvirt has begun to delete it, and was interrupted
    xml: str = dataclasses.field(default="", repr=False)  # libvirt's document

    @property
    def kind(self) -> str:
        """Internal or external; mixed for both in one; none without disks."""
        found = {disk.kind for disk in self.disks if disk.kind != "no"}
        if self.memory != "no":
            found.add(self.memory)
        if len(found) > 1:
            return "mixed"
        return found.pop() if found else "none"

    @property
    def overlays(self) -> dict[str, str]:
        """The files that the guest writes since then, by target."""
        return {disk.target: disk.overlay for disk in self.disks if disk.kind == "external" and disk.overlay}

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are there for this snapshot: overlays, and a file with memory."""
        reverted = (disk.reverted for disk in self.disks)
        return tuple(filter(None, (*self.overlays.values(), *reverted, self.memory_file)))

    @property
    def ran(self) -> bool:
        """True if the guest ran then."""
        return self.state not in ("shutoff", "crashed")


@dataclasses.dataclass(frozen=True)
class SnapshotRecord:
    """What the guest's record tells of a snapshot, beside what libvirt does."""

    TAKING: t.ClassVar[str] = "taking"  # its files may be there, and libvirt not know it
    MADE: t.ClassVar[str] = "made"
    DELETING: t.ClassVar[str] = "deleting"  # its content may have been overwritten

    name: str
    guest: str  # UUID: people copy definitions, records included
    phase: str = TAKING
    scheduled: bool = False  # it was named by its time, and goes when its time is over
    files: tuple[str, ...] = ()  # that are there for it
    copies: tuple[tuple[str, str], ...] = ()  # UEFI variables and TPM state: where it is, and its copy
    # files of detached disks that libvirt's document names, and a revert has left in place; their names meanwhile
    spared: tuple[tuple[str, str], ...] = ()

    def text(self) -> str:
        """The entry as text."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def of(cls, text: str, guest: str) -> SnapshotRecord | None:
        """The entry with this text; None if it is damaged, or another guest's."""
        try:
            told = json.loads(text)
            copies = tuple((str(path), str(copy)) for path, copy in told["copies"])
            spared = tuple((str(path), str(name)) for path, name in told.get("spared", ()))
            whose = (str(told["name"]), str(told["guest"]))
            files = tuple(map(str, told["files"]))
            found = cls(*whose, told["phase"], bool(told["scheduled"]), files, copies, spared)
        except (ValueError, TypeError, KeyError):
            return None
        return found if found.guest == guest else None


class Tree:
    """The snapshots of one guest, parents first; those of equal parents by their time."""

    def __init__(self, snapshots: t.Iterable[Snapshot]) -> None:
        found = sorted(snapshots, key=lambda one: (one.created_s, one.name))
        names = {one.name for one in found}
        below: dict[str | None, list[Snapshot]] = {}
        for one in found:
            below.setdefault(one.parent if one.parent in names else None, []).append(one)
        self._below = below
        self.ordered: tuple[tuple[int, Snapshot], ...] = tuple(self._walk())  # depth, snapshot
        self.by_name: dict[str, Snapshot] = {one.name: one for _depth, one in self.ordered}

    def _walk(self) -> t.Iterator[tuple[int, Snapshot]]:
        waiting = [(0, one) for one in reversed(self._below.get(None, []))]
        while waiting:  # no recursion: a chain may be long
            depth, one = waiting.pop()
            yield depth, one
            waiting += [(depth + 1, child) for child in reversed(self._below.get(one.name, []))]

    def children(self, name: str) -> list[Snapshot]:
        """The snapshots that stand on this one."""
        return self._below.get(name, [])

    def descendants(self, name: str) -> list[Snapshot]:
        """The snapshots that stand on this one, directly or not, parents first."""
        found = [*self.children(name)]
        for one in found:
            found += self.children(one.name)
        return found

    def current(self) -> Snapshot | None:
        """The snapshot that the guest's disks stand on; None without snapshots."""
        return next((one for _depth, one in self.ordered if one.current), None)

    def lineage(self) -> list[Snapshot]:
        """The snapshots below the guest's present state: the current one, its parent, and so on."""
        found, one = list[Snapshot](), self.current()
        while one is not None and one not in found:
            found.append(one)
            one = self.by_name.get(one.parent or "")
        return found
