# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The time by which something ends or is removed: that of the machine's clock, unless it jumps.

Between two looks at the clock, as much time has passed as the kernel has counted since. A clock that says otherwise is
not believed for a day: sessions and tokens go on by what was counted, and nothing is removed for its age. The last time
that was believed is stored, so a restart changes nothing; over a reboot, the machine may have been off for a month.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import typing as t
from pathlib import Path

from .database import Database

__all__ = ["DAY_S", "SKEW_S", "Clock"]

DAY_S = 86_400
SKEW_S = 300  # a clock that is set right by so much does not jump
_OFF_S = 30 * DAY_S
_NOTED_S = 600
_LOG = logging.getLogger(__name__)


def _ticks() -> float:
    """Seconds since the machine was started, which nobody can set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _boot() -> str:
    """The service sees only processes in /proc: its unit tells."""
    told = os.environ.get("CORRAL_BOOT_ID") or Path("/proc/sys/kernel/random/boot_id").read_text()
    return told.strip().replace("-", "")


class Clock:
    """Called, it gives seconds since the epoch. Several threads may call it."""

    def __init__(
        self,
        database: Database,
        *,
        wall: t.Callable[[], float] = time.time,
        ticks: t.Callable[[], float] = _ticks,
        boot: t.Callable[[], str] = _boot,
    ) -> None:
        self._database, self._wall, self._ticks, self._boot = database, wall, ticks, boot()
        self._lock = threading.Lock()
        self._jump: tuple[float, float] | None = None  # seconds by which the clock is off, and since when (ticks)
        self._known: tuple[float, float] | None = None  # a time that was believed, and its ticks
        self._restore()

    def _restore(self) -> None:
        """Go on from what is stored, or else from the newest line of the audit."""
        try:
            with self._database.open() as connection:
                row = connection.execute("SELECT * FROM clock").fetchone()
                newest = connection.execute("SELECT time FROM audit ORDER BY id DESC LIMIT 1").fetchone()
        except sqlite3.Error:  # nothing is removed meanwhile, as nothing can be read
            return
        wall, ticks = self._wall(), self._ticks()
        if row and row["boot"] == self._boot and row["ticks"] <= ticks:
            self._known = row["time"], row["ticks"]
            return
        since = row["time"] if row else newest["time"] if newest and isinstance(newest["time"], int) else wall
        believed = since - SKEW_S <= wall <= since + _OFF_S
        self._known = wall if believed else since, ticks
        self._note(*self._known)

    def __call__(self) -> float:
        """The time that is believed."""
        with self._lock:
            if self._known is None:
                self._restore()
            if self._known is None:
                return self._wall()
            wall, ticks = self._wall(), self._ticks()
            counted = self._known[0] + ticks - self._known[1]
            off = wall - counted
            if abs(off) > SKEW_S and not self._stays(off, ticks):
                return counted
            if self._jump or ticks - self._known[1] >= _NOTED_S:
                self._note(wall, ticks)
            return wall

    def _stays(self, off: float, ticks: float) -> bool:
        """Whether the clock has been off by that much for a day: then it is the right one."""
        if self._jump is None or abs(self._jump[0] - off) > SKEW_S:
            self._jump = off, ticks
        return ticks - self._jump[1] >= DAY_S

    def believe(self) -> None:
        """Somebody says that the clock of this machine is right, whatever is stored."""
        with self._lock:
            self._note(self._wall(), self._ticks())

    def _note(self, wall: float, ticks: float) -> None:
        if self._jump:
            _LOG.warning("the clock of this machine is believed again")
        self._jump, self._known = None, (wall, ticks)
        statement = (
            "INSERT INTO clock (one, time, ticks, boot) VALUES (1, ?, ?, ?) "
            "ON CONFLICT (one) DO UPDATE SET time = excluded.time, ticks = excluded.ticks, boot = excluded.boot"
        )
        try:
            with self._database.open() as connection:
                connection.execute(statement, (int(wall), int(ticks), self._boot))
        except sqlite3.Error as error:
            self._database.fail(error)

    @property
    def problem(self) -> str:
        """Why the clock is not believed; empty when it is."""
        self()
        jump = self._jump
        if jump is None:
            return ""
        way = "ahead of" if jump[0] > 0 else "behind"
        return (
            f"the clock of this machine jumped: it is {_length(abs(jump[0]))} {way} the time that has passed; "
            "set it right (timedatectl). Until then, or for a day, sessions and tokens do not follow it, and nothing "
            "is removed for its age"
        )

    def is_day_over(self) -> bool:
        """Whether what is old may be removed now: once a day, and only while the clock is believed."""
        if self.problem:
            return False
        now = int(self())
        statement = "UPDATE clock SET forgot = ? WHERE forgot <= ? OR forgot > ?"
        with self._lock:
            if self._known and not self._database.problem:
                self._note(*self._known)  # that there is a row
        with self._database.open() as connection:
            return connection.execute(statement, (now, now - DAY_S, now + SKEW_S)).rowcount == 1


def _length(seconds: float) -> str:
    return f"{seconds / DAY_S:.0f} days" if seconds >= 2 * DAY_S else f"{seconds / 60:.0f} minutes"
