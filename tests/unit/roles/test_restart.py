"""The role hypervisor's script: which daemon is restarted, and what it waits for."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import time
import typing as t
from pathlib import Path

import libvirt
import pytest

from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES

UNIT, SOCKET = "libvirtd.service", "libvirtd-tls.socket"
HOUR_S = 3600


class Systemd:
    """What systemctl is asked, and what it answers."""

    def __init__(self) -> None:
        self.active = {UNIT: "active", SOCKET: "active"}
        self.started = {UNIT: time.monotonic(), SOCKET: 0.0}
        self.calls: list[str] = []

    def __call__(self, verb: str, *arguments: str) -> str:
        unit = arguments[-1]
        if verb == "show":
            return f"ExecMainStartTimestampMonotonic={int(self.started[unit] * 1e6)}\nActiveState={self.active[unit]}\n"
        self.calls.append(f"{verb} {unit}")
        self.active[unit] = "inactive" if verb in ("stop", "reset-failed") else "active"
        if verb in ("start", "restart"):
            self.started[unit] = time.monotonic()
        return ""


class Domain:
    """A guest with what libvirt tells of it."""

    def __init__(self, **told: t.Any) -> None:
        self.told = {"isActive": 1, "jobStats": {"type": 0}, "state": [1, 1], "blockJobInfo": {}, **told}

    def name(self) -> str:
        return "web"

    def XMLDesc(self) -> str:  # noqa: N802
        return "<domain><devices><disk><target dev='vda'/></disk><disk><target dev='sda'/></disk></devices></domain>"

    def __getattr__(self, name: str) -> t.Callable[..., t.Any]:
        def answer(*_arguments: object) -> t.Any:
            found = self.told[name]
            if isinstance(found, int) and name != "isActive":
                error = libvirt.libvirtError("of libvirt")
                error.err = (found, 0, "of libvirt", 2)
                raise error
            return found

        return answer


@pytest.fixture
def systemd() -> Systemd:
    return Systemd()


def loaded() -> t.Any:
    spec = importlib.util.spec_from_file_location("restart", ROLES / "hypervisor/files/restart.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, systemd: Systemd) -> t.Any:
    module = loaded()
    monkeypatch.setattr(module, "systemctl", systemd)
    monkeypatch.setattr(module, "RUN", str(tmp_path / "run"))
    monkeypatch.setattr(module, "POLL_S", 0.01)
    monkeypatch.setattr(module, "domains", list)
    return module


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "libvirtd.conf"
    path.write_text("")
    return path


def request(conf: Path, *sockets: str, wait_s: float = 0) -> dict[str, t.Any]:
    """What the role asks for; one of the files is not there."""
    files = [str(conf), str(conf.with_name("qemu.conf"))]
    return {"daemons": {UNIT: files}, "sockets": dict.fromkeys(sockets, UNIT), "deadline": time.monotonic() + wait_s}


@pytest.mark.parametrize(("age_s", "due"), [(-1, False), (1, True), (HOUR_S, True)])
def test_a_daemon_is_due_when_it_started_before_its_file_changed(
    script: t.Any, systemd: Systemd, conf: Path, age_s: float, due: bool
) -> None:
    systemd.started[UNIT] = time.monotonic() - age_s
    assert [each.reason for each in script.due(request(conf))] == [f"started before {conf} changed"] * due
    os.utime(conf, (0, 0))  # a copy keeps the time of the content
    assert bool(script.due(request(conf))) is due


def test_a_daemon_that_does_not_run_is_not_due_unless_it_failed(script: t.Any, systemd: Systemd, conf: Path) -> None:
    systemd.started[UNIT] = 0
    systemd.active[UNIT] = "inactive"
    assert not script.due(request(conf))
    systemd.active[UNIT] = "failed"
    assert script.restart(request(conf))["restarted"] == [UNIT]
    assert systemd.calls == [f"reset-failed {UNIT}", f"restart {UNIT}"]


def test_it_is_restarted_once(script: t.Any, systemd: Systemd, conf: Path) -> None:
    systemd.started[UNIT] -= HOUR_S
    assert script.restart(request(conf)) == {"restarted": [UNIT], "jobs": [], "again": False}
    assert script.restart(request(conf)) == {"restarted": [], "jobs": [], "again": False}
    assert systemd.calls == [f"restart {UNIT}"]


def test_a_socket_is_started_while_its_daemon_does_not_run(script: t.Any, systemd: Systemd, conf: Path) -> None:
    systemd.active[SOCKET] = "inactive"
    assert not script.due({**request(conf), "daemons": {UNIT: []}})
    script.restart(request(conf, SOCKET))
    assert systemd.calls == [f"stop {UNIT}", f"start {SOCKET}", f"start {UNIT}"]


def test_somebody_who_connects_while_the_socket_starts_starts_the_daemon(
    script: t.Any, systemd: Systemd, conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [script.Problem("already active")] * 2

    def refusing(verb: str, *arguments: str) -> str:
        if (verb, arguments) == ("start", (SOCKET,)) and refusals:
            raise refusals.pop()
        return systemd(verb, *arguments)

    monkeypatch.setattr(script, "systemctl", refusing)
    systemd.active[SOCKET] = "inactive"
    script.restart(request(conf, SOCKET))
    assert systemd.calls == [f"stop {UNIT}"] * 3 + [f"start {SOCKET}", f"start {UNIT}"]


def test_a_clock_that_was_set_back_costs_one_restart(script: t.Any, systemd: Systemd, conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {str(conf): time.time() + HOUR_S}
    changed_at = script.changed_at
    monkeypatch.setattr(script, "changed_at", lambda path: times.get(path) or changed_at(path))
    monkeypatch.setattr(script.os, "chmod", lambda path, _mode: times.pop(path))
    assert script.restart(request(conf))["restarted"] == [UNIT]
    assert not times


BUSY: list[tuple[dict[str, t.Any], list[str]]] = [
    ({}, []),
    ({"jobStats": {"type": 2, "operation": 5}}, ["migration to another host"]),
    ({"jobStats": {"type": 2, "operation": 99}}, ["job"]),
    ({"jobStats": libvirt.VIR_ERR_OPERATION_UNSUPPORTED}, ["migration to this host"]),
    ({"jobStats": libvirt.VIR_ERR_OPERATION_INVALID}, ["migration to this host"]),
    ({"jobStats": libvirt.VIR_ERR_NO_DOMAIN}, []),
    ({"jobStats": libvirt.VIR_ERR_OPERATION_TIMEOUT}, ["busy (of libvirt)"]),
    ({"state": [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION]}, ["migration"]),
    ({"state": [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_STARTING_UP]}, ["start"]),
    ({"state": [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER]}, []),
    ({"state": [libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_MIGRATED]}, []),
    ({"blockJobInfo": {"type": 2}}, ["block job on vda", "block job on sda"]),
    ({"blockJobInfo": libvirt.VIR_ERR_INVALID_ARG}, []),
    ({"blockJobInfo": libvirt.VIR_ERR_OPERATION_TIMEOUT}, ["busy (of libvirt)"]),
    ({"isActive": 0, "jobStats": libvirt.VIR_ERR_OPERATION_INVALID}, []),
]


@pytest.mark.parametrize(("told", "jobs"), BUSY)
def test_jobs_are_what_libvirt_tells(script: t.Any, told: dict[str, t.Any], jobs: list[str]) -> None:
    assert script.jobs(Domain(**told)) == jobs


def test_constants_are_those_of_libvirt(script: t.Any) -> None:
    for number, name in {2: "MIGRATION", 3: "SAVE", 4: "DUMP", 9: "SNAPSHOT", 11: "STARTING_UP", 12: "POSTCOPY"}.items():
        assert getattr(libvirt, f"VIR_DOMAIN_PAUSED_{name}") == number and number in script.PAUSED_FOR
    for number, name in {1: "START", 4: "MIGRATION_IN", 5: "MIGRATION_OUT", 7: "SNAPSHOT_REVERT", 9: "BACKUP"}.items():
        assert getattr(libvirt, f"VIR_DOMAIN_JOB_OPERATION_{name}") == number and number in script.OPERATIONS


def test_it_waits_for_jobs_and_tells_them_when_it_is_late(
    script: t.Any, systemd: Systemd, conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd.started[UNIT] -= HOUR_S
    monkeypatch.setattr(script, "domains", lambda: [Domain(blockJobInfo={"type": 2})])
    late = script.restart(request(conf, wait_s=0.1))
    assert late["jobs"] == ["web: block job on vda", "web: block job on sda"] and not late["again"] and not late["restarted"]
    monkeypatch.setattr(script, "ATTEMPT_S", 0.05)
    assert script.restart(request(conf, wait_s=100))["again"]
    looks = [[Domain(blockJobInfo={"type": 2})]] * 3
    monkeypatch.setattr(script, "ATTEMPT_S", 10)
    monkeypatch.setattr(script, "domains", lambda: looks.pop() if looks else [])
    assert not systemd.calls
    assert script.restart(request(conf, wait_s=10))["restarted"] == [UNIT]


def test_a_libvirt_that_cannot_be_asked_may_be_at_work(script: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> t.NoReturn:
        raise OSError("no socket")

    monkeypatch.setattr(script, "domains", refuse)
    assert script.work() == ["libvirt cannot be asked for jobs: no socket"]
    monkeypatch.setattr(script, "domains", lambda: time.sleep(1))
    monkeypatch.setattr(script, "ANSWER_S", 0.05)
    assert "did not tell its jobs" in script.work()[0]


def test_runs_of_virt_migrate_are_waited_for_and_held_off(
    script: t.Any, systemd: Systemd, conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd.started[UNIT] -= HOUR_S
    monkeypatch.setattr(script, "domains", lambda: [Domain()])
    (tmp_path / "run").mkdir(mode=0o700)
    taken: list[bool] = []

    def free(name: str) -> bool:
        with (tmp_path / f"run/{name}.lock").open("a") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    with (tmp_path / "run/gone.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert script.restart(request(conf))["jobs"] == ["gone: a run of virt_migrate"]
    start_again = script.start_again

    def look_and_start(each: t.Any) -> None:
        taken.extend([free("web"), free("gone")])
        start_again(each)

    monkeypatch.setattr(script, "start_again", look_and_start)
    assert script.restart(request(conf))["restarted"] == [UNIT]
    assert taken == [False, False] and free("web") and free("gone")


def test_a_folder_of_others_is_refused(script: t.Any, systemd: Systemd, conf: Path, tmp_path: Path) -> None:
    systemd.started[UNIT] -= HOUR_S
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o777)
    with pytest.raises(script.Problem, match="others than root"):
        script.restart(request(conf))
    assert not systemd.calls


def test_a_start_that_fails_says_what_the_daemon_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, does in (("systemctl", "echo Job failed. >&2; exit 1"), ("journalctl", 'echo "$@"; echo port 16514 is taken')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    script = loaded()
    with pytest.raises(script.Problem) as caught:
        script.systemctl("start", UNIT)
    said = str(caught.value)
    assert said.startswith(f"systemctl start {UNIT}: Job failed.\n") and f"--unit {UNIT}" in said
    assert said.endswith("\n  port 16514 is taken")
