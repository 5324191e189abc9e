# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process of one job: run its playbook by ansible-runner, and write down what it does.

    python -m corral_console.run DIRECTORY LOCK

LOCK is the number of a file that is locked for this process. What the process needs to know else is in its environment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import sys
import time
import typing as t
from pathlib import Path

import ansible_runner  # type: ignore[import-untyped]

from ansible_collections.corral.virt.plugins.plugin_utils._guests.variable_files import written

from . import strict
from .durable import RESERVE, replace

__all__ = ["main"]

_MOST_LOG_BYTES = 8 * 1024 * 1024
_MOST_PLAN_BYTES = 512 * 1024
_MOST_REPORT_LINES = 5000
_CONCLUDE_S, _AGAIN_S = 3600.0, 5.0
_ABORT_S = 90.0  # for the collection to end migrations; then the rest is killed
_KILLED = 137  # as a shell says it of a process that a signal has ended
_PLANNED = {  # of results of our modules in check mode
    "virt_place": ("placements", "explained", "moves", "stays", "unplaced"),
    "virt_balance": ("moves", "stays", "explained", "before", "after"),
    "virt_migrations": ("results", "steps"),
    "virt_domains": ("results", "steps"),
    "virt_state": ("results", "steps"),
}
_CONTROL: dict[int, str | None] = {
    **dict.fromkeys((*range(9), *range(10, 32), *range(127, 160))),
    **dict.fromkeys(range(0xD800, 0xE000), "?"),  # halves of characters, which JSON can hold
}
_MOST_ERRORS, _LONGEST_ERROR, _LONGEST_TASK, _LONGEST_LINE = 50, 16 * 1024, 1000, 64 * 1024


def variables(request: t.Mapping[str, t.Any], group: str) -> str:
    """The job's variables as a file of YAML, in which no text is a template."""
    return written({**request["values"], "virt_group": group, "virt_expected": request["expected"]})


def _plain(given: object) -> str:
    """A text of Ansible, which may have it from a host: without control characters and halves of characters."""
    return str(given or "").translate(_CONTROL)


class Recorder:
    """Listens to ansible-runner."""

    def __init__(self, directory: Path, *, check: bool) -> None:
        self._directory, self._check = directory, check
        self._lines = self._sequence = self._missing = 0
        self._started, self._task = int(time.time()), ""
        self._cancelled_at = 0.0
        self.cancelled = self.changed = False
        self.errors: list[str] = []
        self.report: list[str] = []
        self.plan: dict[str, t.Any] = {}
        self._tell()

    def _tell(self) -> None:
        self._sequence += 1
        found = {"started": self._started, "task": self._task, "lines": self._lines, "sequence": self._sequence}
        with contextlib.suppress(OSError):  # a full disk: the playbook goes on
            replace(self._directory / "progress.json", strict.written(found), lasting=False)

    def _write_log(self, lines: t.Sequence[str]) -> None:
        """Add lines. Those for which there is no room are missing, and the next ones tell so."""
        path = self._directory / "log"
        try:
            with path.open("ab") as file:
                if file.tell() < _MOST_LOG_BYTES:
                    missing = [f"({self._missing} lines are missing: the disk was full)"] if self._missing else []
                    file.write("".join(f"{_plain(line)[:_LONGEST_LINE]}\n" for line in [*missing, *lines]).encode())
                    self._lines += len(lines)
            self._missing = 0
        except OSError:
            self._missing += len(lines)

    def event(self, event: dict[str, t.Any]) -> bool:
        """One of ansible-runner's; False: no need to keep it in a file."""
        data = event.get("event_data") or {}
        lines = [line for line in str(event.get("stdout") or "").splitlines() if line.strip()]
        if lines:
            self._write_log(lines)
        if event.get("event") == "playbook_on_task_start":
            self._task = _plain(data.get("name") or data.get("task"))[:_LONGEST_TASK]
        result = data.get("res")
        self._heed(str(event.get("event")), data, result if isinstance(result, dict) else {})
        if lines or event.get("event") == "playbook_on_task_start":
            self._tell()
        return False

    def _heed(self, kind: str, data: t.Mapping[str, t.Any], result: t.Mapping[str, t.Any]) -> None:
        if kind == "playbook_on_stats":
            self.changed = any((data.get("changed") or {}).values())
        elif kind in ("runner_on_failed", "runner_on_unreachable") and not data.get("ignore_errors"):
            text = _plain(result.get("msg") or "failed")[:_LONGEST_ERROR]
            text = f"{_plain(data.get('host'))}: {text}" if kind == "runner_on_unreachable" else text
            self.errors += [] if text in self.errors or len(self.errors) == _MOST_ERRORS else [text]
        elif kind == "runner_on_ok":
            self._keep(str(data.get("task_action") or "").rpartition(".")[2], str(data.get("host")), result)

    def _keep(self, action: str, host: str, result: t.Mapping[str, t.Any]) -> None:
        """What a playbook reports, and what it plans."""
        if action == "virt_report" and isinstance(result.get("text"), str):
            room = _MOST_REPORT_LINES - len(self.report)
            self.report += [_plain(line)[:_LONGEST_LINE] for line in result["text"].splitlines()[:room]]
        if self._check and action in _PLANNED:
            found = strict.mended({key: result[key] for key in _PLANNED[action] if key in result})
            bigger = {**self.plan, action: {**self.plan.get(action, {}), host: found}}
            if len(json.dumps(bigger)) < _MOST_PLAN_BYTES:
                self.plan = bigger

    def is_over(self) -> bool:
        """Asked again and again. A job is cancelled as by Ctrl-C, which ends migrations on their hosts.

        True, when that takes too long: what is left of Ansible is killed.
        """
        if not self._cancelled_at and (self._directory / "cancel").exists():
            self._cancelled_at, self.cancelled = time.monotonic(), True
            for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(int(child), signal.SIGINT)
        return bool(self._cancelled_at) and time.monotonic() - self._cancelled_at > _ABORT_S


def _result(recorder: Recorder, problem: str) -> dict[str, t.Any]:
    error = problem or "\n".join(recorder.errors)
    ended = "failed" if error else "succeeded"
    return {
        "state": "cancelled" if recorder.cancelled else ended,
        "ended": int(time.time()),
        "changed": recorder.changed,
        "error": error,
        "report": recorder.report,
        "plan": recorder.plan or None,
    }


@dataclasses.dataclass(frozen=True)
class Place:
    """Where and with what playbooks run."""

    directory: Path  # of the job
    project: str
    group: str
    variables: str  # file

    def play(self, request: t.Mapping[str, t.Any], recorder: Recorder, cancel: t.Callable[[], bool] | None) -> int:
        """The exit code of the playbook."""
        mine = self.directory / "variables.yml"
        mine.write_text(variables(request, self.group))
        words = ["-e", f"@{self.variables}", "-e", f"@{mine}", *(["--check"] if request["check"] else [])]
        done = ansible_runner.run(
            private_data_dir=str(self.directory / "runner"),
            project_dir=self.project,
            playbook=f"corral.virt.{request['action']}",
            cmdline=" ".join(words),
            settings={"suppress_env_files": True, "pexpect_timeout": 1},
            event_handler=recorder.event,
            cancel_callback=cancel,
            quiet=True,
        )
        return _KILLED if done.rc is None else int(done.rc)


def _aborting(request: t.Mapping[str, t.Any]) -> dict[str, t.Any] | None:
    """What waits until a cancelled migration has ended, and clears away what it left; None where that is not known."""
    values = request["values"]
    if request["action"] != "migrate" or request["check"] or not values.get("to"):
        return None
    there = [{**one, "host": values["to"]} for one in request["expected"]]  # it may just have arrived
    return {
        **request,
        "expected": [*request["expected"], *there],
        "values": {"guest": values["guest"], "to": values["to"], "options": {"state": "aborted"}},
    }


def _problem(place: Place, request: t.Mapping[str, t.Any], recorder: Recorder) -> str:
    """What went wrong beside what tasks told; empty when nothing did."""
    code = place.play(request, recorder, recorder.is_over)
    if not code:
        recorder.errors.clear()  # the playbook has come to terms with them
    if not recorder.cancelled:
        if code and not recorder.errors:  # it did not come so far: what it printed
            said = _last_lines(place.directory / "log")
            return said or f"ansible-playbook ended with {code}, and printed nothing"
        return ""
    recorder.errors.clear()  # of what was cut off
    abort = _aborting(request)
    if abort and place.play(abort, recorder, None):
        return f"cannot abort the migration: {'; '.join(recorder.errors) or 'see the log'}"
    return ""


def _last_lines(log: Path) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(log.read_text(errors="replace").splitlines()[-10:])
    return ""


def _conclude(directory: Path, result: dict[str, t.Any]) -> None:
    """Write how the job has ended: on a full disk, into the room that is kept for that, and shorter.

    Raises OSError when that does not help for an hour.
    """
    short = {**result, "error": result["error"][:4000], "report": [], "plan": None}
    deadline = time.monotonic() + _CONCLUDE_S
    while True:
        for each in (result, short):
            try:
                replace(directory / "result.json", strict.written(each))
            except OSError:
                (directory / RESERVE).unlink(missing_ok=True)
            else:
                return
        if time.monotonic() > deadline:
            replace(directory / "result.json", strict.written(short))
        time.sleep(_AGAIN_S)


def main(words: t.Sequence[str]) -> int:
    """The exit code: 0 when there is a result, whatever it is."""
    directory, lock = Path(words[0]), int(words[1])
    os.set_inheritable(lock, False)  # what Ansible starts may live longer
    os.umask(0o077)
    request = json.loads((directory / "request.json").read_text())
    recorder = Recorder(directory, check=request["check"])
    project, group, site = (os.environ.pop(f"CORRAL_{name}") for name in ("PROJECT", "GROUP", "VARIABLES"))
    os.environ["TMPDIR"] = str(directory / "tmp")
    try:
        for name in ("runner", "tmp"):
            (directory / name).mkdir()
        problem = _problem(Place(directory, project, group, site), request, recorder)
    except Exception as error:  # noqa: BLE001 (whatever it is, the job has ended with it)
        problem = f"{type(error).__name__}: {error}"
    with contextlib.suppress(OSError):
        (directory / "variables.yml").unlink(missing_ok=True)
    for name in ("runner", "tmp"):  # among other things, the environment
        shutil.rmtree(directory / name, ignore_errors=True)
    _conclude(directory, _result(recorder, problem))
    with contextlib.suppress(OSError):
        (directory / RESERVE).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
