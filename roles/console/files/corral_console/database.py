# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Users, sessions, tokens and the audit in SQLite: what must survive a restart, and can be read with `sqlite3`."""

from __future__ import annotations

import contextlib
import sqlite3
import time
import typing as t
from pathlib import Path

__all__ = ["Database"]

_BUSY_S, _RETRY_S = 10, 0.05
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
)


class Database:
    """One file. Connections are short, so that commands beside the server can write too."""

    def __init__(self, path: Path) -> None:
        self._path = path
        deadline = time.monotonic() + _BUSY_S
        while not self._prepared(last=time.monotonic() > deadline):
            time.sleep(_RETRY_S)

    def _prepared(self, *, last: bool) -> bool:
        """Whether the file has the tables now. Who changes to WAL beside somebody else is refused at once, whatever the
        timeout; the `last` refusal is raised.
        """
        try:
            self._prepare()
        except sqlite3.OperationalError as error:
            if last or error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            return False
        return True

    def _prepare(self) -> None:
        with self.open() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")  # the server and a command may start together
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            for step in _SCHEMA[version:]:
                for statement in step:
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {len(_SCHEMA)}")

    @contextlib.contextmanager
    def open(self) -> t.Iterator[sqlite3.Connection]:
        """A connection; what is written is committed at the end, unless an error comes up."""
        connection = sqlite3.connect(self._path, timeout=_BUSY_S)
        try:
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA foreign_keys = ON")
            with connection:
                yield connection
        finally:
            connection.close()
