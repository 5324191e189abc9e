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

from ansible_collections.corral.virt.roles.console.files.corral_console import audit
from ansible_collections.corral.virt.roles.console.files.corral_console import tickets as place
from ansible_collections.corral.virt.roles.console.files.corral_console.accounts import Accounts, BadUser, User
from ansible_collections.corral.virt.roles.console.files.corral_console.database import Database
from ansible_collections.corral.virt.roles.console.files.corral_console.sessions import Sessions, digest_of
from ansible_collections.corral.virt.roles.console.files.corral_console.signing import LIFETIME_S, Signer
from ansible_collections.corral.virt.roles.console.files.corral_console.throttle import Throttle
from ansible_collections.corral.virt.roles.console.files.corral_console.tickets import Tickets
from ansible_collections.corral.virt.roles.console.files.corral_console.tokens import Tokens
from ansible_collections.corral.virt.tests.unit.roles.console.processes import ticket_key

PASSWORD = "correct horse battery"
GUEST = "6695eb01-f6a4-8304-79aa-97f2502e193f"
SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
ALICE: dict[str, t.Any] = {"name": "alice", "password": PASSWORD, "groups": ["admins"]}


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
            "tokens",
            "audit",
            "clock",
        }


def test_what_fails_is_not_written(accounts: Accounts, database: Database) -> None:
    accounts.converge([ALICE], write=True)
    with pytest.raises(sqlite3.OperationalError, match="no such table"), database.open() as connection:
        connection.executemany("DELETE FROM users WHERE name = ?", [("alice",)]).execute("DELETE FROM missing")
    assert accounts.find("alice")


def test_a_user_logs_in_with_the_password_only(accounts: Accounts, database: Database) -> None:
    assert accounts.converge([ALICE], write=True) == ["add user alice", "set groups of user alice"]
    assert accounts.check("alice", PASSWORD) == accounts.find("alice") == User("alice", ("admins",))
    for name, password in (("alice", PASSWORD + "x"), ("alice", ""), ("Alice", PASSWORD), ("", PASSWORD), ("bob", "")):
        assert accounts.check(name, password) is None
    with database.open() as connection:
        assert PASSWORD not in str([tuple(row) for row in connection.execute("SELECT * FROM users")])


def test_users_are_converged(accounts: Accounts, database: Database) -> None:
    assert accounts.converge([ALICE], write=False) and accounts.find("alice") is None
    accounts.converge([ALICE, {"name": "bob", "password": PASSWORD}], write=True)
    assert accounts.converge([ALICE], write=True) == []
    assert accounts.find("bob") == User("bob"), "who is not named stays"
    changed = [{**ALICE, "groups": []}, {"name": "bob", "state": "absent"}]
    steps = ["set groups of user alice", "remove user bob"]
    assert accounts.converge(changed, write=False) == steps and accounts.find("bob")
    assert accounts.converge(changed, write=True) == steps
    assert accounts.converge(changed, write=True) == [] and accounts.find("bob") is None
    assert accounts.find("alice") == User("alice")


def test_a_new_password_ends_sessions(accounts: Accounts, database: Database) -> None:
    accounts.converge([ALICE, {"name": "bob", "password": PASSWORD}], write=True)
    sessions = Sessions(database, idle_s=100, longest_s=100)
    values = [sessions.begin(User(name), address="", agent="") for name in ("alice", "bob")]
    accounts.converge([ALICE], write=True)
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
        {"name": "frank", "password": PASSWORD, "groups": "admins"},
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
        "groups must",
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
    assert found and found.user == User("alice", ("admins",)) and len(found.agent) == 256
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
    assert not made.end(User("bob"), digest) and made.find(value)
    assert made.end(User("alice"), digest) and not made.end(User("alice"), digest)
    assert made.find(value) is None and made.of(User("alice")) == []
    other = made.begin(User("bob"), address="", agent="")
    assert made.end_any(digest_of(other)) and made.find(other) is None


WHAT = {"host": "hyper1", "guest": GUEST, "kind": "vnc", "session": "s", "user": "alice"}


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(ticket_key(tmp_path / "ticket.key"))


def test_a_ticket_is_good_once(signer: Signer) -> None:
    tickets = Tickets()
    text = signer.ticket(**WHAT)
    found = tickets.take(text, "s")
    assert found and (found.host, found.guest, found.kind, found.user) == ("hyper1", GUEST, "vnc", "alice")
    assert tickets.take(text, "s") is None
    for odd in ("", ".", "x.y", "e30.x", "W10.x", "\xe4", "x" * 5000):
        assert tickets.take(odd, "s") is None


def test_a_ticket_that_somebody_else_shows_is_void(signer: Signer) -> None:
    tickets = Tickets()
    text = signer.ticket(**WHAT)
    assert tickets.take(text, "other") is None
    assert tickets.take(text, "s") is None


def test_a_ticket_expires(signer: Signer) -> None:
    clock = Clock()
    clock.now = time.time()
    tickets = Tickets(clock=clock)
    text, other = signer.ticket(**WHAT), signer.ticket(**WHAT)
    clock.now += LIFETIME_S - 2
    assert tickets.take(text, "s")
    clock.now += 2
    assert tickets.take(other, "s") is None


def test_used_tickets_are_bounded(signer: Signer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_MOST", 2)
    tickets = Tickets()
    assert [bool(tickets.take(signer.ticket(**WHAT), "s")) for _each in range(3)] == [True, True, False]


def test_a_token_is_its_users(database: Database, accounts: Accounts) -> None:
    accounts.converge([ALICE], write=True)
    clock, alice = Clock(), User("alice", ("admins",))
    tokens = Tokens(database, clock=clock)
    value = tokens.make(alice, "script", 2)
    found = tokens.find(value)
    assert found and found[1] == alice and tokens.find(value + "x") is None and tokens.find("") is None
    (listed,) = tokens.of(alice)
    assert listed["name"] == "script" and value not in str(listed)
    with database.open() as connection:
        assert value not in str([tuple(row) for row in connection.execute("SELECT * FROM tokens")])
    assert not tokens.end(User("bob"), listed["id"]) and tokens.find(value)
    assert tokens.end(alice, listed["id"]) and tokens.find(value) is None
    short = tokens.make(alice, "other", 1)
    clock.now += 86400
    assert tokens.find(short) is None and tokens.of(alice) == []


def test_tokens_are_bounded(database: Database, accounts: Accounts) -> None:
    accounts.converge([ALICE], write=True)
    tokens = Tokens(database)
    assert [bool(tokens.make(User("alice"), "x", 1)) for _each in range(101)] == [True] * 100 + [False]


def test_who_comes_through_a_proxy_has_its_groups_and_no_password(accounts: Accounts) -> None:
    assert accounts.admit("dora", ["ops"]) == User("dora", ("ops",))
    assert accounts.admit("dora", []) == User("dora") and accounts.check("dora", "") is None
    accounts.converge([ALICE], write=True)
    assert accounts.admit("alice", ["others"]) == User("alice", ("admins",)), "that of the role counts"
    for odd in (("", []), ("a b", []), ("eve", ["x y"])):
        with pytest.raises(BadUser):
            accounts.admit(*odd)


def test_the_audit_is_kept_for_days(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "LEAST_LINES", 1)
    clock = Clock()
    written = audit.Audit(database, days=1, clock=clock)
    written.write("login", user="alice", address="::1", allowed=True)
    clock.now += 2 * 86400
    for number in range(3):
        written.write("start", user="alice", address="::1", allowed=False, job=number)
    assert written.forget(clock.now) == 1 and written.forget(clock.now) == 0
    forget, *lines = written.read(None, 10)
    assert (forget["audit"], forget["lines"], forget["days"]) == ("forget", 1, 1), "that lines were removed is one, too"
    assert [line["audit"] for line in lines] == ["start"] * 3 and lines[0]["job"] == 2
    assert [line["job"] for line in written.read(lines[0]["id"], 1)] == [1]


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
    limit.uncount("a")
    assert limit.wait_s("a") == 0
    limit.count("a")
    assert limit.wait_s("a") == 10
    limit.uncount("unknown")


def test_limits_are_bounded() -> None:
    limit = Throttle(1, 60, keys=2)
    for key in "abc":
        limit.count(key)
    assert [limit.wait_s(key) > 0 for key in "abc"] == [False, True, True]
