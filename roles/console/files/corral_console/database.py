# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Users, sessions, tokens and the audit in SQLite: what must survive a restart, and can be read with `sqlite3`.

Reading needs no writing: the journal is SQLite's rollback journal, because a reader of a write-ahead log makes files,
which a full disk refuses. What cannot be written now is kept in memory, and written when there is room again.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import sqlite3
import threading
import time
import typing as t
from pathlib import Path

__all__ = ["Database"]

_BUSY_S, _RETRY_S, _AGAIN_S = 10, 0.05, 1.0
_MOST_KEPT = 10_000
# However much room there is.
_NEVER = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError, UnicodeError, OverflowError)
_LOG = logging.getLogger(__name__)
_SCHEMA = (
    # A step for each version of the schema; steps that were released are never changed.
    (
        """
    CREATE TABLE users (
        name TEXT PRIMARY KEY,
        password TEXT NOT NULL,
        totp TEXT NOT NULL DEFAULT '',
        totp_used INTEGER NOT NULL DEFAULT 0,
        groups TEXT NOT NULL DEFAULT '[]'
    )
    """,
        """
    CREATE TABLE sessions (
        digest TEXT PRIMARY KEY,
        user TEXT NOT NULL REFERENCES users(name) ON DELETE CASCADE,
        created INTEGER NOT NULL,
        seen INTEGER NOT NULL,
        address TEXT NOT NULL,
        agent TEXT NOT NULL
    )
    """,
        """
    CREATE TABLE tokens (
        digest TEXT PRIMARY KEY,
        user TEXT NOT NULL REFERENCES users(name) ON DELETE CASCADE,
        name TEXT NOT NULL,
        created INTEGER NOT NULL,
        expires INTEGER NOT NULL,
        used INTEGER NOT NULL DEFAULT 0
    )
    """,
        "CREATE TABLE audit (id INTEGER PRIMARY KEY, time INTEGER NOT NULL, line TEXT NOT NULL)",
    ),
    (
        """
    CREATE TABLE clock (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        time INTEGER NOT NULL,
        ticks INTEGER NOT NULL,
        boot TEXT NOT NULL,
        forgot INTEGER NOT NULL DEFAULT 0
    )
    """,
    ),
)


def _text(stored: bytes) -> str:
    """One row that is not UTF-8 must not hide all others."""
    return stored.decode(errors="replace")


class Database:
    """One file. Connections are short, so that commands beside the server can write too."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: collections.deque[tuple[str, tuple[t.Any, ...]]] = collections.deque(maxlen=_MOST_KEPT)
        self._lock = threading.Lock()
        self._is_prepared, self._tried = False, -_AGAIN_S
        self.problem = ""  # why it could not be written to the last time
        deadline = time.monotonic() + _BUSY_S
        while not self._prepared() and time.monotonic() < deadline:
            time.sleep(_RETRY_S)

    def _prepared(self) -> bool:
        """False while another process holds the file. What fails otherwise is tried again by each use."""
        try:
            self._prepare()
        except sqlite3.Error as error:
            self.problem = f"cannot prepare {self._path}: {error}"
            _LOG.error("%s", self.problem)
            return error.sqlite_errorcode not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        return True

    def _prepare(self) -> None:
        with self._connected() as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):  # of an earlier version
                with contextlib.suppress(sqlite3.OperationalError):  # another process has it open: the next start
                    connection.execute("PRAGMA journal_mode = DELETE")
            if version < len(_SCHEMA):
                connection.execute("BEGIN IMMEDIATE")  # the server and a command may start together
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                for statement in (each for step in _SCHEMA[version:] for each in step):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {len(_SCHEMA)}")
        self._is_prepared = True

    def write(self, statement: str, *values: t.Any) -> bool:
        """Write now, or else keep the statement until there is room: False. The oldest of too many are lost."""
        with self._lock:
            self._kept.append((statement, values))
        return self.flush()

    def flush(self) -> bool:
        """Write what was kept; whether nothing is left."""
        with self._lock:
            if not self._kept:
                return True
            if self.problem and time.monotonic() < self._tried + _AGAIN_S:
                return False
            self._tried = time.monotonic()
            try:
                with self.open() as connection:
                    for statement, values in self._kept:
                        try:
                            connection.execute(statement, values)
                        except _NEVER as error:  # such as a session of a user who was removed since; the rest goes on
                            _LOG.error("cannot store a row: %s", error)
            except sqlite3.Error as error:
                self.fail(error)
                return False
            self._kept.clear()
            return True

    def fail(self, error: sqlite3.Error) -> None:
        """Note why it could not be written to."""
        before, self.problem = self.problem, f"cannot write {self._path}: {error}"
        if before != self.problem:
            _LOG.error("%s", self.problem)

    def look(self) -> None:
        """Write what was kept, and notice when there is room again."""
        if self.problem and time.monotonic() >= self._tried + _AGAIN_S:
            written, self._tried = self.flush(), time.monotonic()
            with contextlib.suppress(sqlite3.Error), self.open() as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(f"PRAGMA user_version = {len(_SCHEMA)}")  # writes, whether it changes or not
                connection.commit()
                self.problem = "" if written else self.problem

    @contextlib.contextmanager
    def open(self) -> t.Iterator[sqlite3.Connection]:
        """A connection; what is written is committed at the end, unless an error comes up."""
        if not self._is_prepared:
            self._prepare()
        with self._connected() as connection:
            connection.row_factory = sqlite3.Row
            yield connection

    @contextlib.contextmanager
    def _connected(self) -> t.Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._path, timeout=_BUSY_S)
        try:
            connection.text_factory = _text
            connection.execute("PRAGMA foreign_keys = ON")
            with connection:
                yield connection
        finally:
            connection.close()
