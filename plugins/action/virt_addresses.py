# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run `virt_addresses`, and show which guests it waits for. The host's answer is not trusted."""

from __future__ import annotations

import typing as t

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import normal

from ansible_collections.corral.virt.plugins.plugin_utils._report import waiting
from ansible_collections.corral.virt.plugins.plugin_utils._report.safe_results import UntrustedAction


class ActionModule(UntrustedAction, normal.ActionModule):
    """Serves `virt_addresses`."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> t.Any:
        """Run the module."""
        args, host = self._task.args, str((task_vars or {}).get("inventory_hostname"))
        names = args.get("names") if boolean(args.get("boots", False), strict=False) else None
        booting = {"state": "running", "wait_for_ip": "any", "wait_timeout": args.get("wait_timeout", 3)}
        guests = [{**booting, "name": name} for name in names] if isinstance(names, list) else []
        with waiting.lines(waiting.waits(host, guests)):
            return super().run(tmp, task_vars)
