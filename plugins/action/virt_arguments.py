# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check and convert the arguments of a playbook, on the controller."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.plugin_utils import _actions, _arguments
from ansible_collections.corral.virt.plugins.plugin_utils._plain import printable
from ansible_collections.corral.virt.plugins.plugin_utils._said import Said


class ActionModule(ActionBase):
    """Reads variables only: nothing is connected to, nothing changes."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """The arguments that the action was given; fails with everything that is wrong with them."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        _checked, options = self.validate_argument_spec(
            {"action": {"type": "str", "required": True, "choices": _actions.names()}},
        )
        action, said = _actions.action(options["action"]), Said(self, task_vars or {})
        try:
            values = _arguments.asked(action, said.values(action.arguments), said.inventory)
        except BadInput as error:
            raise AnsibleActionFail(printable("; ".join(error.problems))) from error
        secret = _arguments.withheld(action, values)
        shown = {name: value for name, value in values.items() if name not in secret}
        return {**result, "changed": False, "arguments": shown, "withheld": secret}
