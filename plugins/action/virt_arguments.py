# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check and convert the arguments of a playbook, on the controller."""

from __future__ import annotations

import functools
import importlib.util
import typing as t

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsiblePromptNoninteractive
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.plugin_utils._commands import action_arguments, actions, remote_modules
from ansible_collections.corral.virt.plugins.plugin_utils._commands.actions import PlaybookAction
from ansible_collections.corral.virt.plugins.plugin_utils._commands.other_hosts import RunVariables, play_of
from ansible_collections.corral.virt.plugins.plugin_utils._inventory import dead_hosts
from ansible_collections.corral.virt.plugins.plugin_utils._report import terminal
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable

display = Display()

Variables = t.Mapping[str, t.Any]


def _check_collections(action: PlaybookAction) -> None:
    """Raises BadInput if a collection that the action needs is not installed."""
    missing = [name for name in action.collections if not _is_installed(name)]
    if missing:
        names = " ".join(missing)
        raise BadInput(f"{action.name} requires {names}; install it: ansible-galaxy collection install {names}")


def _is_installed(collection: str) -> bool:
    try:
        return importlib.util.find_spec(f"ansible_collections.{collection}") is not None
    except ModuleNotFoundError:  # of its namespace
        return False


class ActionModule(ActionBase):
    """Reads variables; connects only to hosts that are declared gone. Nothing changes."""

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the checked arguments of the action; fails with every problem."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        _checked, options = self.validate_argument_spec(
            {"action": {"type": "str", "required": True, "choices": actions.names()}},
        )
        action, variables = actions.action(options["action"]), RunVariables(self, task_vars or {})
        try:
            _check_collections(action)
            given = variables.values([*action.arguments, "format"])
            values = action_arguments.asked(action, given, variables.inventory)
            if given.get("format") == "json" and "format" not in action.arguments and not terminal.only_reports():
                raise BadInput(
                    f"format: {action.name} prints JSON only where nothing else is printed; set "
                    f"ANSIBLE_STDOUT_CALLBACK={terminal.ONLY_REPORTS}"
                )
            self._check_hosts(action, values, task_vars or {})
            if "gone" in action.arguments:
                argument = "confirm_gone" if "confirm_gone" in action.arguments else "confirm"
                self._check_gone(values, task_vars or {}, argument)
        except BadInput as error:
            text, several = printable("; ".join(error.problems)), [str(printable(one)) for one in error.problems]
            raise AnsibleActionFail(text, result={"problems": several}) from error
        secret = action_arguments.withheld(action, values)
        shown = {name: value for name, value in values.items() if name not in secret}
        return {**result, "changed": False, "arguments": shown, "withheld": secret}

    def _check_hosts(self, action: PlaybookAction, values: Variables, variables: Variables) -> None:
        """Raises BadInput if a host that must be in the group is not, or not in the run."""
        members = variables["groups"].get(values["virt_group"]) or ()
        reachable = variables["ansible_play_hosts_all"]
        if found := [*action_arguments.unknown_hosts(action, values, members, reachable)]:
            raise action_arguments.BadArguments(found)

    def _check_gone(self, values: Variables, variables: Variables, argument: str) -> None:
        """Raises BadInput if a host in `gone` is not dead, or not confirmed by that argument."""
        gone, group = values.get("gone") or [], values["virt_group"]
        if problems := [*dead_hosts.unknown(gone, group, variables["groups"].get(group) or ())]:
            raise BadInput(problems)
        found = remote_modules.in_processes(
            {host: functools.partial(self._silence, host, variables) for host in gone}, at_once=len(gone)
        )
        problems = [
            f"gone: {host} cannot be queried: {answer['msg']}"
            for host, answer in found.items()
            if "silent" not in answer
        ]
        problems += dead_hosts.alive({host: answer["msg"] for host, answer in found.items() if "silent" in answer})
        if problems:
            raise BadInput(problems)
        if why := dead_hosts.unconfirmed(gone, values.get(argument) or [], argument):
            self._confirm(gone, why, ask=argument not in values)

    def _silence(self, host: str, variables: Variables) -> dict[str, t.Any]:
        """`silent`: True if nobody can log in to the host; `msg` is the reason."""
        manager = variables["hostvars"]._variable_manager
        found = manager.get_vars(play=play_of(self._task), host=manager._inventory.get_host(host), task=self._task)
        try:
            remote_modules.Elsewhere.of(self, found).log_in()
        except AnsibleConnectionFailure as error:
            return {"silent": True, "msg": str(error)}
        return {"silent": False, "msg": None}

    def _confirm(self, gone: t.Sequence[str], why: str, *, ask: bool) -> None:
        """Ask for the names on a terminal; raises BadInput if others, or none, are typed."""
        try:
            typed = (
                display.prompt_until(f"{printable(why)}\nOr type its name here: ").decode(errors="replace")
                if ask
                else ""
            )
        except AnsiblePromptNoninteractive:
            typed = ""
        if set(dead_hosts.named(typed)) != set(gone):
            raise BadInput(why)
