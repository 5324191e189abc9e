"""What an action does with a module that works in the background: its own commands, run by a shell here instead of
by SSH.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import threading
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils._report import progress_lines


class Task:
    """What the action reads of its task."""

    environment: t.ClassVar[list[dict[str, str]]] = []


class Here(progress_lines.WatchedAction):
    """The action; the host is this machine, and the module has begun."""

    def __init__(self, begun: dict[str, t.Any]) -> None:
        self._task, self._begun, self.shown = Task(), begun, t.cast("list[str]", [])
        self._used_interpreter = None

    def run(self, *_ignored: t.Any, **_more: t.Any) -> dict[str, t.Any]:
        """Not asked here."""
        raise NotImplementedError

    def _execute_module(self, **_ignored: t.Any) -> dict[str, t.Any]:
        assert self._task.environment == [{"CORRAL_DETACHED": "1"}]
        return self._begun

    def _low_level_execute_command(self, cmd: str, **_ignored: t.Any) -> dict[str, t.Any]:
        done = subprocess.run(["sh", "-c", f"{cmd} && sleep 0"], capture_output=True, text=True, check=False)
        return {"rc": done.returncode, "stdout": done.stdout, "stderr": done.stderr}

    def _show(self, what: str, line: str) -> None:
        self.shown.append(f"{what}: {line}")

    def ends(self, notes: dict[str, str]) -> dict[str, t.Any]:
        """The module's result."""
        result = self._watched({}, {}, notes)
        assert self._task.environment == []
        return result


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its file; who waits looks often."""
    monkeypatch.setattr(progress_lines, "_LOOK_S", 0.2)
    (tmp_path / "it's.answer").touch()
    return tmp_path / "it's.answer"


def test_a_refusal_is_handed_on() -> None:
    assert Here({"failed": True, "msg": "no"}).ends({}) == {"failed": True, "msg": "no"}


def test_a_wait_has_words_and_no_size() -> None:
    note = {"phase": "waiting for a login prompt of p", "done": 0, "total": 0, "rate": 0, "detail": "started 3 s ago"}
    assert progress_lines.shown(json.dumps(note)) == "waiting for a login prompt of p (started 3 s ago)"
    assert progress_lines.shown("") == progress_lines.shown("{") == ""


@pytest.mark.parametrize("noted", [0, 1, 2])
def test_the_answer_comes_with_what_was_noted_meanwhile(answer: Path, tmp_path: Path, noted: int) -> None:
    notes = {f"web{number}": str(tmp_path / f"web{number}") for number in range(noted)}
    for place in notes.values():
        Path(place).write_text(
            json.dumps({"phase": "copying", "done": 2**20, "total": 2**21, "rate": 2**20, "detail": ""})
        )
    action = Here({"answer": str(answer), "ansible_facts": {"discovered_interpreter_python": "python9"}})
    with answer.open() as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)

        def end() -> None:
            answer.write_text('noise\n{"changed": true, "name": "web0"}\n')
            fcntl.flock(locked, fcntl.LOCK_UN)

        threading.Timer(1, end).start()
        result = action.ends(notes)
    assert result == {"changed": True, "name": "web0", "ansible_facts": {"discovered_interpreter_python": "python9"}}
    assert set(action.shown) == {f"{name}: copying 50 %, 1.0 of 2.0 MiB, 1.0 MiB/s, 1 s left" for name in notes}
    assert not answer.exists()


@pytest.mark.parametrize(
    ("left", "said"), [("", "on web1: it was killed"), ("Killed\n", "on web1 (Killed): it was killed")]
)
def test_a_module_without_an_answer_was_killed(answer: Path, left: str, said: str) -> None:
    answer.write_text(left)
    result = Here({"answer": str(answer)}).ends({"web1": "/nowhere"})
    assert result["failed"] and f"the module ended without an answer {said} on the host; run again" in result["msg"]


def test_who_cannot_wait_says_so_and_takes_nothing_for_an_answer(answer: Path) -> None:
    answer.unlink()
    result = Here({"answer": str(answer)}).ends({"web1": "/nowhere"})
    assert result["failed"] and "run again" in result["msg"]
    assert f"cannot wait for the module's answer on web1 in {answer} (it is gone)" in result["msg"]
    assert not answer.exists()
