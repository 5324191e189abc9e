# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a module that takes long, and show on the terminal how far it is."""

from __future__ import annotations

import json
import shlex
import time
import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

__all__ = ["WatchedAction", "shown"]

_LIMIT_S = 7 * 24 * 3600  # a module that takes long has limits of its own
_LOOK_S, _LOOKS = 0.1, 20  # a line every two seconds
_MIB = 1024 * 1024


class WatchedAction(ActionBase):
    """An action whose module writes how far it is into a file on the host (`_files/progress.py`).

    The module runs in the background, as with `async`: it goes on when the connection breaks, and when the controller dies.
    """

    def _asked(self, arguments: t.Mapping[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """What the module would do."""
        checking, self._task.check_mode = self._task.check_mode, True
        try:
            return t.cast("dict[str, t.Any]", self._execute_module(module_args=dict(arguments), task_vars=task_vars))
        finally:
            self._task.check_mode = checking

    def _watched(self, arguments: t.Mapping[str, t.Any], task_vars: dict[str, t.Any], notes: t.Mapping[str, str]) -> dict[str, t.Any]:
        """The module's result; meanwhile lines from its `notes`: what one is about -> its file on the host."""
        self._task.async_val = _LIMIT_S
        try:
            job = self._execute_module(module_args=dict(arguments), task_vars=task_vars, wrap_async=True)
        finally:
            self._task.async_val = 0
        name = job.get("ansible_job_id")
        if job.get("failed") or not name:
            return t.cast("dict[str, t.Any]", job)
        self._wait(job["results_file"], notes, name)
        status = {"module_name": "ansible.legacy.async_status", "task_vars": task_vars}
        asked = {"jid": name, "_async_dir": job["results_file"].rpartition("/")[0]}
        result = self._execute_module(**status, module_args=asked)
        self._low_level_execute_command(f"rm -f {shlex.quote(job['results_file'])}")
        silent = "cmd" in result and not (result.get("data") or result.get("stderr"))  # async_wrapper's own answer, for want of one
        if silent or not result.get("finished"):
            what = ", ".join(notes)
            return {"failed": True, "msg": f"the module ended without an answer on {what}: it was killed on the host; run again"}
        for key in ("ansible_job_id", "started", "finished", "results_file", "stdout", "stdout_lines", "stderr", "stderr_lines"):
            result.pop(key, None)
        return t.cast("dict[str, t.Any]", result)

    def _wait(self, results: str, notes: t.Mapping[str, str], job: str) -> None:
        """Until the job has ended, however that came about; the host itself looks often, so that nobody waits for the next question."""
        number = job.partition(".")[0].lstrip("j")
        alive = f"{{ ! command -v pgrep > /dev/null || pgrep -f 'async_[w]rapper.* j{int(number)} ' > /dev/null; }}"
        unfinished = f"grep -Eq '\"finished\": *(0|false)' {shlex.quote(results)}"
        wait = f"n=0; while [ $n -lt {_LOOKS} ] && {unfinished}; do sleep {_LOOK_S}; n=$((n + 1)); done 2>/dev/null"
        read = "; ".join(f"cat {shlex.quote(path)} 2>/dev/null; echo" for path in notes.values())  # a line for each
        command = f"{wait}; {read}; {{ {unfinished} && {alive}; }} 2>/dev/null || echo ended"
        while True:
            answer = self._low_level_execute_command(command)
            said = str(answer.get("stdout", "")).splitlines()
            if "ended" in said:
                return
            if answer.get("rc"):  # it could not even look
                time.sleep(_LOOK_S * _LOOKS)
            for what, text in zip(notes, said, strict=False):
                if line := shown(text):
                    self._show(what, line)

    def _show(self, what: str, line: str) -> None:
        Display().display(f"{what}: {line}")


def shown(text: str) -> str:
    """`downloading 43 %, 82.1 of 190.0 MiB, 52.1 MiB/s, 2 s left` of a module's note; empty where there is none."""
    try:
        found = json.loads(text)
    except ValueError:  # not there yet, or no more
        return ""
    done, total, rate = found["done"], found["total"], found["rate"]
    parts = [f"{found['phase']} {100 * done // total} %" if total else found["phase"]]
    parts.append(f"{done / _MIB:.1f}{f' of {total / _MIB:.1f}' if total else ''} MiB")
    parts.append(f"{rate / _MIB:.1f} MiB/s")
    if total and rate:
        parts.append(f"{(total - done) // rate} s left")
    return ", ".join(parts) + (f" ({found['detail']})" if found["detail"] else "")
