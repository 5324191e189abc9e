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
        problems: list[str] = []
        if isinstance(arguments.get("domains"), list):
            arguments["domains"] = [self._prepared(one, task_vars, problems) for one in arguments["domains"]]
        else:
            arguments = self._prepared(arguments, task_vars, problems)
        if problems:
            raise AnsibleActionFail("; ".join(problems))
        result.update(self._execute_module(module_args=arguments, task_vars=task_vars, wrap_async=self._task.async_val))
        return result

    def _prepared(self, guest: t.Any, task_vars: dict[str, t.Any] | None, problems: list[str]) -> t.Any:
        """The guest as the host is told of it; what is wrong goes into `problems`."""
        if not isinstance(guest, dict):
            return guest  # the module says what it must be
        profiles = {name: self._templar.template((task_vars or {}).get(name)) for name in ("virt_nic_profiles", "virt_disk_profiles")}
        for step in (lambda one: _guest.with_profiles(one, profiles), _guest.prepared):
            try:
                guest = step(guest)
            except ValueError as error:
                problems.append(str(error))
        return guest
