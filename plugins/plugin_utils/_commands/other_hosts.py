# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that a task's action queries beside its own: the task as it is there, and notes that processes share."""

from __future__ import annotations

import fcntl
import functools
import json
import typing as t
from pathlib import Path

from ansible import constants, context
from ansible.errors import AnsibleError
from ansible.parsing.mod_args import ModuleArgsParser
from ansible.plugins.action import ActionBase

from ansible_collections.corral.virt.plugins.plugin_utils._commands import remote_modules

Variables = dict[str, t.Any]


class OtherHosts:
    """A task as it is on other hosts of the inventory. `defaults`: its module's names in module_defaults."""

    def __init__(self, action: ActionBase, variables: Variables, *, defaults: t.Collection[str]) -> None:
        self._action, self._task, self._variables, self._names = action, action._task, variables, defaults
        # Reading all variables of a host takes long, and several questions need them.
        self.variables = functools.cache(self._variables_of)

    def _variables_of(self, host: str) -> Variables:
        """All variables that this task has on that host."""
        manager = self._variables["hostvars"]._variable_manager
        found: Variables = manager.get_vars(
            play=play_of(self._task), host=manager._inventory.get_host(host), task=self._task
        )
        loop = [
            str(self._variables[key]) for key in ("ansible_loop_var", "ansible_index_var") if key in self._variables
        ]
        return {**found, **{key: self._variables[key] for key in loop if key in self._variables}}

    def templar(self, host: str) -> t.Any:
        """A templar with the variables of that host."""
        return self._action._templar.copy_with_new_env(available_variables=self.variables(host))

    def runs(self, host: str) -> bool:
        """True if the task runs on that host, also if that cannot be known."""
        try:
            templar = self.templar(host)
            return all(
                condition if isinstance(condition, bool) else templar.evaluate_conditional(condition)
                for condition in self._task.when
            )
        except AnsibleError:
            return True

    def arguments(self, host: str, names: t.Collection[str]) -> Variables:
        """Arguments of the task as it is written, rendered for that host."""
        parser = ModuleArgsParser(task_ds=self._task.get_ds(), collection_list=self._task.collections)
        _action, written, _delegate = parser.parse(skip_action_validation=True)
        arguments = {key: value for key, value in {**self._defaults(), **written}.items() if key in names}
        # all at once, which leaves out what is omitted
        return t.cast(Variables, self.templar(host).template(arguments))

    def _defaults(self) -> Variables:
        """The task's arguments in module_defaults, unrendered."""
        found: Variables = {}
        for defaults in self._task.module_defaults or []:
            for target, arguments in defaults.items():
                if str(target).rpartition(".")[2] in self._names:
                    found.update(arguments)
        return found

    def connected(self, host: str) -> remote_modules.Elsewhere:
        """A connection to that host."""
        return remote_modules.Elsewhere.of(self._action, self.variables(host))

    def ask(self, hosts: t.Iterable[str], question: t.Callable[[str], Variables]) -> dict[str, Variables]:
        """The answer of each host, queried in parallel up to Ansible's forks; `failed` and `msg` if there is none."""
        return remote_modules.in_processes(
            {host: functools.partial(question, host) for host in hosts},
            at_once=int(context.CLIARGS.get("forks") or constants.DEFAULT_FORKS),
        )


class Noted:
    """A note of a run in a JSON file, locked while open: the actions of hosts are separate processes."""

    def __init__(self, folder: str, name: str) -> None:
        self._path = Path(constants.DEFAULT_LOCAL_TMP) / folder / f"{name}.json"

    def __enter__(self) -> Variables:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = self._path.open("a+")
        fcntl.flock(self._stream, fcntl.LOCK_EX)
        self._stream.seek(0)
        note: Variables = json.loads(self._stream.read() or "{}")
        self._note = note
        return note

    def __exit__(self, *_error: object) -> None:
        self._stream.seek(0)
        self._stream.truncate()
        json.dump(self._note, self._stream)
        self._stream.close()


def play_of(task: t.Any) -> t.Any:
    """The play that contains a task; None if unknown."""
    above = task._parent
    while above is not None and getattr(above, "_play", None) is None:
        above = getattr(above, "_parent", None)
    return getattr(above, "_play", None)


# What whoever runs a playbook gave it: extra variables, and variables of the play (`vars` beside
# `import_playbook`).


class RunVariables:
    """The variables that were given to a run, apart from those of its inventory."""

    def __init__(self, action: ActionBase, variables: t.Mapping[str, t.Any]) -> None:
        self._task, self._templar, self._variables = action._task, action._templar, variables
        self._manager = variables["hostvars"]._variable_manager

    def values(self, arguments: t.Collection[str]) -> dict[str, t.Any]:
        """Each variable that was given; those that are arguments are rendered, the others None."""
        given = {**play_of(self._task).vars, **self._manager.extra_vars}
        return {name: self._templar.template(value) if name in arguments else None for name, value in given.items()}

    def inventory(self) -> set[str]:
        """Names of variables that the inventory has for this host, even if extra variables override them."""
        host = self._manager._inventory.get_host(self._variables["inventory_hostname"])
        extra, self._manager._extra_vars = self._manager._extra_vars, {}
        try:
            return set(self._manager.get_vars(host=host, include_hostvars=False))
        finally:
            self._manager._extra_vars = extra
