# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Callback: shows only changes, failures and reports."""

from __future__ import annotations

DOCUMENTATION = r"""
name: terse
type: stdout
short_description: Print changes, failures and reports
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Prints like P(ansible.builtin.default#callback), but shows a task only if it changes something, fails or prints a
    message. The output of a run that changes nothing consists of the names of its plays and the recap.
  - Reports and progress of this collection appear below the banner of their task, however little else is shown.
  - A failure is shown as one message, instead of the error, its source location and the whole result.
  - With C(-v) the output is that of P(ansible.builtin.default#callback).
extends_documentation_fragment:
  - default_callback
  - result_format_callback
requirements:
  - set as stdout in configuration
seealso:
  - plugin: corral.virt.report
    plugin_type: callback
"""

import typing as t

from ansible import constants
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.callback import default

from ansible_collections.corral.virt.plugins.plugin_utils._report import terminal

if t.TYPE_CHECKING:
    from ansible.executor.task_result import CallbackTaskResult


class CallbackModule(default.CallbackModule):
    """The default callback without unchanged and skipped tasks."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "corral.virt.terse"

    def set_options(self, task_keys: t.Any = None, var_options: t.Any = None, direct: t.Any = None) -> None:
        """Hide skipped hosts: banners wait for a first line."""
        super().set_options(task_keys=task_keys, var_options=var_options, direct=direct)
        if self._is_terse():
            self.set_option("display_skipped_hosts", False)

    def v2_playbook_on_task_start(self, task: t.Any, is_conditional: bool) -> None:
        """Print the banner at once for tasks that print lines while they run."""
        super().v2_playbook_on_task_start(task, is_conditional)
        if self._is_terse() and task.action.rpartition(".")[2] in terminal.SPEAKING:
            self._print_task_banner(task)

    def v2_playbook_on_include(self, included_file: t.Any) -> None:
        """Hide includes."""
        if not self._is_terse():
            super().v2_playbook_on_include(included_file)

    def v2_runner_on_ok(self, result: CallbackTaskResult) -> None:
        """Show a changed result or a message; otherwise only warnings."""
        if self._is_terse() and _is_message(result):
            if self._last_task_banner != result.task._uuid:
                self._print_task_banner(result.task)
            word, colour = (
                ("changed", constants.COLOR_CHANGED) if result.result.get("changed") else ("ok", constants.COLOR_OK)
            )
            self._display.display(
                f"{word}: [{self.host_label(result)}]: {terminal.message(result.result)}", color=colour
            )
        elif self._is_news(result):
            super().v2_runner_on_ok(result)
        else:
            self._handle_warnings(result.result)

    def v2_runner_item_on_ok(self, result: CallbackTaskResult) -> None:
        """Show a changed item; otherwise only its warnings."""
        if self._is_news(result):
            super().v2_runner_item_on_ok(result)
        else:
            self._handle_warnings(result.result)

    def v2_runner_on_failed(self, result: CallbackTaskResult, ignore_errors: bool = False) -> None:
        """Show the message once; a loop's items have shown theirs."""
        if not self._is_terse():
            super().v2_runner_on_failed(result, ignore_errors=ignore_errors)
        elif not (result.task.loop and "results" in result.result):
            self._complain(result, f"fatal: [{self.host_label(result)}]")
        if self._is_terse() and ignore_errors:
            self._display.display("...ignoring", color=constants.COLOR_SKIP)

    def v2_runner_item_on_failed(self, result: CallbackTaskResult) -> None:
        """Show the message of a failed item."""
        if self._is_terse():
            self._complain(result, f"failed: [{self.host_label(result)}] (item={self._get_item_label(result.result)})")
        else:
            super().v2_runner_item_on_failed(result)

    def _complain(self, result: CallbackTaskResult, whose: str) -> None:
        if self._last_task_banner != result.task._uuid:
            self._print_task_banner(result.task)
        self._handle_warnings(result.result)
        text = f"{whose}: {terminal.message(result.result)}"
        self._display.display(text, color=constants.COLOR_ERROR, stderr=self.get_option("display_failed_stderr"))

    def _is_terse(self) -> bool:
        return bool(self._display.verbosity == 0)

    def _is_news(self, result: CallbackTaskResult) -> bool:
        if not self._is_terse():
            return True
        is_include = isinstance(result.task, TaskInclude)
        return not is_include and (bool(result.result.get("changed")) or bool(self._run_is_verbose(result)))


def _is_message(result: CallbackTaskResult) -> bool:
    """True if the task is a debug task with a message."""
    message = result.result.get("msg")
    return (
        result.task.action.rpartition(".")[2] == "debug"
        and not result.task.loop
        and isinstance(message, (str, list))
        and bool(message)
    )
