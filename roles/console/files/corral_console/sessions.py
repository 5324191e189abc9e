# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sessions: a random value in the browser, its digest here, revocable at once."""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
import sqlite3
import time
import typing as t

from .accounts import User, groups_of
from .clock import SKEW_S
from .database import Database

__all__ = ["Session", "Sessions", "digest_of"]

_COLUMNS = ("digest", "user", "created", "seen", "address", "agent")
_INSERT = f"INSERT INTO sessions ({', '.join(_COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608
_MOST_BEGUN = 1000
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
        self,
        database: Database,
        *,
        idle_s: int,
        longest_s: int,
        most: int = 20,
        clock: t.Callable[[], float] = time.time,
    ) -> None:
        """`most`: of one user; a further one ends the one that was not used for the longest time."""
        self._database, self._clock, self._most = database, clock, most
        self._idle_s, self._longest_s = idle_s, longest_s
        self._seen_every_s = min(_SEEN_EVERY_S, idle_s // 10)
        # While the database cannot be written to: sessions that began then, that ended, and when others were seen.
        self._begun: dict[str, tuple[dict[str, t.Any], tuple[str, str]]] = {}
        self._ended: set[str] = set()
        self._seen: dict[str, int] = {}

    def begin(self, user: User, *, address: str, agent: str) -> str:
        """The value for the browser's cookie: always a new one."""
        value, now = secrets.token_urlsafe(32), int(self._clock())
        row = (digest_of(value), user.name, now, now, address[:64], agent[:256])
        self._database.write("DELETE FROM sessions WHERE seen <= ? OR created <= ?", *self._oldest())
        if not self._database.write(_INSERT, *row):
            if len(self._begun) >= _MOST_BEGUN:
                self._begun.pop(next(iter(self._begun)))
            self._begun[row[0]] = dict(zip(_COLUMNS, row, strict=True)), self._secret(user)
        for each in self.of(user)[self._most :]:
            self.end_any(each.digest)
        return value

    def _secret(self, user: User) -> tuple[str, str]:
        """What the user logs in with, which ends their sessions when it changes; in the database, that deletes them."""
        with self._database.open() as connection:
            row = connection.execute("SELECT password, totp FROM users WHERE name = ?", (user.name,)).fetchone()
        return (row["password"], row["totp"]) if row else ("", "")

    def find(self, value: str, *, used: bool = True) -> Session | None:
        """The session of a cookie, None when it has ended. What a person does uses it, and not a page that is open."""
        digest, now = digest_of(value), int(self._clock())
        found = self._read("digest = ?", digest)
        if used and found and found[0].seen < now - self._seen_every_s:
            self._seen[digest] = now  # counts where it cannot be written
            try:
                with self._database.open() as connection:
                    connection.execute("UPDATE sessions SET seen = ? WHERE digest = ?", (now, digest))
                self._seen.pop(digest, None)
            except sqlite3.Error as error:  # who is logged in does not depend on it
                self._database.fail(error)
        return found[0] if found else None

    def of(self, user: User) -> list[Session]:
        """All of a user's, the last seen first."""
        return self._read("user = ?", user.name)

    def addresses(self, name: str) -> set[str]:
        """From which a user is logged in."""
        return {each.address for each in self._read("user = ?", name)}

    def end(self, user: User, digest: str) -> bool:
        """End one of the user's own; False when there is none."""
        return any(each.digest == digest for each in self.of(user)) and bool(self.end_any(digest))

    def end_any(self, digest: str) -> str:
        """End somebody's, at once and in any case, and return whose it was; empty when there is none."""
        found = self._read("digest = ?", digest)
        if not found:
            return ""
        self._begun.pop(digest, None)
        if not self._database.write("DELETE FROM sessions WHERE digest = ?", digest):
            self._ended.add(digest)
        return found[0].user.name

    def end_all(self, name: str, *, but: str = "") -> int:
        """End all of a user's, except that one; return how many."""
        found = [each.digest for each in self._read("user = ?", name) if each.digest != but]
        return sum(bool(self.end_any(digest)) for digest in found)

    def _oldest(self) -> tuple[int, int]:
        now = int(self._clock())
        return now - self._idle_s, now - self._longest_s

    def _read(self, condition: str, value: str) -> list[Session]:
        query = (
            "SELECT sessions.*, users.groups FROM sessions JOIN users ON users.name = user "  # noqa: S608
            f"WHERE {condition} ORDER BY sessions.rowid"
        )
        with self._database.open() as connection:
            rows = {row["digest"]: dict(row) for row in connection.execute(query, (value,))}
            for row, secret in list(self._begun.values()):
                if row["digest"] in rows:  # it could be written since
                    self._begun.pop(row["digest"], None)
                elif value in (row["digest"], row["user"]) and (groups := _groups(connection, row, secret)):
                    rows[row["digest"]] = {**row, "groups": groups}
        return self._alive(rows.values())

    def _alive(self, rows: t.Iterable[dict[str, t.Any]]) -> list[Session]:
        """Those that have not ended, the last seen first; of several of one second, the newest."""
        seen_after, created_after = self._oldest()
        latest = (
            self._clock() + SKEW_S
        )  # one that begins later is of a time when the clock was wrong: it would never end
        found = [
            Session(
                digest=row["digest"],
                user=User(row["user"], groups_of(row["groups"])),
                created=row["created"],
                seen=row["seen"],
                address=row["address"],
                agent=row["agent"],
            )
            for row in ({**row, "seen": max(row["seen"], self._seen.get(row["digest"], 0))} for row in rows)
            if row["digest"] not in self._ended
            and row["seen"] > seen_after
            and latest >= row["created"] > created_after
        ]
        found.reverse()
        return sorted(found, key=lambda each: (each.seen, each.created), reverse=True)


def _groups(connection: sqlite3.Connection, row: t.Mapping[str, t.Any], secret: tuple[str, str]) -> str | None:
    """The groups of the user, as they are stored; None for one who is gone, or has another password now."""
    query = "SELECT groups FROM users WHERE name = ? AND password = ? AND totp = ?"
    found = connection.execute(query, (row["user"], *secret)).fetchone()
    return found["groups"] if found else None


def digest_of(value: str) -> str:
    """What is stored in its place."""
    return hashlib.sha256(value.encode(errors="replace")).hexdigest()
