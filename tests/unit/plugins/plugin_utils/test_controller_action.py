"""Options of actions over what many hosts returned."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils._commands.controller_action import taken

SPEC = {"hosts": {"type": "dict", "required": True}, "leave": {"type": "list", "default": []}}


class Action:
    """As Ansible's: options are checked where the task has them."""

    def __init__(self, **args: t.Any) -> None:
        self._task = types.SimpleNamespace(args=args)
        self.checked: dict[str, t.Any] = {}

    def validate_argument_spec(self, spec: t.Any) -> tuple[None, dict[str, t.Any]]:
        """Remember what is checked."""
        self.checked = dict(self._task.args)
        if "wrong" in self.checked:
            raise ValueError(spec)
        return None, {"leave": [], **self.checked}


def test_what_hosts_returned_is_handed_on_as_it_is() -> None:
    hosts: dict[str, t.Any] = {"h1": {"host": {"guests": []}}}
    action = Action(hosts=hosts)
    options = taken(action, SPEC, "hosts")
    assert options["hosts"] is hosts and options["leave"] == [] and action.checked == {"hosts": {}}
    assert action._task.args == {"hosts": hosts}


@pytest.mark.parametrize("args", [{}, {"hosts": "h1"}, {"hosts": None}])
def test_what_is_no_dictionary_is_checked(args: dict[str, t.Any]) -> None:
    action = Action(**args)
    assert taken(action, SPEC, "hosts") == {"leave": [], **args} and action.checked == args


def test_a_task_that_is_wrong_keeps_its_options() -> None:
    action = Action(hosts={"h1": 1}, wrong=True)
    with pytest.raises(ValueError, match="hosts"):
        taken(action, SPEC, "hosts")
    assert action._task.args == {"hosts": {"h1": 1}, "wrong": True}
