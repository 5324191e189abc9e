# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Callback: only reports on standard output, for programs."""

from __future__ import annotations

DOCUMENTATION = r"""
name: report
type: stdout
short_description: Print reports only
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Prints only the reports of M(corral.virt.virt_report), as used by the playbooks C(query), C(list) and C(host_info),
    so that a program can read them. Failures, unreachable hosts, warnings and progress go to standard error; the exit
    code is Ansible's.
  - With C(-e format=json), each playbook prints one JSON document when it ends, whether it fails or not. What failed is
    in its list C(problems), with C(host), C(object), C(problem) and C(remedy) (null where there is none).
requirements:
  - set as stdout in configuration
seealso:
  - plugin: corral.virt.terse
    plugin_type: callback
"""

EXAMPLES = r"""
- name: List the names of all running guests
  environment:
    ANSIBLE_STDOUT_CALLBACK: corral.virt.report
  ansible.builtin.shell: |-
    ansible-playbook corral.virt.query -e format=json | jq -r '.hosts[].guests[]? | select(.state == "running") | .name'
  delegate_to: localhost

- name: Start a guest, and print what failed
  environment:
    ANSIBLE_STDOUT_CALLBACK: corral.virt.report
  ansible.builtin.shell: |-
    ansible-playbook corral.virt.start -e guest=web1 -e format=json | jq -r '.problems[] | .object + ": " + .problem'
  delegate_to: localhost
"""

import atexit
import json
import os
import typing as t

from ansible import context
from ansible.plugins.callback import CallbackBase

from ansible_collections.corral.virt.plugins.plugin_utils._report import report_data, terminal

if t.TYPE_CHECKING:
    from ansible.executor.task_result import CallbackTaskResult


class CallbackModule(CallbackBase):
    """Prints reports to standard output, failures to standard error."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = terminal.ONLY_REPORTS

    def __init__(self) -> None:
        super().__init__()
        self._document: _Document | None = None

    def v2_playbook_on_start(self, playbook: t.Any) -> None:
        """With format=json, start a document, whose kind is the playbook's name."""
        plays = playbook.get_plays()
        if plays and plays[0].get_variable_manager().extra_vars.get("format") == "json":
            extra = plays[0].get_variable_manager().extra_vars
            named = [str(extra[name]) for name in ("guest", "host", "to") if name in extra]
            self._document = _Document(os.path.splitext(os.path.basename(playbook._file_name))[0], named)
            atexit.register(self._end)

    def v2_playbook_on_stats(self, stats: t.Any) -> None:  # noqa: ARG002 - as Ansible calls it
        """Print the document."""
        self._end(None)

    def _end(self, failure: str | None = "the run ended before its end; standard error tells why") -> None:
        """Print the document once, also when ansible-playbook gives up."""
        if self._document:
            if failure:
                self._document.fail(failure)
            if text := self._document.text():
                self._display.display(text)
        self._document = None

    def v2_runner_on_ok(self, result: CallbackTaskResult) -> None:
        """Show the result's report, unless it was written to a file."""
        self._handle_warnings(result.result)
        self._show(result)

    def v2_runner_on_failed(self, result: CallbackTaskResult, ignore_errors: bool = False) -> None:
        """Show the failure unless it is expected, and the report, if there is one."""
        self._handle_warnings(result.result)
        if not ignore_errors or terminal.is_report(result.task.action):
            self._show(result)
        if not ignore_errors:
            self._complain(result)

    def v2_runner_on_unreachable(self, result: CallbackTaskResult) -> None:
        """Show that a host is unreachable."""
        self._complain(result)

    def v2_runner_item_on_failed(self, result: CallbackTaskResult) -> None:
        """Add a failed item of a loop, whose end says less."""
        if self._document and not result.task.ignore_errors:
            self._document.add(result, failed=True)

    def v2_playbook_on_no_hosts_matched(self) -> None:
        """Report that no hosts matched."""
        if self._document:
            self._document.fail("no hosts matched")
        self._display.display("no hosts matched", stderr=True)

    def _show(self, result: CallbackTaskResult) -> None:
        if self._document:
            self._document.add(result)
        elif terminal.is_report(result.task.action) and result.result.get("text") and not result.result.get("out"):
            self._display.display(result.result["text"])

    def _complain(self, result: CallbackTaskResult) -> None:
        if self._document and not (result.task.loop and "results" in result.result):
            self._document.add(result, failed=True)
        self._display.display(f"{result.host.get_name()}: {terminal.message(result.result)}", stderr=True)


class _Document:
    """A document of a run: a report, or its changes by guest; and problems."""

    def __init__(self, kind: str, named: list[str]) -> None:
        self._named = [name for each in named for name in each.split(",") if name]
        self._report: dict[str, t.Any] = {"version": report_data.VERSION, "kind": kind, "hosts": []}
        self._changes: dict[str, dict[str, dict[str, t.Any]]] = {}
        self._is_in_a_file = False
        self._problems: list[dict[str, t.Any]] = []

    def add(self, result: CallbackTaskResult, *, failed: bool = False) -> None:
        """Add the result of a task on a host."""
        host, told = result.host.get_name(), result.result
        action = result.task.action.rpartition(".")[2]
        if terminal.is_report(action):
            self._is_in_a_file = "out" in told
            if not (self._changes and result.task.args.get("kind") == "steps"):  # which changes include
                self._report |= _parsed(told.get("text"))
        elif action in terminal.SPEAKING and (context.CLIARGS.get("check") or not result.task.check_mode):
            self._changes.setdefault(host, {}).update({one["name"]: one for one in report_data.changes(told)})
        place = None if result.task.run_once else host
        for problem in report_data.problems(place, told, self._named, failed=failed):
            if not self._is_told(problem):
                self._problems.append(problem)

    def fail(self, text: str) -> None:
        """Add a problem of the whole run."""
        self._problems.append({"host": None, "object": "hosts", "problem": text, "remedy": None})

    def text(self) -> str:
        """The document as JSON; empty if a file has all of it."""
        if self._is_in_a_file and not self._problems:
            return ""
        hosts = self._report["hosts"] or [
            {"name": host, "guests": [*guests.values()]} for host, guests in sorted(self._changes.items()) if guests
        ]
        return json.dumps({**self._report, "hosts": hosts, "problems": self._problems}, indent=2, allow_nan=False)

    def _is_told(self, problem: dict[str, t.Any]) -> bool:
        """True if an earlier problem of the host is part of this one: playbooks fail at their end."""
        return any(told["host"] == problem["host"] and told["problem"] in problem["problem"] for told in self._problems)


def _parsed(text: object) -> dict[str, t.Any]:
    """A JSON report's fields; other text as `text`."""
    if isinstance(text, str) and text.startswith("{"):
        return t.cast("dict[str, t.Any]", json.loads(text))
    return {"text": text} if text else {}
