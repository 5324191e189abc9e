# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens for programs: each is a user's, with the same rights, until it expires or is revoked."""

from __future__ import annotations

import json
import secrets
import time
import typing as t

from .accounts import User
from .database import Database
from .sessions import digest_of

__all__ = ["Tokens"]

_PREFIX = "corral_"  # so that scanners of leaked secrets can find it
_MOST_OF_A_USER = 100
_USED_EVERY_S = 60


class Tokens:
    """The digests of tokens; the values are shown once."""

    def __init__(self, database: Database, *, clock: t.Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    def make(self, user: User, name: str, days: int) -> str:
        """A new one's value; empty when the user has too many."""
        value, now = _PREFIX + secrets.token_urlsafe(32), int(self._clock())
        with self._database.open() as connection:
            connection.execute("DELETE FROM tokens WHERE expires <= ?", (now,))
            (known,) = connection.execute("SELECT count(*) FROM tokens WHERE user = ?", (user.name,)).fetchone()
            if known >= _MOST_OF_A_USER:
                return ""
            row = (digest_of(value), user.name, name[:64], now, now + days * 86400)
            connection.execute("INSERT INTO tokens (digest, user, name, created, expires) VALUES (?, ?, ?, ?, ?)", row)
        return value

    def find(self, value: str) -> tuple[str, User] | None:
        """Its digest, and whose it is; None for one that is not valid."""
        now, digest = int(self._clock()), digest_of(value)
        query = "SELECT tokens.*, groups FROM tokens JOIN users ON users.name = user WHERE digest = ? AND expires > ?"
        with self._database.open() as connection:
            row = connection.execute(query, (digest, now)).fetchone()
            if row and row["used"] < now - _USED_EVERY_S:
                connection.execute("UPDATE tokens SET used = ? WHERE digest = ?", (now, digest))
        return (digest, User(row["user"], tuple(json.loads(row["groups"])))) if row else None

    def of(self, user: User) -> list[dict[str, t.Any]]:
        """A user's, without their values."""
        query = "SELECT * FROM tokens WHERE user = ? AND expires > ? ORDER BY created"
        with self._database.open() as connection:
            rows = connection.execute(query, (user.name, int(self._clock()))).fetchall()
        return [
            {"id": row["digest"], **{key: row[key] for key in ("name", "created", "expires", "used")}} for row in rows
        ]

    def end(self, user: User, digest: str) -> bool:
        """Revoke one of the user's own; False when there is none."""
        with self._database.open() as connection:
            query = "DELETE FROM tokens WHERE digest = ? AND user = ?"
            return connection.execute(query, (digest, user.name)).rowcount == 1
