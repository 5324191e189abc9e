"""What a process of the console has not read yet is still to be done: a run that failed restarted nothing."""

from __future__ import annotations

import os
import subprocess
import time
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.roles.console.files import changed_since_start
from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, value

TASKS = ROLES / "console/tasks"
HANDLERS = {
    "corral-console.service": "Restart the console",
    "corral-console-jobs.service": "Restart the policy process",
}
# Tasks that write what one of the processes reads when it begins.
WRITERS = {
    "main.yml": {"Install them", "Configure the server", "Install the service"},
    "policy.yml": {"Install what it is made of", "Configure it", "Install its units"},
    "unpack.yml": {"Use them from now on"},
    "environment.yml": {"Use it from now on"},
    "certificate.yml": {"Install the certificate and its key"},
    "authority.yml": {"Make the certificate"},
}


def tasks(file: str) -> list[dict[str, t.Any]]:
    return t.cast("list[dict[str, t.Any]]", yaml.safe_load((TASKS / file).read_text()))


@pytest.mark.parametrize(("shift_s", "told"), [(-60, False), (0.5, True), (3600, False)], ids=str)
def test_a_file_that_changed_since_a_process_began_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shift_s: float, told: bool
) -> None:
    """Not one from the future, after a clock was set back: it would be listed in each run."""
    (tmp_path / "old").write_text("")
    (tmp_path / "link").symlink_to("old")
    began_us = int((time.monotonic() - 1) * 1e6)
    asked: list[list[str]] = []

    def run(command: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, f"{began_us}\n", "")

    def looked(path: str) -> t.Any:
        kind = {"old": -60.0, "link": shift_s}[Path(path).name]
        return type("Status", (), {"st_ctime": time.time() - 1 + kind})()

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(os, "lstat", looked)
    paths = [str(tmp_path / "old"), str(tmp_path / "link")]
    changed_since_start.main(["a.service", *paths])
    assert asked[0][-1] == "a.service" and capsys.readouterr().out == (f"{paths[1]}\n" if told else "")


def test_what_is_not_there_and_what_never_began_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").write_text("")
    for shown in ("0\n", "\n", str(int(time.monotonic() * 1e6))):
        done = subprocess.CompletedProcess([], 0, shown, "")
        monkeypatch.setattr(subprocess, "run", lambda *_command, done=done, **_options: done)
        changed_since_start.main(["a.service", str(tmp_path / "gone")])
        if not shown.strip("0\n"):
            changed_since_start.main(["a.service", str(tmp_path / "a")])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("file", WRITERS)
def test_each_task_that_writes_what_a_process_reads_notifies(file: str) -> None:
    assert {task["name"] for task in tasks(file) if "notify" in task} >= WRITERS[file]


def test_a_process_that_began_earlier_is_restarted_by_the_next_run(tmp_path: Path) -> None:
    """In the run before, a task failed between what it wrote and the restart."""
    names = [task["name"] for task in tasks("main.yml")]
    first = names.index("Pack the programs, the libraries and the project on the controller")
    looks = {task["vars"]["__console_unit"]: task for task in tasks("main.yml")[first - 2 : first]}
    assert {unit: task["notify"] for unit, task in looks.items()} == HANDLERS
    for task in looks.values():
        assert task["changed_when"] == "__console_unread.stdout | default('') | trim != ''" and not task["check_mode"]
    files = [ROLES / "console/vars/main.yml", ROLES / "console/defaults/main.yml"]
    reads = value(tmp_path, "__console_reads", files, {})
    assert set(reads) == set(HANDLERS)
    written = {"console.pyz", "libraries.zip", "python", "config.json", "server.crt", "server.key"}
    assert {path.rsplit("/", 1)[1] for path in reads["corral-console.service"]} == {*written, "corral-console.service"}
    links = {"collections", "project", "python", "config.json", "variables.json", "corral-console-jobs.service"}
    assert {path.rsplit("/", 1)[1] for path in reads["corral-console-jobs.service"]} == links
