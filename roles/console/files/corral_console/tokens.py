# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens for programs: each is a user's, with the same rights, until it expires or is revoked."""

from __future__ import annotations

import secrets
import sqlite3
import time
import typing as t

from .accounts import User, groups_of
from .clock import SKEW_S
from .database import Database
from .sessions import digest_of

__all__ = ["Tokens"]

_PREFIX = "corral_"  # so that scanners of leaked secrets can find it
_MOST_OF_A_USER = 100
_USED_EVERY_S = 60
_DAY_S = 86400
_FORGET = """
DELETE FROM tokens WHERE user = :user AND expires <= :now AND digest NOT IN (
    SELECT digest FROM tokens WHERE user = :user AND expires <= :now ORDER BY created DESC LIMIT :most
)
"""


class Tokens:
    """The digests of tokens; the values are shown once."""

    def __init__(self, database: Database, *, most_days: int = 90, clock: t.Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock
        self.most_days = most_days  # the life of a token, whatever was agreed when it was made
        self._ended: set[str] = set()  # while the database cannot be written to

    def make(self, user: User, name: str, days: int) -> str:
        """A new one's value; empty when the user has too many."""
        value, now = _PREFIX + secrets.token_urlsafe(32), int(self._clock())
        with self._database.open() as connection:
            # Those that have expired go when they are many: the clock may be wrong.
            connection.execute(_FORGET, {"user": user.name, "now": now, "most": _MOST_OF_A_USER})
            query = "SELECT count(*) FROM tokens WHERE user = ? AND expires > ? AND created > ?"
            (known,) = connection.execute(query, (user.name, now, self._oldest())).fetchone()
            if known >= _MOST_OF_A_USER:
                return ""
            row = (digest_of(value), user.name, name[:64], now, now + days * _DAY_S)
            connection.execute("INSERT INTO tokens (digest, user, name, created, expires) VALUES (?, ?, ?, ?, ?)", row)
        return value

    def find(self, value: str) -> tuple[str, User] | None:
        """Its digest, and whose it is; None for one that is not valid."""
        now, digest = int(self._clock()), digest_of(value)
        query = (
            "SELECT tokens.*, groups FROM tokens JOIN users ON users.name = user "
            "WHERE digest = ? AND expires > ? AND created > ? AND created <= ?"
        )
        with self._database.open() as connection:
            row = connection.execute(query, (digest, now, self._oldest(), now + SKEW_S)).fetchone()
        if digest in self._ended:
            return None
        if row and row["used"] < now - _USED_EVERY_S:
            try:
                with self._database.open() as connection:
                    connection.execute("UPDATE tokens SET used = ? WHERE digest = ?", (now, digest))
            except sqlite3.Error as error:  # whether it is valid does not depend on it
                self._database.fail(error)
        return (digest, User(row["user"], groups_of(row["groups"]))) if row else None

    def of(self, user: User) -> list[dict[str, t.Any]]:
        """A user's, without their values."""
        return self._of(user.name)

    def _of(self, name: str) -> list[dict[str, t.Any]]:
        query = "SELECT * FROM tokens WHERE user = ? AND expires > ? AND created > ? ORDER BY created"
        with self._database.open() as connection:
            rows = connection.execute(query, (name, int(self._clock()), self._oldest())).fetchall()
        return [
            {
                "id": row["digest"],
                **{key: row[key] for key in ("name", "created", "used")},
                "expires": min(row["expires"], row["created"] + self.most_days * _DAY_S),
            }
            for row in rows
            if row["digest"] not in self._ended
        ]

    def end(self, user: User, digest: str) -> bool:
        """Revoke one of the user's own; False when there is none."""
        if digest not in {each["id"] for each in self.of(user)}:
            return False
        self._end(digest)
        return True

    def end_any(self, digest: str) -> str:
        """Revoke somebody's, and return whose it was; empty when there is none."""
        with self._database.open() as connection:
            row = connection.execute("SELECT user FROM tokens WHERE digest = ?", (digest,)).fetchone()
        if row is None or digest in self._ended:
            return ""
        self._end(digest)
        return str(row["user"])

    def end_all(self, name: str) -> int:
        """Revoke all of a user's; return how many."""
        found = [each["id"] for each in self._of(name)]
        for digest in found:
            self._end(digest)
        return len(found)

    def _end(self, digest: str) -> None:
        if not self._database.write("DELETE FROM tokens WHERE digest = ?", digest):
            self._ended.add(digest)  # at once, although it cannot be written

    def _oldest(self) -> int:
        return int(self._clock()) - self.most_days * _DAY_S
