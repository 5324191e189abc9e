# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The audit: a line of JSON for each decision, in the journal and in the database."""

from __future__ import annotations

import json
import logging
import time
import typing as t

from .database import Database

__all__ = ["Audit"]

_LOG = logging.getLogger("corral_console.audit")
_PRUNE_EVERY = 1000  # lines


class Audit:
    """Lines are kept for some days."""

    def __init__(self, database: Database, *, days: int, clock: t.Callable[[], float] = time.time) -> None:
        self._database, self._days, self._clock = database, days, clock

    def write(self, what: str, *, user: str, address: str, allowed: bool, **more: t.Any) -> None:
        """A decision, or what came of one."""
        now = int(self._clock())
        line = {"audit": what, "user": user, "allowed": allowed, "address": address, **more}
        _LOG.info(json.dumps(line))
        with self._database.open() as connection:
            query = "INSERT INTO audit (time, line) VALUES (?, ?)"
            number = connection.execute(query, (now, json.dumps(line))).lastrowid
            if number and number % _PRUNE_EVERY == 0:
                connection.execute("DELETE FROM audit WHERE time < ?", (now - self._days * 86400,))

    def read(self, before: int | None, limit: int) -> list[dict[str, t.Any]]:
        """The newest first; `before`: an earlier line's `id`."""
        query = "SELECT * FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?"
        with self._database.open() as connection:
            rows = connection.execute(query, (before if before is not None else 2**62, limit)).fetchall()
        return [{"id": row["id"], "time": row["time"], **json.loads(row["line"])} for row in rows]
