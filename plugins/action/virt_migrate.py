# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Move guests and show their progress; Ctrl-C aborts the migrations, and not only the display."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._system import private
from ansible_collections.corral.virt.plugins.plugin_utils._report.progress_lines import WatchedAction, is_file_name

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ActionModule(WatchedAction):
    """Serves `virt_migrate`, which continues if the controller dies."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the module's result; meanwhile, show progress lines."""
        super().run(tmp, task_vars)
        variables, arguments, names = task_vars or {}, dict(self._task.args), self._names()
        if self._task.check_mode or self._aborts() or not all(map(is_file_name, names)):
            return t.cast("dict[str, t.Any]", self._execute_module(module_args=arguments, task_vars=variables))
        host = variables.get("inventory_hostname")
        with self._ended_by_ctrl_c(names):
            return self._watched(arguments, variables, {f"{host}: {name}": f"{name}.progress" for name in names})

    def _aborts(self) -> bool:
        """True if the task aborts a migration of another run."""
        return bool(self._task.args.get("state") == "aborted")

    def _names(self) -> list[str]:
        """Names of the guests that move."""
        return [str(self._task.args.get("name"))]

    def _entered(self) -> str:
        """A shell command that changes to the module's private folder, reported or expected."""
        if self._folder:
            return f"cd {shlex.quote(self._folder)}"
        return f'{private.IN_SHELL}; mkdir -p -m 0700 "$p" && cd "$p"'

    @contextlib.contextmanager
    def _ended_by_ctrl_c(self, names: t.Sequence[str]) -> t.Iterator[None]:
        """Tell the module to abort its migrations before this process ends on a signal.

        If the controller is killed, they continue.
        """
        notes = " ".join(shlex.quote(f"{name}.abort") for name in names)

        def interrupt(number: int, _frame: object) -> None:
            for each in _SIGNALS:
                signal.signal(each, signal.SIG_IGN)  # the second Ctrl-C must not come between
            self._low_level_execute_command(f"{self._entered()} && touch -- {notes}")
            signal.signal(number, before[number])
            os.kill(os.getpid(), number)

        before = {int(number): signal.signal(number, interrupt) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
