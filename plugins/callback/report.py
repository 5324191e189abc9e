# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports alone on standard output, for programs."""

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
"""

import typing as t

from ansible.plugins.callback import CallbackBase

from ansible_collections.corral.virt.plugins.plugin_utils import _terminal

if t.TYPE_CHECKING:
    from ansible.executor.task_result import CallbackTaskResult


class CallbackModule(CallbackBase):
    """Standard output is for reports."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = _terminal.ONLY_REPORTS

    def v2_runner_on_ok(self, result: CallbackTaskResult) -> None:
        """A report, unless it went into a file."""
        self._handle_warnings(result.result)
        self._show(result)

    def v2_runner_on_failed(self, result: CallbackTaskResult, ignore_errors: bool = False) -> None:
        """What failed, unless a playbook expects it; and a report, if there is one all the same."""
        self._handle_warnings(result.result)
        self._show(result)
        if not ignore_errors:
            self._complain(result)

    def v2_runner_on_unreachable(self, result: CallbackTaskResult) -> None:
        """A host that cannot be reached."""
        self._complain(result)

    def v2_playbook_on_no_hosts_matched(self) -> None:
        """No report comes."""
        self._display.display("no hosts matched", stderr=True)

    def _show(self, result: CallbackTaskResult) -> None:
        if _terminal.is_report(result.task.action) and result.result.get("text") and not result.result.get("out"):
            self._display.display(result.result["text"])

    def _complain(self, result: CallbackTaskResult) -> None:
        self._display.display(f"{result.host.get_name()}: {_terminal.message(result.result)}", stderr=True)
