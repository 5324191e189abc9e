"""A clock that jumps removes no evidence, logs nobody out, and lets nobody in for ever."""

from __future__ import annotations

import json
import socket
import stat
import threading
import time
import typing as t
from pathlib import Path

import argon2
import pyotp
import pytest

from ansible_collections.corral.virt.roles.console.files.corral_console import audit, copies, desk, jobs
from ansible_collections.corral.virt.roles.console.files.corral_console.__main__ import main
from ansible_collections.corral.virt.roles.console.files.corral_console.accounts import Accounts, User
from ansible_collections.corral.virt.roles.console.files.corral_console.audit import Audit
from ansible_collections.corral.virt.roles.console.files.corral_console.clock import Clock
from ansible_collections.corral.virt.roles.console.files.corral_console.config import PolicyConfig
from ansible_collections.corral.virt.roles.console.files.corral_console.copies import Copies
from ansible_collections.corral.virt.roles.console.files.corral_console.database import Database
from ansible_collections.corral.virt.roles.console.files.corral_console.desk import Desk
from ansible_collections.corral.virt.roles.console.files.corral_console.jobs import Jobs
from ansible_collections.corral.virt.roles.console.files.corral_console.sessions import Sessions
from ansible_collections.corral.virt.roles.console.files.corral_console.store import Store
from ansible_collections.corral.virt.roles.console.files.corral_console.tokens import Tokens
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.unit.roles.console.processes import (
    ticket_key,
)

DAY = 86_400
START = 1_800_000_000
ALICE = {"name": "alice", "password": "correct horse battery", "groups": ["admins"]}
SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"


class Machine:
    """Its clock can be set; what it counts since it was started cannot."""

    def __init__(self) -> None:
        self.offset, self.ticks, self.boot = float(START), 1000.0, "a"

    def wall(self) -> float:
        return self.offset + self.ticks

    def clock(self, database: Database) -> Clock:
        return Clock(database, wall=self.wall, ticks=lambda: self.ticks, boot=lambda: self.boot)

    def reboot(self, off_s: float) -> None:
        """It is off for that long."""
        self.offset += self.ticks + off_s
        self.ticks, self.boot = 0.0, self.boot + "a"


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    cheap = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(argon2, "PasswordHasher", lambda: cheap)
    made = Database(tmp_path / "console.db")
    Accounts(made).converge([ALICE, {**ALICE, "name": "tom", "totp": SECRET}], write=True)
    return made


JUMPS = [400 * DAY, -400 * DAY, 3600, -3600]


@pytest.mark.parametrize("jump", JUMPS)
def test_a_jump_is_not_believed_until_it_stays(database: Database, machine: Machine, jump: int) -> None:
    clock = machine.clock(database)
    assert clock() == machine.wall() and clock.problem == ""
    machine.offset += jump
    machine.ticks += 60
    assert clock() == machine.wall() - jump and ("ahead of" if jump > 0 else "behind") in clock.problem
    again = machine.clock(database)  # a restart changes nothing
    assert again() == pytest.approx(machine.wall() - jump, abs=2) and again.problem
    machine.offset -= jump
    assert clock() == machine.wall() and clock.problem == "", "it is right again"
    machine.offset += jump
    assert clock.problem
    machine.ticks += DAY + 1
    assert clock() == machine.wall() and clock.problem == "", "it stays so: it was wrong before"


def test_a_clock_that_is_set_right_by_minutes_is_believed(database: Database, machine: Machine) -> None:
    clock = machine.clock(database)
    for _each in range(20):
        machine.offset += 100
        machine.ticks += 700
        assert clock() == machine.wall() and clock.problem == ""


def test_a_machine_may_be_off(database: Database, machine: Machine) -> None:
    assert machine.clock(database).is_day_over()
    machine.reboot(20 * DAY)
    clock = machine.clock(database)
    assert clock() == machine.wall() and clock.problem == ""
    assert clock.is_day_over() and not clock.is_day_over()
    machine.reboot(400 * DAY)
    clock = machine.clock(database)
    assert clock.problem and not clock.is_day_over(), "that is more likely a clock without a battery"
    machine.reboot(-800 * DAY)
    assert machine.clock(database).problem


def test_what_is_old_is_removed_once_a_day(database: Database, machine: Machine) -> None:
    clock = machine.clock(database)
    assert clock.is_day_over() and not clock.is_day_over()
    machine.ticks += DAY - 10
    assert not clock.is_day_over()
    assert not machine.clock(database).is_day_over(), "nor once for each start"
    machine.ticks += 20
    assert clock.is_day_over()


class Evidence:
    """A policy process with 1,500 lines in the audit and finished jobs."""

    def __init__(self, folder: Path, machine: Machine) -> None:
        ticket_key(folder / "ticket.key")
        (folder / "policy.json").write_text("[]")
        self.folder, self.machine = folder, machine
        self.config = PolicyConfig(
            directory=folder,
            policy=folder / "policy.json",
            hosts=("hyper1",),
            web_user="root",
            group="hyper",
            project=folder,
            ansible=folder,
            variables=folder,
        )
        database = Database(folder / "console.db")
        rows = [(START + number, json.dumps({"audit": "login", "user": "alice"})) for number in range(1500)]
        with database.open() as connection:
            connection.executemany("INSERT INTO audit (time, line) VALUES (?, ?)", rows)
        for number in range(130):
            self.job(number, START + number)

    def job(self, number: int, created: int, *, check: bool = False) -> None:
        directory = self.folder / "jobs" / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(created))}-{number:08x}"
        directory.mkdir(parents=True)
        request = {
            "action": "start",
            "user": "alice",
            "created": created,
            "arguments": {},
            "secret": [],
            "number": number,
        }
        (directory / "request.json").write_text(json.dumps({**request, "check": check}))
        (directory / "result.json").write_text('{"state": "succeeded", "ended": 2}')

    def desk(self, monkeypatch: pytest.MonkeyPatch) -> Desk:
        """The policy process starts."""
        monkeypatch.setattr(desk, "Clock", self.machine.clock)
        made = desk.Desk(self.config)
        made.audit._clock = self.machine.wall
        return made

    def left(self, server: Desk) -> tuple[int, int]:
        server._forget_at = 0.0
        server.look()
        with server.database.open() as connection:
            (lines,) = connection.execute("SELECT count(*) FROM audit WHERE line LIKE '%login%'").fetchone()
        return lines, len(list((self.folder / "jobs").iterdir()))


def test_a_clock_that_is_a_year_ahead_removes_no_evidence(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.offset += 2000
    evidence = Evidence(tmp_path, machine)
    server = evidence.desk(monkeypatch)
    assert evidence.left(server) == (1500, 130)
    machine.offset += 400 * DAY
    for number in range(100):
        server.audit.write("view", user="mallory", address="::1", allowed=False, number=number)
    assert evidence.left(server) == (1500, 130)
    problems = t.cast(t.Any, server.store.get("server/jobs"))["problems"]
    assert any("400 days ahead of" in each for each in problems), "the page says so"
    assert evidence.left(evidence.desk(monkeypatch)) == (1500, 130), "nor at a start"
    machine.ticks += 3 * DAY  # nobody sets it right
    server = evidence.desk(monkeypatch)
    assert not server.clock.problem or evidence.left(server) == (1500, 130)
    machine.ticks += 3 * DAY
    assert evidence.left(server)[0] == 1500, "lines of which there are few stay whatever their age"
    assert evidence.left(server)[1] >= 100, "so do jobs"


def test_a_first_start_with_a_wrong_clock_removes_no_evidence(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no time yet that was believed, but there are lines."""
    evidence = Evidence(tmp_path, machine)
    machine.offset += 400 * DAY
    server = evidence.desk(monkeypatch)
    assert evidence.left(server) == (1500, 130) and "ahead of" in server.clock.problem


def test_a_day_removes_a_part_of_the_evidence_only(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "LEAST_LINES", 10)
    monkeypatch.setattr(audit, "_MOST_A_DAY", 100)
    monkeypatch.setattr(jobs, "LEAST_JOBS", 5)
    monkeypatch.setattr(jobs, "_MOST_A_DAY", 10)
    evidence = Evidence(tmp_path, machine)
    machine.offset += 2000
    server = evidence.desk(monkeypatch)
    server.clock()
    for _day in range(100):
        machine.ticks += DAY
        server.clock()
    found = [evidence.left(server)]
    for _day in range(2):
        found.append(evidence.left(server))
        machine.ticks += DAY + 1
    found.append(evidence.left(server))
    assert found[:2] == [(1350, 117), (1350, 117)] and found[-1][0] < 1350 and found[-1][1] < 117
    for _day in range(60):
        machine.ticks += DAY + 1
        last = evidence.left(server)
    assert last[0] <= 10 and last[1] == 5, "what is not young any more goes in the end, but for the newest"


def test_what_was_written_while_the_clock_was_behind_is_not_old(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "LEAST_LINES", 1)
    monkeypatch.setattr(jobs, "LEAST_JOBS", 0)
    evidence = Evidence(tmp_path, machine)
    evidence.job(200, START - 400 * DAY)
    database = Database(tmp_path / "console.db")
    Audit(database, days=90, clock=lambda: float(START - 400 * DAY)).write("x", user="", address="", allowed=True)
    server = evidence.desk(monkeypatch)
    assert server.audit.forget(START + 2000) == 0 and server.jobs.forget(START + 2000) == 0


def test_previews_push_out_no_jobs(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = Evidence(tmp_path, machine)
    object.__setattr__(evidence.config, "kept_jobs", 130)
    for number in range(200, 400):
        evidence.job(number, START + number, check=True)
    made = Jobs(evidence.config, Store())
    made.look()
    assert [sum(job.request["check"] is check for job in made.all()) for check in (False, True)] == [130, 130]


def test_a_job_of_a_clock_that_went_back_is_not_the_oldest(tmp_path: Path, machine: Machine) -> None:
    """Its name sorts first: it was removed as soon as it had ended."""
    evidence = Evidence(tmp_path, machine)
    object.__setattr__(evidence.config, "kept_jobs", 130)
    evidence.job(500, START - 400 * DAY)
    made = Jobs(evidence.config, Store())
    made.look()
    assert 500 in {job.place[0] for job in made.all()} and 0 not in {job.place[0] for job in made.all()}


@pytest.mark.parametrize("jump", JUMPS)
def test_a_jump_ends_no_session_and_no_token(database: Database, machine: Machine, jump: int) -> None:
    clock, alice = machine.clock(database), User("alice", ("admins",))
    sessions, tokens = (
        Sessions(database, idle_s=8 * 3600, longest_s=7 * DAY, clock=clock),
        Tokens(database, clock=clock),
    )
    session, token = sessions.begin(alice, address="::1", agent=""), tokens.make(alice, "x", 30)
    machine.offset += jump
    assert sessions.find(session) and tokens.find(token)
    later = sessions.begin(alice, address="::1", agent=""), tokens.make(alice, "y", 30)
    clock = machine.clock(database)
    sessions, tokens = (
        Sessions(database, idle_s=8 * 3600, longest_s=7 * DAY, clock=clock),
        Tokens(database, clock=clock),
    )
    assert sessions.find(session) and tokens.find(token), "nor after a restart"
    machine.offset -= jump
    assert all((sessions.find(session), sessions.find(later[0]), tokens.find(token), tokens.find(later[1])))
    for _hour in range(8 * 24):
        machine.ticks += 3600
        sessions.find(session)
    assert sessions.find(session) is None and sessions.find(later[0]) is None, "they end as ever"
    machine.ticks += 30 * DAY
    assert tokens.find(token) is None and tokens.find(later[1]) is None


def test_a_session_of_a_wrong_clock_does_not_live_for_ever(database: Database, machine: Machine) -> None:
    """It was begun by an earlier version, or before a reboot, a year ahead."""
    ahead = Sessions(database, idle_s=8 * 3600, longest_s=7 * DAY, clock=lambda: START + 400.0 * DAY)
    value = ahead.begin(User("alice"), address="::1", agent="")
    token = Tokens(database, clock=lambda: START + 400.0 * DAY).make(User("alice"), "x", 30)
    clock = machine.clock(database)
    assert Sessions(database, idle_s=8 * 3600, longest_s=7 * DAY, clock=clock).find(value) is None
    assert Tokens(database, clock=clock).find(token) is None


def test_an_expired_token_is_not_removed_for_its_age_alone(database: Database) -> None:
    made = Tokens(database, clock=lambda: float(START)).make(User("alice"), "x", 30)
    assert Tokens(database, clock=lambda: START + 400.0 * DAY).make(User("alice"), "y", 30)
    assert Tokens(database, clock=lambda: float(START)).find(made)


def test_a_jump_locks_out_nobody_who_logs_in_with_a_code(
    database: Database, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The phone tells the right time, and the machine does not; then both do."""
    monkeypatch.setattr(time, "time", machine.wall)
    clock = machine.clock(database)
    users, password = Accounts(database, clock=clock), "correct horse battery"
    right = machine.wall
    assert clock()
    machine.offset += 400 * DAY
    code = pyotp.TOTP(SECRET).at(int(right() - 400 * DAY))
    assert users.check("tom", password, code) and not users.check("tom", password, code)
    assert users.check("tom", password, pyotp.TOTP(SECRET).at(int(right()))), "or the other way round"
    machine.offset -= 400 * DAY
    machine.ticks += 90
    code = pyotp.TOTP(SECRET).at(int(right()))
    assert users.check("tom", password, code) and not users.check("tom", password, code)


def _lines(path: Path) -> list[dict[str, t.Any]]:
    return [json.loads(line.partition(" ")[2]) for line in path.read_text().splitlines()] if path.is_file() else []


def test_the_audit_is_copied_to_a_file_as_it_is_written(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    written = Audit(database, days=1, copies=Copies(file=str(path)))
    for number in range(3):
        written.write("login", user="alice", address="::1", allowed=True, number=number)
    until(lambda: [line["number"] for line in _lines(path)] == [0, 1, 2])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.rename(tmp_path / "rotated")
    written.write("logout", user="alice", address="::1", allowed=True)
    until(lambda: [line["audit"] for line in _lines(path)] == ["logout"])


@pytest.mark.parametrize("wrong", ["missing/copy", "folder", "fifo", "link"])
def test_a_copy_that_fails_loses_no_line_and_is_told(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    import os

    monkeypatch.setattr(copies, "_AGAIN_S", 0.05)
    path = tmp_path / wrong
    if wrong == "folder":
        path.mkdir()
    elif wrong == "fifo":
        os.mkfifo(path)
    elif wrong == "link":
        path.symlink_to(tmp_path / "elsewhere")
    made = Copies(file=str(path))
    written = Audit(database, days=1, copies=made)
    for number in range(3):
        written.write("login", user="alice", address="::1", allowed=True, number=number)
    assert len(written.read(None, 10)) == 3, "the server has its own"
    until(made.problems)
    assert f"the audit is not copied to {path}" in made.problems()[0]
    if wrong == "folder":
        path.rmdir()
    elif wrong.startswith("missing"):
        path.parent.mkdir()
    else:
        path.unlink()
    until(lambda: [line["number"] for line in _lines(path)] == [0, 1, 2])
    until(lambda: made.problems() == [])


def test_too_many_lines_that_wait_are_told_and_bounded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_MOST_WAITING", 5)
    made = Copies(file="/nowhere/copy")
    for number in range(20):
        made.add(1, str(number))
    until(made.problems)
    assert "lines are missing there; the audit of the server has them" in made.problems()[0]
    made.close()


def test_a_server_that_ends_sends_what_waits_and_does_not_wait_for_what_fails(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "copy"
    ends, fails = Copies(file=str(path)), Copies(file="/nowhere/copy")
    for number in range(500):
        ends.add(1, json.dumps({"number": number}))
        fails.add(1, "{}")
    until(fails.problems)
    started = time.monotonic()
    for made in (ends, fails):
        made.close()
    assert [line["number"] for line in _lines(path)] == list(range(500))
    assert time.monotonic() - started < 5, "the next try would be later"
    assert "copies the audit to /nowhere/copy" not in [thread.name for thread in threading.enumerate()]


def test_the_audit_goes_to_a_syslog_of_this_machine(database: Database, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "log"))
        server.settimeout(10)
        written = Audit(database, days=1, copies=Copies(syslog=str(tmp_path / "log")))
        written.write("login", user="alice", address="::1", allowed=True)
        head, _space, line = server.recv(10_000).decode().partition(" ")
    assert head == "<86>corral-console:" and json.loads(line)["user"] == "alice"


def test_the_audit_goes_to_a_syslog_server(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_AGAIN_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        port = server.getsockname()[1]
        written = Audit(database, days=1, copies=Copies(syslog=f"tcp://127.0.0.1:{port}"))
        written.write("login", user="alice", address="::1", allowed=True, text="a\nb")
        connection = server.accept()[0]
        connection.settimeout(10)
        size, _space, message = connection.recv(10_000).partition(b" ")
        assert int(size) == len(message) and message.startswith(b"<86>1 ") and b" corral-console - audit - {" in message
        connection.close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        Copies(syslog=f"udp://127.0.0.1:{server.getsockname()[1]}").add(1, '{"audit": "x"}')
        assert server.recv(10_000).endswith(b'{"audit": "x"}')


def test_a_syslog_that_hangs_delays_no_decision(database: Database) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        written = Audit(database, days=1, copies=Copies(syslog=f"tcp://127.0.0.1:{server.getsockname()[1]}"))
        started = time.monotonic()
        for _each in range(50):
            written.write("login", user="alice", address="::1", allowed=True, text="x" * 60_000)
        assert time.monotonic() - started < 10
    assert threading.active_count() < 50


def test_a_backup_brings_back_no_access_and_its_age_is_no_jump(
    tmp_path: Path, database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """A session or a token that was ended since would be valid again."""
    user, audited = User("alice"), Audit(database, days=90, clock=lambda: time.time() - 200 * DAY)
    audited.write("login", user="alice", address="", allowed=True)
    with database.open() as connection:
        connection.execute("INSERT INTO clock VALUES (1, ?, 5, 'another', 0)", (int(time.time()) - 200 * DAY,))
    session = Sessions(database, idle_s=DAY, longest_s=DAY).begin(user, address="", agent="")
    token = Tokens(database).make(user, "ci", 30)
    assert "ahead of" in Clock(database).problem
    needed = {
        "policy": "x",
        "hosts": [],
        "web_user": "x",
        "group": "x",
        "project": "x",
        "ansible": "x",
        "variables": "x",
    }
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**needed, "hosts": ["hyper1"], "directory": str(tmp_path)}))
    told = []
    for flags in (["--check"], [], []):
        assert main(["restored", "--config", str(config), *flags]) == 0
        told.append(json.loads(capsys.readouterr().out))
        found = Sessions(database, idle_s=DAY, longest_s=DAY).find(session), Tokens(database).find(token)
        assert all(found) if flags else not any(found)
    ends = {"changed": True, "steps": ["end 1 sessions", "end 1 tokens"]}
    assert told == [ends, ends, {"changed": False, "steps": []}]
    assert Clock(database).problem == "" and Accounts(database).check("alice", str(ALICE["password"]))
    assert [line["audit"] for line in audited.read(None, 9)] == ["restored", "restored", "login"]
    (tmp_path / "console.db").unlink()
    assert main(["restored", "--config", str(config)]) == 2 and "there is no" in capsys.readouterr().err
    assert not (tmp_path / "console.db").exists()
