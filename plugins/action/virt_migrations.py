# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Move many guests as `virt_migrate` moves one, and show the outcome of each."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.action import virt_migrate
from ansible_collections.corral.virt.plugins.plugin_utils._report import report_text, terminal
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable


class ActionModule(virt_migrate.ActionModule):
    """Serves `virt_migrations`."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the module's result; meanwhile, show lines about every guest."""
        result = super().run(tmp, task_vars)
        host = (task_vars or {}).get("inventory_hostname")
        for one in result.get("results") or []:
            if self._aborts() and not one.get("failed"):
                for text in (*one.get("steps", ()), *one.get("notes", ())):
                    terminal.say(printable(f"{host}: {one['name']}: {text}"))
                continue
            # what failed is in the message of the task, or of the one that sums up
            moved = not one.get("failed") and one["changed"]
            if moved and ("seconds" in one or ("mode" in one and not self._task.check_mode)):
                terminal.say(printable(f"{host}: {report_text.moved(one)}"))
        return result

    def _aborts(self) -> bool:
        options = self._task.args.get("options")
        return isinstance(options, dict) and options.get("state") == "aborted"

    def _names(self) -> list[str]:
        guests = self._task.args.get("guests")
        if not isinstance(guests, list):
            return []
        return [str(item.get("name")) for item in guests if isinstance(item, dict)]
