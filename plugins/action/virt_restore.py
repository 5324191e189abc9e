# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restore a guest from a backup, and show how far it is."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._report.progress_lines import WatchedAction


class ActionModule(WatchedAction):
    """Serves `virt_restore`, which continues if the controller dies."""

    _supports_check_mode = True
    _supports_async = False  # it does by itself what is to be gained by it

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the module's result; meanwhile, show progress lines."""
        super().run(tmp, task_vars)
        guest = self._task.args.get("name") or self._task.args.get("guest")
        return self._of_one(f"restore of {guest}", guest, "{}.progress", task_vars)
