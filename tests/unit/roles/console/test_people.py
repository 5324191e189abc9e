"""Users, sessions, tickets and limits of the console."""

from __future__ import annotations

import concurrent.futures
import sqlite3
import time
import typing as t
from pathlib import Path

import argon2
import pyotp
import pytest

from ansible_collections.corral.virt.roles.console.files.corral_console.accounts import Accounts, BadUser, User
from ansible_collections.corral.virt.roles.console.files.corral_console.database import Database
from ansible_collections.corral.virt.roles.console.files.corral_console.sessions import Sessions
from ansible_collections.corral.virt.roles.console.files.corral_console.throttle import Throttle
from ansible_collections.corral.virt.roles.console.files.corral_console.tickets import LIFETIME_S, Ticket, Tickets

PASSWORD = "correct horse battery"
SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
ALICE: dict[str, t.Any] = {"name": "alice", "password": PASSWORD, "consoles": True}


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "db")


@pytest.fixture
def accounts(database: Database, monkeypatch: pytest.MonkeyPatch) -> Accounts:
    cheap = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(argon2, "PasswordHasher", lambda: cheap)
    return Accounts(database)


def test_a_database_is_made_by_many_at_once(tmp_path: Path) -> None:
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _number: Database(tmp_path / "shared"), range(16)))
    with made[0].open() as connection:
        assert {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")} == {
            "users",
            "sessions",
        }


def test_what_fails_is_not_written(accounts: Accounts, database: Database) -> None:
    accounts.converge([ALICE], write=True)
    with pytest.raises(sqlite3.OperationalError, match="no such table"), database.open() as connection:
        connection.executemany("DELETE FROM users WHERE name = ?", [("alice",)]).execute("DELETE FROM missing")
    assert accounts.find("alice")


def test_a_user_logs_in_with_the_password_only(accounts: Accounts, database: Database) -> None:
    assert accounts.converge([ALICE], write=True) == ["add user alice", "set consoles of user alice"]
    assert accounts.check("alice", PASSWORD) == accounts.find("alice") == User("alice", consoles=True)
    for name, password in (("alice", PASSWORD + "x"), ("alice", ""), ("Alice", PASSWORD), ("", PASSWORD), ("bob", "")):
        assert accounts.check(name, password) is None
    with database.open() as connection:
        assert PASSWORD not in str([tuple(row) for row in connection.execute("SELECT * FROM users")])


def test_users_are_converged(accounts: Accounts, database: Database) -> None:
    assert accounts.converge([ALICE], write=False) and accounts.find("alice") is None
    accounts.converge([ALICE, {"name": "bob", "password": PASSWORD}], write=True)
    assert accounts.converge([ALICE], write=True) == []
    assert accounts.find("bob") == User("bob"), "who is not named stays"
    changed = [{**ALICE, "consoles": False}, {"name": "bob", "state": "absent"}]
    steps = ["set consoles of user alice", "remove user bob"]
    assert accounts.converge(changed, write=False) == steps and accounts.find("bob")
    assert accounts.converge(changed, write=True) == steps
    assert accounts.converge(changed, write=True) == [] and accounts.find("bob") is None
    assert accounts.find("alice") == User("alice")


def test_a_new_password_ends_sessions(accounts: Accounts, database: Database) -> None:
    accounts.converge([ALICE, {"name": "bob", "password": PASSWORD}], write=True)
    sessions = Sessions(database, idle_s=100, longest_s=100)
    values = [sessions.begin(User(name), address="", agent="") for name in ("alice", "bob")]
    accounts.converge([{**ALICE, "consoles": False}], write=True)
    assert all(map(sessions.find, values))
    accounts.converge([{**ALICE, "password": PASSWORD + "2"}], write=True)
    assert sessions.find(values[0]) is None and sessions.find(values[1])
    accounts.converge([{"name": "bob", "state": "absent"}], write=True)
    assert sessions.find(values[1]) is None


def test_all_that_is_wrong_with_users_is_said_and_nothing_written(accounts: Accounts) -> None:
    wrong: list[dict[str, t.Any]] = [
        ALICE,
        ALICE,
        {"name": "a b", "password": PASSWORD},
        {"name": "bob", "password": "short"},
        {"name": "carol", "password": PASSWORD, "totp": "1"},
        {"name": "dave", "password": PASSWORD, "admin": True},
        {"name": "erin", "password": PASSWORD, "state": "gone"},
        {"name": "frank", "password": PASSWORD, "consoles": "no"},
    ]
    with pytest.raises(BadUser) as error:
        accounts.converge(wrong, write=True)
    text = str(error.value)
    for part in (
        "'a b'",
        "'bob': password",
        "'carol': totp",
        "admin is not",
        "state must",
        "consoles must",
        "alice is listed twice",
    ):
        assert part in text
    assert PASSWORD not in text and accounts.find("alice") is None


def test_a_code_is_needed_and_good_once(accounts: Accounts, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_700_000_000
    monkeypatch.setattr(time, "time", lambda: now)
    accounts.converge([{**ALICE, "totp": SECRET}], write=True)
    code = pyotp.TOTP(SECRET)
    assert accounts.check("alice", PASSWORD) is None
    assert accounts.check("alice", PASSWORD, code.at(now - 90)) is None
    assert accounts.check("alice", "wrong" * 4, code.at(now)) is None
    assert accounts.check("alice", PASSWORD, code.at(now))
    assert accounts.check("alice", PASSWORD, code.at(now)) is None
    assert accounts.check("alice", PASSWORD, code.at(now - 30)) is None, "an older one was never used, but seen maybe"
    assert accounts.check("alice", PASSWORD, code.at(now + 30))


@pytest.fixture
def sessions(database: Database, accounts: Accounts) -> tuple[Sessions, Clock]:
    accounts.converge([ALICE, {"name": "bob", "password": PASSWORD}], write=True)
    clock = Clock()
    return Sessions(database, idle_s=1000, longest_s=5000, clock=clock), clock


def test_a_session_is_found_by_its_value_only(sessions: tuple[Sessions, Clock], database: Database) -> None:
    made, _clock = sessions
    value = made.begin(User("alice"), address="192.0.2.1", agent="A" * 1000)
    found = made.find(value)
    assert found and found.user == User("alice", consoles=True) and len(found.agent) == 256
    assert made.find(found.digest) is None and made.find("") is None and made.find("\udcff") is None
    assert made.begin(User("alice"), address="", agent="") != value
    with database.open() as connection:
        assert value not in str([tuple(row) for row in connection.execute("SELECT * FROM sessions")])


def test_a_session_ends_when_idle_and_after_its_longest_time(sessions: tuple[Sessions, Clock]) -> None:
    made, clock = sessions
    value = made.begin(User("alice"), address="", agent="")
    for _each in range(6):
        clock.now += 800
        assert made.find(value), "a request keeps it"
    clock.now += 200
    assert made.find(value) is None
    idle = made.begin(User("alice"), address="", agent="")
    clock.now += 1000
    assert made.find(idle) is None


def test_a_session_is_ended_by_its_user(sessions: tuple[Sessions, Clock]) -> None:
    made, _clock = sessions
    value = made.begin(User("alice"), address="", agent="")
    digest = made.of(User("alice"))[0].digest
    assert not made.end(User("bob"), digest) and made.again(digest)
    assert made.end(User("alice"), digest) and not made.end(User("alice"), digest)
    assert made.find(value) is None and made.again(digest) is None and made.of(User("alice")) == []


TICKET = Ticket(session="s", host="hyper1", guest="uuid", kind="vnc")


def test_a_ticket_is_good_once() -> None:
    tickets = Tickets()
    secret = tickets.issue(TICKET)
    assert tickets.take(secret, "s") == TICKET
    assert tickets.take(secret, "s") is None
    assert tickets.take("", "s") is None


def test_a_ticket_that_somebody_else_shows_is_void() -> None:
    tickets = Tickets()
    secret = tickets.issue(TICKET)
    assert tickets.take(secret, "other") is None
    assert tickets.take(secret, "s") is None


def test_a_ticket_expires() -> None:
    clock = Clock()
    tickets = Tickets(clock=clock)
    secret, other = tickets.issue(TICKET), tickets.issue(TICKET)
    clock.now += LIFETIME_S - 0.1
    assert tickets.take(secret, "s")
    clock.now += 0.1
    assert tickets.take(other, "s") is None


def test_tickets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible_collections.corral.virt.roles.console.files.corral_console import tickets as place

    monkeypatch.setattr(place, "_MOST", 3)
    tickets = Tickets()
    secrets = [tickets.issue(TICKET) for _each in range(5)]
    assert [bool(tickets.take(secret, "s")) for secret in secrets] == [False, False, True, True, True]


def test_attempts_are_limited() -> None:
    clock = Clock()
    limit = Throttle(3, 60, clock=clock)
    for _each in range(3):
        assert limit.wait_s("a") == 0
        limit.count("a")
        clock.now += 10
    assert limit.wait_s("a") == 30 and limit.wait_s("b") == 0
    clock.now += 30.5
    assert limit.wait_s("a") == 0
    limit.count("a")
    assert limit.wait_s("a") == 10
    limit.forget("a")
    assert limit.wait_s("a") == 0


def test_limits_are_bounded() -> None:
    limit = Throttle(1, 60, keys=2)
    for key in "abc":
        limit.count(key)
    assert [limit.wait_s(key) > 0 for key in "abc"] == [False, True, True]
