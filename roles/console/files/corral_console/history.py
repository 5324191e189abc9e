# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What guests and hosts used in the last hour and the last day, in an SQLite file of its own.

Samples of an hour are as they were measured; of a day, their means. Means are made from what is stored, so a restart
loses none.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
import typing as t
from pathlib import Path

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed

__all__ = ["SAMPLE_S", "SPANS", "History", "Sample"]

SAMPLE_S = 20
_MEAN_S = 300
SPANS = {"hour": (SAMPLE_S, 3600), "day": (_MEAN_S, 24 * 3600)}  # seconds between two values, and of all of them
_FIGURES = ("cpu", "memory", "read", "written", "received", "sent")
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS samples (
    step INTEGER NOT NULL, series TEXT NOT NULL, at INTEGER NOT NULL, {", ".join(f"{name} REAL" for name in _FIGURES)},
    PRIMARY KEY (step, series, at)
) WITHOUT ROWID
"""
_MEANS = ", ".join(f"avg({name})" for name in _FIGURES)


class Sample(t.NamedTuple):
    """Of a guest (its UUID) or a host (`host/` and its name): shares in percent, rates in bytes a second."""

    series: str
    cpu: float | None = None
    memory: float | None = None
    read: float | None = None
    written: float | None = None
    received: float | None = None
    sent: float | None = None


class History:
    """Written by many threads."""

    def __init__(self, path: Path, *, clock: t.Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self._lock = threading.Lock()
        self._summed = 0  # the period whose means were made last
        self._is_prepared = False
        self.problem = ""  # why samples are not kept
        self._attempt(lambda _connection: None)

    def _attempt(self, use: t.Callable[[sqlite3.Connection], t.Any]) -> t.Any:
        """What a use gives; None, with a `problem`, when that is not possible now: nothing else depends on figures."""
        try:
            with self._open() as connection:
                if not self._is_prepared:
                    connection.execute("PRAGMA journal_mode = WAL")
                    connection.execute(_SCHEMA)
                    self._is_prepared = True
                found = use(connection)
        except sqlite3.Error as error:
            self.problem = f"cannot use {self._path}: {error}; what guests used is not recorded"
            return None
        return found

    @contextlib.contextmanager
    def _open(self) -> t.Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._path, timeout=10)
        try:
            connection.execute("PRAGMA synchronous = NORMAL")
            with connection:
                yield connection
        finally:
            connection.close()

    def add(self, samples: t.Sequence[Sample]) -> None:
        """Of one moment: now."""
        now = int(self._clock())
        rows = [(SAMPLE_S, one.series, now // SAMPLE_S * SAMPLE_S, *one[1:]) for one in samples]
        marks = ", ".join("?" * (3 + len(_FIGURES)))

        def insert(connection: sqlite3.Connection) -> bool:
            connection.executemany(f"INSERT OR REPLACE INTO samples VALUES ({marks})", rows)  # noqa: S608
            if now // _MEAN_S != self._summed:
                self._sum_up(connection, now)
            return True

        with self._lock:
            if self._attempt(insert):
                self._summed, self.problem = now // _MEAN_S, ""

    def _sum_up(self, connection: sqlite3.Connection, now: int) -> None:
        """The means of all periods that have ended and are still known in detail; what is too old goes."""
        oldest = -((_MEAN_S - now + SPANS["hour"][1]) // _MEAN_S) * _MEAN_S
        connection.execute(
            f"INSERT OR REPLACE INTO samples SELECT {_MEAN_S}, series, at / {_MEAN_S} * {_MEAN_S} AS period, {_MEANS} "  # noqa: S608
            f"FROM samples WHERE step = {SAMPLE_S} AND at >= ? AND at < ? GROUP BY series, period",
            (oldest, now // _MEAN_S * _MEAN_S),
        )
        for step, length in SPANS.values():
            connection.execute("DELETE FROM samples WHERE step = ? AND at < ?", (step, now - length - _MEAN_S))

    def read(self, series: str, span: str) -> dict[str, t.Any]:
        """Columns of the series: `at` in seconds since the epoch, and each figure; None where nothing was measured."""
        step, length = SPANS[span]
        now = int(self._clock())
        query = "SELECT * FROM samples WHERE step = ? AND series = ? AND at >= ? AND at <= ? ORDER BY at"
        rows = self._attempt(lambda connection: connection.execute(query, (step, series, now - length, now)).fetchall())
        if rows is None:
            raise Failed(f"there is no history: {self.problem}")
        columns = list(zip(*_with_gaps([row[2:] for row in rows], step), strict=True)) or [()] * (1 + len(_FIGURES))
        return {"step": step, **dict(zip(("at", *_FIGURES), map(list, columns), strict=True))}


def _with_gaps(rows: t.Sequence[tuple[t.Any, ...]], step: int) -> t.Iterator[tuple[t.Any, ...]]:
    """An empty row in each gap, so that no line is drawn across it."""
    previous = None
    for row in rows:
        if previous is not None and row[0] - previous > 3 * step:
            yield previous + step, *[None] * len(_FIGURES)
        yield row
        previous = row[0]
