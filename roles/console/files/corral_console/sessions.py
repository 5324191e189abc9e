# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sessions: a random value in the browser, its digest here, revocable at once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import secrets
import time
import typing as t

from .accounts import User
from .database import Database

__all__ = ["Session", "Sessions", "digest_of"]

_SEEN_EVERY_S = 60  # a write for each request would cost more than it tells


@dataclasses.dataclass(frozen=True)
class Session:
    """A browser that is logged in. `digest` names it; nobody can log in with that."""

    digest: str
    user: User
    created: int
    seen: int
    address: str
    agent: str


class Sessions:
    """They end after some time without a request, after a longest time, by logout, and with their user."""

    def __init__(
        self, database: Database, *, idle_s: int, longest_s: int, clock: t.Callable[[], float] = time.time
    ) -> None:
        self._database, self._clock = database, clock
        self._idle_s, self._longest_s = idle_s, longest_s

    def begin(self, user: User, *, address: str, agent: str) -> str:
        """The value for the browser's cookie: always a new one."""
        value, now = secrets.token_urlsafe(32), int(self._clock())
        row = (digest_of(value), user.name, now, now, address[:64], agent[:256])
        with self._database.open() as connection:
            connection.execute("DELETE FROM sessions WHERE seen <= ? OR created <= ?", self._oldest())
            connection.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)", row)
        return value

    def find(self, value: str) -> Session | None:
        """The session of a cookie, None when it has ended."""
        digest = digest_of(value)
        found = self._read("digest = ?", digest)
        if found and found[0].seen < self._clock() - _SEEN_EVERY_S:
            with self._database.open() as connection:
                connection.execute("UPDATE sessions SET seen = ? WHERE digest = ?", (int(self._clock()), digest))
        return found[0] if found else None

    def of(self, user: User) -> list[Session]:
        """All of a user's, the last seen first."""
        return self._read("user = ?", user.name)

    def end(self, user: User, digest: str) -> bool:
        """End one of the user's own; False when there is none."""
        with self._database.open() as connection:
            query = "DELETE FROM sessions WHERE digest = ? AND user = ?"
            return connection.execute(query, (digest, user.name)).rowcount == 1

    def end_any(self, digest: str) -> bool:
        """End somebody's; False when there is none."""
        with self._database.open() as connection:
            return connection.execute("DELETE FROM sessions WHERE digest = ?", (digest,)).rowcount == 1

    def _oldest(self) -> tuple[int, int]:
        now = int(self._clock())
        return now - self._idle_s, now - self._longest_s

    def _read(self, condition: str, value: str) -> list[Session]:
        query = (
            "SELECT sessions.*, users.groups FROM sessions JOIN users ON users.name = user "  # noqa: S608
            f"WHERE {condition} AND seen > ? AND created > ? ORDER BY seen DESC, created DESC"
        )
        with self._database.open() as connection:
            rows = connection.execute(query, (value, *self._oldest())).fetchall()
        return [
            Session(
                digest=row["digest"],
                user=User(row["user"], tuple(json.loads(row["groups"]))),
                created=row["created"],
                seen=row["seen"],
                address=row["address"],
                agent=row["agent"],
            )
            for row in rows
        ]


def digest_of(value: str) -> str:
    """What is stored in its place."""
    return hashlib.sha256(value.encode(errors="replace")).hexdigest()
