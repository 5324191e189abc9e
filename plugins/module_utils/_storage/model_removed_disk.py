# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A disk that is being removed, and for how long it is kept."""

from __future__ import annotations

import dataclasses
import datetime
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity

PARTS = (".corral", ".removed")  # of the folder, below a directory with disks; no image and no disk has such a name
_UTC = "%Y-%m-%dT%H:%M:%SZ"  # in ISO 8601, whole seconds


class Moment(t.NamedTuple):
    """A time of this host, by its clock, which anybody may set, and by the uptime that its kernel counts."""

    utc: str  # as ISO 8601 writes it
    boot_id: str
    uptime_s: int  # since that boot; a host that sleeps counts on

    def later(self, hours: int) -> str:
        """The time of the clock so many hours later."""
        return (datetime.datetime.strptime(self.utc, _UTC) + datetime.timedelta(hours=hours)).strftime(_UTC)


@dataclasses.dataclass(frozen=True)
class RemovedDisk:
    """The note beside a disk that is being removed: what it is, whose it was, and since when."""

    path: str  # where it was
    guest: str
    guest_uuid: str
    host_uuid: str
    inode: int
    born_ns: int | None
    mark: str | None
    size_bytes: int
    boot_id: str  # of the host, when it was moved
    pid: int  # of the run, which holds a lock on the note
    since: str  # in UTC, as ISO 8601 writes it
    keep_until: str | None = None  # likewise; None: it goes as soon as nobody uses it
    uptime_s: int | None = None  # of the host, when it was moved; None: an older version did not note it

    @property
    def identity(self) -> FileIdentity:
        """The identity of the file."""
        return FileIdentity(self.inode, self.born_ns, self.mark)

    @classmethod
    def parse(cls, told: object) -> RemovedDisk | None:
        """The content of a note; None if the note is damaged."""
        values, names = told if isinstance(told, dict) else {}, [field.name for field in dataclasses.fields(cls)]
        try:
            found = cls(**{name: values[name] for name in names if name in values or name != "uptime_s"})
            for time in (found.since, found.keep_until or found.since):
                _seconds(time)
        except (KeyError, TypeError, ValueError):
            return None
        texts = (found.path, found.guest, found.guest_uuid, found.host_uuid)
        numbers = (found.inode, 0 if found.uptime_s is None else found.uptime_s)
        right = all(isinstance(text, str) for text in texts) and all(isinstance(number, int) for number in numbers)
        return found if right else None

    def left_s(self, now: Moment) -> int:
        """For how many more seconds the disk is kept; 0: its time is over.

        The longer of what the clock says and what the host has counted: a clock that jumps ends nothing. Time counted
        before another boot is unknown, so the time starts again with it.
        """
        if self.keep_until is None:
            return 0
        by_clock = _seconds(self.keep_until) - _seconds(now.utc)
        if self.uptime_s is None:
            return max(0, by_clock)
        counted = now.uptime_s - (self.uptime_s if now.boot_id == self.boot_id else 0)
        return max(0, by_clock, _seconds(self.keep_until) - _seconds(self.since) - counted)

    def is_due(self, now: Moment) -> bool:
        """True if the time for which the disk is kept is over."""
        return self.left_s(now) == 0

    def fields(self) -> dict[str, t.Any]:
        """The fields as plain values."""
        return dataclasses.asdict(self)


class DiskAside(t.NamedTuple):
    """A disk whose removal is unfinished or not yet due, with what is seen of it."""

    place: str  # where it is now
    note: RemovedDisk | None  # None: it cannot be read
    alive: bool = False  # a run is at work on it
    moved: bool = True  # it is at that place; else its note alone is left
    taken: bool = False  # another file has its name by now
    user: str | None = None


def _seconds(utc: str) -> int:
    """Seconds since the epoch; raises TypeError or ValueError."""
    time = datetime.datetime.strptime(utc, _UTC)
    return int(time.replace(tzinfo=datetime.timezone.utc).timestamp())
