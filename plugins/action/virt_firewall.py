# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run `virt_firewall` with the controller's address as the host sees it; the host's answer is not trusted."""

from __future__ import annotations

import ipaddress
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._host.run_firewall import OPTIONS
from ansible_collections.corral.virt.plugins.plugin_utils._report.safe_results import UntrustedAction


class ActionModule(UntrustedAction):
    """Serves `virt_firewall`."""

    _supports_async = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the module's result."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        _checked, options = self.validate_argument_spec(OPTIONS)
        if options.pop("controller"):
            options["sources"] = sorted({*options["sources"], *self._session()})
        answer = self._execute_module(module_args=options, task_vars=task_vars, wrap_async=self._task.async_val)
        return {**result, **answer}

    def _session(self) -> list[str]:
        """The address that this session comes from, if by SSH.

        Sudo drops that variable, so `become` is not used, also if an extra variable sets it.
        """
        words = str(self._low_level_execute_command("printenv SSH_CONNECTION", sudoable=False)["stdout"]).split()[:1]
        try:
            return [str(ipaddress.ip_address(word)) for word in words]
        except ValueError:  # a host may tell anything
            return []
