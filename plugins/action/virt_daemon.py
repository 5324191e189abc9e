# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run `virt_daemon`: wait for guests' jobs in short calls, so that the terminal shows the reason."""

from __future__ import annotations

import time
import typing as t

from ansible.errors import AnsibleActionFail

from ansible_collections.corral.virt.plugins.module_utils._host.model_daemon import RESTART_TIMEOUT_S
from ansible_collections.corral.virt.plugins.plugin_utils._report import terminal
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable
from ansible_collections.corral.virt.plugins.plugin_utils._report.safe_results import UntrustedAction

_CALL_S = 10  # each is a line for the user, and a sign of life on the connection


class ActionModule(UntrustedAction):
    """Serves `virt_daemon`."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the module until it has restarted what is due, or the timeout."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        host, arguments = str((task_vars or {}).get("inventory_hostname")), dict(self._task.args)
        timeout_s = _seconds(arguments.get("restart_timeout", RESTART_TIMEOUT_S))
        end = time.monotonic() + timeout_s
        first = made = self._execute_module(module_args={**arguments, "restart_timeout": 0}, task_vars=task_vars)
        while _waits(made) and (left_s := end - time.monotonic()) > 0:
            terminal.say(
                printable(f"{host}: waiting up to {left_s:.0f} s for these jobs to end: {'; '.join(made['jobs'])}")
            )
            made = self._execute_module(
                module_args={**arguments, "restart_timeout": min(_CALL_S, int(left_s) + 1)}, task_vars=task_vars
            )
        if made is not first:
            made = {**made, "diff": first.get("diff"), "steps": [*first.get("steps", []), *made.get("steps", [])]}
            made["changed"] = bool(first.get("changed") or made.get("changed"))
        if _waits(made):
            made["msg"] = f"{made['msg']}: ansible-playbook corral.virt.site --limit {host}"
        elif self._task.check_mode and made.get("restart"):
            jobs = f" after these jobs end: {'; '.join(made['jobs'])}" if made.get("jobs") else ""
            terminal.say(printable(f"{host}: would restart {made['restart']}{jobs}"))
        return {**result, **made}


def _waits(made: dict[str, t.Any]) -> bool:
    """True if only jobs prevent the restart."""
    return bool(made.get("failed") and made.get("jobs"))


def _seconds(value: t.Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise AnsibleActionFail(f"restart_timeout: {value!r} is not a number of seconds") from error
