# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prepare the description of a guest on the controller, then run the module of the same name."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.corral.virt.plugins.plugin_utils import _guest


class ActionModule(ActionBase):
    """Serves `virt_domain`, and `virt_domains` through its own file."""

    _supports_check_mode = True
    _supports_async = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Texts instead of structures in the seed; everything else as it is."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        try:
            if isinstance(arguments.get("domains"), list):
                arguments["domains"] = [self._prepared(one, task_vars) if isinstance(one, dict) else one for one in arguments["domains"]]
            else:
                arguments = self._prepared(arguments, task_vars)
        except ValueError as error:
            raise AnsibleActionFail(str(error)) from error
        result.update(self._execute_module(module_args=arguments, task_vars=task_vars, wrap_async=self._task.async_val))
        return result

    def _prepared(self, guest: dict[str, t.Any], task_vars: dict[str, t.Any] | None) -> dict[str, t.Any]:
        profiles = {name: self._templar.template((task_vars or {}).get(name)) for name in ("virt_nic_profiles", "virt_disk_profiles")}
        return _guest.prepared(_guest.with_profiles(guest, profiles))
