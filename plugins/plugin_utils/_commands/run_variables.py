# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What whoever runs a playbook gave it: extra variables, and variables of the play (`vars` beside
`import_playbook`).
"""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.corral.virt.plugins.plugin_utils._commands.other_hosts import play_of

__all__ = ["RunVariables"]


class RunVariables:
    """The variables of a run, apart from those of its inventory."""

    def __init__(self, action: ActionBase, variables: t.Mapping[str, t.Any]) -> None:
        self._task, self._templar, self._variables = action._task, action._templar, variables
        self._manager = variables["hostvars"]._variable_manager

    def values(self, arguments: t.Collection[str]) -> dict[str, t.Any]:
        """Each variable that was given; those that are arguments are rendered."""
        given = {**play_of(self._task).vars, **self._manager.extra_vars}
        return {name: self._templar.template(value) if name in arguments else None for name, value in given.items()}

    def inventory(self) -> set[str]:
        """Names of variables that the inventory has for this host, whoever gives them another value."""
        host = self._manager._inventory.get_host(self._variables["inventory_hostname"])
        extra, self._manager._extra_vars = self._manager._extra_vars, {}
        try:
            return set(self._manager.get_vars(host=host, include_hostvars=False))
        finally:
            self._manager._extra_vars = extra
