# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The audit: a line of JSON for each decision, in the journal, in the database, and in copies elsewhere."""

from __future__ import annotations

import json
import logging
import time
import typing as t

from . import strict
from .copies import Copies
from .database import Database

__all__ = ["LEAST_LINES", "Audit"]

_LOG = logging.getLogger("corral_console.audit")
LEAST_LINES = 10_000  # are kept whatever their age
_MOST_A_DAY = 1000  # are removed, or a tenth of them


class Audit:
    """Lines are kept for some days. Their times are those of the clock, right or not."""

    def __init__(
        self, database: Database, *, days: int, clock: t.Callable[[], float] = time.time, copies: Copies | None = None
    ) -> None:
        self._database, self._days, self._clock, self._copies = database, days, clock, copies

    def write(self, what: str, *, user: str, address: str, allowed: bool, **more: t.Any) -> None:
        """A decision, or what came of one."""
        now = int(self._clock())
        line = strict.mended({"audit": what, "user": user, "allowed": allowed, "address": address, **more})
        text = json.dumps(line)
        _LOG.info(text)
        if self._copies:
            self._copies.add(self._clock(), text)
        self._database.write("INSERT INTO audit (time, line) VALUES (?, ?)", now, text)

    def forget(self, now: float) -> int:
        """Remove the oldest lines that are too old, not all at once; how many. Called once a day.

        A line that is newer by its time than what is to be kept ends it: those after it were written later, whatever
        the clock said then.
        """
        limit = int(now) - self._days * 86400
        with self._database.open() as connection:
            (count,) = connection.execute("SELECT count(*) FROM audit").fetchone()
            query = "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE id < ? AND id < ? ORDER BY id LIMIT ?)"
            (newer,) = connection.execute("SELECT min(id) FROM audit WHERE time >= ?", (limit,)).fetchone()
            (newest,) = connection.execute("SELECT max(id) FROM audit").fetchone()
            kept = (newest or 0) - LEAST_LINES + 1
            most = max(_MOST_A_DAY, count // 10)
            found = connection.execute(query, (newer if newer is not None else kept, kept, most)).rowcount
        if found:
            self.write("forget", user="", address="", allowed=True, lines=found, days=self._days)
        return found

    def read(self, before: int | None, limit: int) -> list[dict[str, t.Any]]:
        """The newest first; `before`: an earlier line's `id`."""
        query = "SELECT * FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?"
        with self._database.open() as connection:
            rows = connection.execute(query, (before if before is not None else 2**62, limit)).fetchall()
        return [_line(row) for row in rows]


def _line(row: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """A row; of one that cannot be read, what there is."""
    when = row["time"] if isinstance(row["time"], int) else 0
    found = strict.read(row["line"])
    if not isinstance(found, dict):
        found = strict.Unreadable("it is no line of the audit", str(row["line"]))
    return {"audit": "unreadable", "user": "", "allowed": None, "address": "", **found, "id": row["id"], "time": when}
