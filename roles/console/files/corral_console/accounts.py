# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Users, their passwords and their one-time codes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import secrets
import sqlite3
import threading
import time
import typing as t

import argon2
import pyotp

from ansible_collections.corral.virt.plugins.module_utils._core.output import agree

from . import strict
from .database import Database

__all__ = ["Accounts", "BadUser", "User", "groups_of"]

_NAME = re.compile(r"[A-Za-z0-9._@+-]{1,64}")
_SECRET = re.compile(r"[A-Z2-7]{24,128}")
_SHORTEST, _LONGEST = 12, 1024
_CODE_S = 30


class BadUser(Exception):
    """What is wrong with users that are to be set, a line each."""


@dataclasses.dataclass(frozen=True)
class User:
    """Who is logged in. What they may do, the policy says."""

    name: str
    groups: tuple[str, ...] = ()


def groups_of(stored: object) -> tuple[str, ...]:
    """The groups of a row; none where it cannot be read: no right comes of that."""
    found = strict.read(stored) if isinstance(stored, str) else None
    return tuple(found) if isinstance(found, list) and all(isinstance(each, str) for each in found) else ()


class Accounts:
    """Passwords are hashed one at a time: each takes 64 MiB, and attackers may send many."""

    def __init__(self, database: Database, *, clock: t.Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock
        self._hasher = argon2.PasswordHasher()
        self._hashing = threading.Lock()
        self._used: dict[str, int] = {}  # codes, while the database cannot be written to
        self._nobody = self._hasher.hash(secrets.token_hex())

    def find(self, name: str) -> User | None:
        """A user by name."""
        with self._database.open() as connection:
            row = connection.execute("SELECT name, groups FROM users WHERE name = ?", (name,)).fetchone()
        return User(row["name"], groups_of(row["groups"])) if row else None

    def all(self) -> list[User]:
        """All users, by name."""
        with self._database.open() as connection:
            rows = connection.execute("SELECT name, groups FROM users ORDER BY name").fetchall()
        return [User(row["name"], groups_of(row["groups"])) for row in rows]

    def stamp(self, name: str) -> str:
        """What changes with the user's password and secret; empty where there is no such user."""
        with self._database.open() as connection:
            row = connection.execute("SELECT password, totp FROM users WHERE name = ?", (name,)).fetchone()
        return hashlib.sha256(f"{row['password']} {row['totp']}".encode()).hexdigest() if row else ""

    def admit(self, name: str, groups: t.Sequence[str]) -> User:
        """Somebody whom a proxy has identified: a user without a password. Of one with a password the groups stay.

        Who has left a group is logged out elsewhere. Raises BadUser for what is no name.
        """
        if odd := [each for each in (name, *groups) if not _NAME.fullmatch(each)]:
            raise BadUser(f"{odd[0]!a} is not a name of a user or a group")
        with self._database.open() as connection:
            row = connection.execute("SELECT * FROM users WHERE name = ?", (name,)).fetchone()
        if row is None:
            self._write("INSERT OR IGNORE INTO users (name, password) VALUES (?, '')", name)
        before = t.cast(User, self.find(name))
        if row is None or (not row["password"] and groups_of(row["groups"]) != tuple(sorted(groups))):
            query = "UPDATE users SET groups = ? WHERE name = ? AND password = ''"
            self._write(query, json.dumps(sorted(groups)), name)  # not in memory: rights that end must end for ever
        after = t.cast(User, self.find(name))
        if set(before.groups) - set(after.groups):
            self.end_access(name)
        return after

    def end_access(self, name: str) -> None:
        """End all sessions and tokens of a user."""
        for table in ("sessions", "tokens"):
            self._write(f"DELETE FROM {table} WHERE user = ?", name)  # noqa: S608 (one of two names)

    def end_all_access(self, *, write: bool) -> list[str]:
        """End all sessions and tokens of everybody, and say that: a backup has those that were ended since."""
        steps = []
        with self._database.open() as connection:
            for table in ("sessions", "tokens"):
                (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 (as above)
                steps += [f"end {count} {table}"] if count else []
                if write:
                    connection.execute(f"DELETE FROM {table}")  # noqa: S608
        return steps

    def check(self, name: str, password: str, code: str = "") -> User | None:
        """The user, when both are right. It takes as long for a name that nobody has. A code is good once."""
        with self._database.open() as connection:
            row = connection.execute("SELECT * FROM users WHERE name = ?", (name,)).fetchone()
        right = self._verify((row and row["password"]) or self._nobody, password[:_LONGEST])
        if not row or not right:
            return None
        if row["totp"] and not self._use_code(name, row["totp"], code):
            return None
        return User(row["name"], groups_of(row["groups"]))

    def _verify(self, digest: str, password: str) -> bool:
        with self._hashing:
            try:
                return self._hasher.verify(digest, password)
            except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHash):
                return False

    def _use_code(self, name: str, secret: str, code: str) -> bool:
        times = {int(clock()) // _CODE_S for clock in (time.time, self._clock)}  # after a jump, either may be right
        steps = sorted({now + more for now in times for more in (-1, 0, 1)})  # clocks differ
        for step in steps:
            if secrets.compare_digest(pyotp.TOTP(secret).at(step * _CODE_S).encode(), code.encode()):
                return self._mark_used(name, step, steps[-1])
        return False

    def _mark_used(self, name: str, step: int, latest: int) -> bool:
        """False for a code that was used, or is older than one that was.

        One that was used at a time that is still to come does not count: it would lock the user out until then.
        """
        query = "UPDATE users SET totp_used = ? WHERE name = ? AND (totp_used < ? OR totp_used > ?)"
        if step <= self._used.get(name, 0) <= latest:
            return False
        try:
            with self._database.open() as connection:
                return connection.execute(query, (step, name, step, latest)).rowcount == 1
        except sqlite3.Error as error:
            self._database.fail(error)
        with self._database.open() as connection:  # reading may work: users can log in on a full disk
            (used,) = connection.execute("SELECT totp_used FROM users WHERE name = ?", (name,)).fetchone()
        if step <= int(used) <= latest:
            return False
        self._used[name] = step
        self._database.write(query, step, name, step, latest)
        return True

    def converge(self, wanted: t.Sequence[t.Mapping[str, t.Any]], *, write: bool) -> list[str]:
        """Make users as described, and say what that changes; users that are not named stay.

        Whose password or secret changes, who leaves a group or is removed, loses all sessions and tokens.
        Raises BadUser before anything is written.
        """
        problems = [problem for each in wanted for problem in _problems(each)]
        names = [each.get("name") for each in wanted]
        problems += [f"user {name} is listed twice" for name in sorted({str(n) for n in names if names.count(n) > 1})]
        if problems:
            raise BadUser("\n".join(problems))
        return [step for each in wanted for step in self._converge(each, write=write)]

    def _converge(self, wanted: t.Mapping[str, t.Any], *, write: bool) -> list[str]:
        name, steps = str(wanted["name"]), list[str]()
        values: dict[str, t.Any] = {}
        with self._database.open() as connection:
            row = connection.execute("SELECT * FROM users WHERE name = ?", (name,)).fetchone()
        if wanted.get("state", "present") == "absent":
            if row and write:
                self._write("DELETE FROM users WHERE name = ?", name)
            return [f"remove user {name}"] if row else []
        if row is None or not self._verify(row["password"], wanted["password"]):
            values["password"] = self._hasher.hash(wanted["password"]) if write else ""
            steps.append(f"set the password of user {name}" if row else f"add user {name}")
        groups = json.dumps(sorted(wanted.get("groups") or []))
        for field, value, empty in (("totp", wanted.get("totp") or "", ""), ("groups", groups, "[]")):
            if (row[field] if row else empty) != value:
                values[field] = value
                steps.append(f"set {field} of user {name}")
        if write and values:
            left = set(json.loads(row["groups"] if row else "[]")) - set(json.loads(groups))
            self._save(name, values, known=row is not None)
            if left or values.keys() & {"password", "totp"}:
                self.end_access(name)
        return steps

    def _save(self, name: str, values: t.Mapping[str, t.Any], *, known: bool) -> None:
        if not known:
            self._write("INSERT INTO users (name, password) VALUES (?, '')", name)
        for field, value in values.items():
            self._write(f"UPDATE users SET {field} = ? WHERE name = ?", value, name)  # noqa: S608 (one of three names)

    def _write(self, statement: str, *values: t.Any) -> None:
        with self._database.open() as connection:
            connection.execute(statement, values)


def _problems(wanted: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    name = str(wanted.get("name", ""))
    if not _NAME.fullmatch(name):
        yield f"{name!a} is not a user name: use up to 64 letters, digits and . _ @ + -"
    if unknown := sorted(wanted.keys() - {"name", "password", "totp", "groups", "state"}):
        yield f"user {name!a}: {', '.join(unknown)} {agree(len(unknown), 'is not an option', 'are not options')}"
    if wanted.get("state", "present") not in ("present", "absent"):
        yield f"user {name!a}: state must be present or absent"
    elif wanted.get("state") != "absent" and not _SHORTEST <= len(str(wanted.get("password") or "")) <= _LONGEST:
        yield f"user {name!a}: password must have {_SHORTEST} to {_LONGEST} characters"
    if wanted.get("totp") and not _SECRET.fullmatch(str(wanted["totp"])):
        yield f"user {name!a}: totp must be a base32 secret of 24 characters or more"
    groups = wanted.get("groups") or []
    if not isinstance(groups, list) or not all(isinstance(each, str) and _NAME.fullmatch(each) for each in groups):
        yield f"user {name!a}: groups must be a list of names"
