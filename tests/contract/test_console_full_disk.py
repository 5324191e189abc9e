"""The console on a file system that has no room, or cannot be written to: it tells so, and goes on when there is room."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pyotp
import pytest

from ansible_collections.corral.virt.roles.console.files.corral_console import copies
from ansible_collections.corral.virt.tests.contract.console_services import (
    Services,
)
from ansible_collections.corral.virt.tests.contract.play import deep
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until

SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
USERS = [
    {"name": "alice", "password": "correct horse battery", "groups": ["admins"]},
    {"name": "tom", "password": "correct horse battery", "groups": ["admins"], "totp": SECRET},
]


def mounted(path: Path, size: str) -> None:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"cannot mount a file system: {done.stderr.decode()}")


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    """The state of each service is on a disk of its own."""
    if os.geteuid():
        pytest.skip("only root can mount a file system")
    made = Services(tmp_path, USERS)
    try:
        mounted(made.jobs, "32m")
        mounted(made.web, "8m")
        made.prepare()
        yield made
    finally:
        made.close()
        for each in (made.jobs, made.web):
            subprocess.run(["umount", "-l", each], capture_output=True, check=False)


def fill(*disks: Path) -> None:
    for disk in disks:
        with (disk / "ballast").open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass


def make_room(*disks: Path) -> None:
    for disk in disks:
        (disk / "ballast").unlink()


def remount(how: str, *disks: Path) -> None:
    commands = [["mount", "-o", f"remount,{how}", str(disk)] for disk in disks]

    def is_done() -> bool:
        return not any(subprocess.run(each, capture_output=True, check=False).returncode for each in commands)

    until(is_done)  # not while a job writes


@contextlib.contextmanager
def unwritable(kind: str, *disks: Path) -> Iterator[None]:
    if kind == "full":
        fill(*disks)
        yield
        make_room(*disks)
    else:
        remount("ro", *disks)
        yield
        remount("rw", *disks)


def works(services: Services, cookie: str) -> None:
    """As if nothing had been."""
    services.go.unlink(missing_ok=True)
    until(lambda: services.problems(cookie) == [])
    answer = services.start_job(cookie)
    assert answer.status == 201, answer
    services.go.touch()
    until(
        lambda: services.ask("GET", f"/api/jobs/{answer.content['id']}", cookie=cookie).content["state"] == "succeeded"
    )
    assert services.alive()


@pytest.mark.parametrize("kind", ["full", deep("read-only")])
def test_a_full_disk_logs_nobody_out_and_is_told(services: Services, kind: str) -> None:
    services.start()
    before = services.log_in()
    services.go.touch()
    services.start_job(before, check=True)
    with unwritable(kind, services.jobs, services.web):
        until(lambda: len(services.problems(before)) == 2)
        texts = " ".join(services.problems(before))
        assert str(services.jobs) in texts and str(services.web) in texts
        assert ("is full" if kind == "full" else "read-only") in texts
        time.sleep(5)  # what the web process remembers of who is logged in
        for path in (
            "/api/me",
            "/api/jobs",
            "/api/sessions",
            "/api/audit",
            "/api/users",
            "/api/tokens",
            "/api/hosts/hyper1",
        ):
            assert services.ask("GET", path, cookie=before).status == 200, path
        assert services.ask("GET", "/api/me", cookie=before).content["user"] == "alice"
        refused = services.start_job(before)
        assert refused.status == 507 and "cannot record the job, so it is not started" in refused.content["error"]
        assert str(services.jobs) in refused.content["error"]
        meanwhile = services.log_in()
        assert services.ask("GET", "/api/me", cookie=meanwhile).content["user"] == "alice"
        assert len(services.ask("GET", "/api/sessions", cookie=before).content) == 2
        code = pyotp.TOTP(SECRET).now()
        services.log_in("tom", code=code)
        again = services.ask("POST", "/api/login", {"user": "tom", "password": "correct horse battery", "code": code})
        assert again.status == 403, "a code is good once"
        ended = services.log_in()
        assert services.ask("POST", "/api/logout", {}, ended).status == 200
        assert services.ask("GET", "/api/me", cookie=ended).content == {}, "who logs out is logged out"
    for cookie in (before, meanwhile):
        assert services.ask("GET", "/api/me", cookie=cookie).content["user"] == "alice"
    works(services, before)
    assert len(list((services.jobs / "jobs").iterdir())) == 2, "nothing is left of what was refused"
    services.stop("policy")
    services.start("policy")
    assert services.ask("GET", "/api/me", cookie=meanwhile).content["user"] == "alice", "it was stored then"
    assert services.ask("GET", "/api/me", cookie=ended).content == {}
    lines = services.ask("GET", "/api/audit?limit=1000", cookie=before).content
    assert [line["audit"] for line in lines].count("login") == 5 and any(line["audit"] == "logout" for line in lines)
    refusals = [line for line in lines if "cannot record" in str(line.get("reason"))]
    assert refusals, "what was decided while there was no room is in the audit"


@pytest.mark.parametrize("kind", ["full", deep("read-only")])
@pytest.mark.parametrize("how", [deep(signal.SIGTERM), signal.SIGKILL])
def test_the_server_starts_on_a_full_disk(services: Services, kind: str, how: int) -> None:
    services.start()
    before = services.log_in()
    assert services.start_job(before).status == 201
    services.stop(how=how)
    services.go.touch()
    with unwritable(kind, services.jobs, services.web):
        services.start()
        time.sleep(2)
        assert services.alive(), services.log("policy")
        assert services.ask("GET", "/api/me", cookie=before).content["user"] == "alice"
        cookie = services.log_in()
        assert services.ask("GET", "/api/jobs", cookie=cookie).status == 200
        assert services.start_job(cookie).status in (409, 507)
        until(lambda: len(services.problems(cookie)) == 2)
        history = services.ask("GET", "/api/history/hyper1", cookie=cookie)
        assert history.status in (200, 503) and (history.status == 200 or "history" in history.content["error"])
        assert services.ask("GET", "/api/hosts/hyper1", cookie=cookie).status == 200, "hosts are not unreachable"
    works(services, before)


def test_a_write_ahead_log_of_an_earlier_version_is_taken_over(services: Services) -> None:
    """Whose readers need files beside it: a full disk made the server crash at each start."""
    database = services.jobs / "console.db"
    with contextlib.closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    fill(services.jobs, services.web)
    services.start()
    time.sleep(3)
    assert services.alive(), services.log("policy")
    assert services.ask("GET", "/api/me", cookie="__Host-corral=x").status == 503
    make_room(services.jobs, services.web)
    works(services, services.log_in())
    with contextlib.closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_the_end_of_a_job_is_recorded_on_a_full_disk(services: Services) -> None:
    services.start()
    cookie = services.log_in()
    job = services.start_job(cookie).content["id"]
    until(lambda: services.ask("GET", f"/api/jobs/{job}/log", cookie=cookie).content["lines"])
    fill(services.jobs)
    services.go.touch()

    def state() -> t.Any:
        return services.ask("GET", f"/api/jobs/{job}", cookie=cookie).content["state"]

    until(lambda: state() not in ("waiting", "running"))
    assert state() in ("succeeded", "failed"), "not lost"
    make_room(services.jobs)
    works(services, cookie)


def test_a_state_that_cannot_be_read_is_not_a_logout(services: Services) -> None:
    services.start()
    cookie = services.log_in()
    database = services.jobs / "console.db"
    kept = database.rename(services.jobs / "kept.db")
    database.mkdir()
    until(lambda: services.ask("GET", "/api/me", cookie=cookie).status == 503)
    assert "cannot use its state" in services.ask("GET", "/api/me", cookie=cookie).content["error"]
    until(lambda: services.ask("GET", "/api/hosts/hyper1", cookie=cookie).status != 200)  # it asks anew after seconds
    assert services.ask("GET", "/api/hosts/hyper1", cookie=cookie).status == 503
    assert services.ask("POST", "/api/login", {"user": "alice", "password": "correct horse battery"}).status == 503
    database.rmdir()
    kept.rename(database)
    works(services, cookie)


def test_a_copy_of_the_audit_on_a_full_disk_is_made_up_for(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a line is ended, and the line is written again."""
    monkeypatch.setattr(copies, "_AGAIN_S", 0.1)
    path, lines = services.web / "audit.log", [f"line {number:03d} {'x' * 100}" for number in range(100)]
    made = copies.Copies(file=str(path))
    made.add(1, "first")
    until(path.exists)
    fill(services.web)
    for line in lines:
        made.add(1, line)
    until(made.problems)
    assert f"the audit is not copied to {path}" in made.problems()[0]
    make_room(services.web)
    until(lambda: made.problems() == [] and path.read_text().count(lines[-1]) == 1)
    whole = [line.partition(" ")[2] for line in path.read_text().splitlines()]
    assert [line for line in whole if line in ("first", *lines)] == ["first", *lines]
