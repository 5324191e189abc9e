# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a long-running module, and show its progress on the terminal."""

from __future__ import annotations

import collections
import json
import posixpath
import shlex
import time
import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._report import terminal
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable
from ansible_collections.corral.virt.plugins.plugin_utils._report.safe_results import UntrustedAction
from ansible_collections.corral.virt.plugins.plugin_utils._report.tables import amount

_ASK = {"CORRAL_DETACHED": "1"}  # understood by `_system/detached.py`
_LOOK_S, _AT_WORK = 2, 75  # a line every two seconds; sysexits.h: temporary failure
_FAILURES = 3  # of the look itself, one after another
_MIB = 1024 * 1024


class WatchedAction(UntrustedAction):
    """An action whose module writes its progress into a file on the host (`_system/progress.py`).

    The module goes on in the background when the connection breaks, and when the controller dies
    (`_system/detached.py`).
    """

    _supports_async = False  # it does by itself what is to be gained by it
    _folder = ""  # the module's private one on the host, once it has begun

    def _watched(
        self, arguments: t.Mapping[str, t.Any], task_vars: dict[str, t.Any], notes: t.Mapping[str, str]
    ) -> dict[str, t.Any]:
        """The module's result; meanwhile, progress lines are shown.

        `notes`: by subject, its progress file on the host, absolute or beside the answer.
        """
        self._task.environment.append(_ASK)
        try:
            begun = self._execute_module(module_args=dict(arguments), task_vars=task_vars)
        finally:
            self._task.environment.remove(_ASK)
        if not begun.get("answer"):
            return t.cast("dict[str, t.Any]", begun)  # it refused at once
        self._folder = posixpath.dirname(begun["answer"])
        files = [posixpath.join(self._folder, note) for note in notes.values()]
        ended, what = self._ended(begun["answer"], dict(zip(notes, files, strict=True))), ", ".join(notes)
        if ended["rc"]:
            output = printable(" ".join(f"{ended['stdout']} {ended['stderr']}".split()))
            remedy = "it may still be running; install flock (util-linux) on the host, and run again"
            return {
                "failed": True,
                "msg": f"cannot wait for the module's answer on {what} in {begun['answer']} ({output}): {remedy}",
            }
        result = self._parse_returned_data(ended, "legacy")  # as every module's answer
        self._low_level_execute_command(f"rm -f {shlex.quote(begun['answer'])}")
        if not result.pop("_ansible_parsed"):
            output = "".join(f" ({printable(line)})" for line in str(ended["stdout"]).splitlines()[-1:])
            return {
                "failed": True,
                "msg": f"the module ended without an answer on {what}{output}: it was killed on the host; run again",
            }
        for key in ("stdout", "stdout_lines", "stderr", "stderr_lines"):
            result.pop(key, None)
        found = {key: begun[key] for key in ("ansible_facts",) if key in begun}  # the interpreter that was discovered
        return {**found, **result}

    def _ended(self, answer: str, notes: t.Mapping[str, str]) -> dict[str, t.Any]:
        """The answer file's content (`stdout`) once it is no longer locked; on failure, `rc` and the output."""
        path = shlex.quote(answer)
        there = f"{{ test -e {path} || {{ echo it is gone; false; }}; }}"  # flock would make it
        take = f"{there} && flock -w {_LOOK_S} -E {_AT_WORK} {path} cat {path}"
        look = "; ".join(f"cat {shlex.quote(note)} 2>/dev/null; echo" for note in notes.values())  # a line for each
        command = f"{take}; rc=$?; [ $rc = {_AT_WORK} ] && {{ {look or ':'}; }}; (exit $rc)"
        failures = 0
        while True:
            result = self._low_level_execute_command(command)
            failures = failures + 1 if result["rc"] not in (0, _AT_WORK) else 0
            if not result["rc"] or failures == _FAILURES:
                return t.cast("dict[str, t.Any]", result)
            if failures:
                time.sleep(_LOOK_S)
                continue
            for what, text in zip(notes, str(result["stdout"]).splitlines(), strict=False):
                if line := shown(text):
                    self._show(what, line)

    def _show(self, what: str, line: str) -> None:
        terminal.say(printable(f"{what}: {line}"))


class WatchedModule(WatchedAction):
    """An action that runs its module, with the progress of each thing that an option names."""

    subject: str  # begins each line, with options by name; `{it}` is the thing
    named: tuple[str, ...] = ("guest",)  # options with a name or a list of names: the first that is given counts
    fixed: str | None = None  # the name where no option has it
    file = "{}.progress"

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the module's result; meanwhile, show progress lines."""
        super().run(tmp, task_vars)
        arguments, variables = dict(self._task.args), task_vars or {}
        given = next((arguments[one] for one in self.named if arguments.get(one)), self.fixed)
        names = [one for one in (given if isinstance(given, list) else [given]) if isinstance(one, str)]
        if self._task.check_mode or not names or not all(map(is_file_name, names)):
            return t.cast("dict[str, t.Any]", self._execute_module(module_args=arguments, task_vars=variables))
        host, options = variables.get("inventory_hostname"), collections.defaultdict(lambda: None, arguments)
        notes = {
            f"{host}: {self.subject.format_map(options | {'it': one})}": self.file.replace("{}", one) for one in names
        }
        return self._watched(arguments, variables, notes)


def is_file_name(name: str) -> bool:
    """True if the name can be a file's; the module refuses others."""
    return bool(name) and not set(name) & set("/\0\n") and len(name) < 64


def shown(text: str) -> str:
    """A line `downloading 43 %, 82.1 of 190.0 MiB, 52.1 MiB/s, 2 s left`; of a wait, only the words; empty if the note
    has no progress.
    """
    try:
        found = json.loads(text)
        done, total, rate = int(found["done"]), int(found["total"]), int(found["rate"])
        phase, detail = (printable(str(found[key])) for key in ("phase", "detail"))
    except (ValueError, TypeError, KeyError):  # not there yet, no more, or no note of ours
        return ""
    parts = [f"{phase} {100 * done // total} %" if total else phase]
    if done or total:
        parts += [amount(done, total), f"{rate / _MIB:.1f} MiB/s"]
    if total and rate:
        parts.append(f"{(total - done) // rate} s left")
    return ", ".join(parts) + (f" ({detail})" if detail else "")
