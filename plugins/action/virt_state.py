# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run `virt_state`, with a line every few seconds while it waits; the host's answer is not trusted."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._report import waiting
from ansible_collections.corral.virt.plugins.plugin_utils._report.safe_results import UntrustedAction


class ActionModule(UntrustedAction):
    """Serves `virt_state`."""

    _supports_async = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the module; in check mode and in the background, no lines are shown."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        guests = self._task.args.get("domains")
        alone = self._task.check_mode or self._task.async_val or not isinstance(guests, list)
        awaited = None if alone else waiting.waits(str((task_vars or {}).get("inventory_hostname")), guests)
        with waiting.lines(awaited):
            made = self._execute_module(task_vars=task_vars, wrap_async=self._task.async_val)
        return {**result, **made}
