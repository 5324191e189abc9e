# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What hosts of a play have guests of a name, asked once for a task: the first host's action asks for all, the
others read its note.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import typing as t
from pathlib import Path

from ansible import constants, context
from ansible.errors import AnsibleError
from ansible.parsing.mod_args import ModuleArgsParser
from ansible.plugins.action import ActionBase

from ansible_collections.corral.virt.plugins.plugin_utils import _elsewhere
from ansible_collections.corral.virt.plugins.plugin_utils._foreign_text import printable
from ansible_collections.corral.virt.plugins.plugin_utils._holders import MAKING_STATES, Asked

__all__ = ["Names", "play_of"]

_MODULE = "corral.virt.virt_state_info"
_ARGUMENTS = ("name", "domains", "state", "uri")
_DEFAULTS = ("virt", "virt_domain", "virt_domains")  # the group of all modules, and these two
_UNKNOWN = "?"  # a name that could not be rendered for a host: it may be any

Variables = dict[str, t.Any]


class Names:
    """Guests by host, for one task; loops share what was asked, and each host adds what it made."""

    def __init__(self, action: ActionBase, variables: Variables) -> None:
        self._action, self._task, self._variables = action, action._task, variables
        self._here = str(variables["inventory_hostname"])
        self._note = Path(constants.DEFAULT_LOCAL_TMP) / "corral-names" / f"{self._task._uuid}.json"
        # Reading all variables of a host takes long, and several questions need them.
        self._of = functools.cache(self._variables_of)
        self._arguments = functools.cache(self._arguments_on)

    def asked(self, names: t.Collection[str], *, alone: bool) -> dict[str, Asked]:
        """What each host that runs this task has and makes; `names` are those that this one is about.

        A host that is the only one is asked when it is to be asked `alone`.
        """
        peers = self._peers()
        if len(peers) < 2 and not alone:
            return {}
        with self._noted() as note:
            if not note.get("hosts"):
                note["hosts"] = self._ask_all(peers)
            item = self._item()
            if item not in note.setdefault("makes", {}):
                note["makes"][item] = {host: makes for host in peers if (makes := self._makes(host)) is not None}
            hosts, makes = note["hosts"], note["makes"][item]
        return {host: _asked(hosts[host], makes[host], names) for host in makes if host in hosts}

    def made(self, names: t.Collection[str]) -> None:
        """This host has these guests from now on."""
        if len(self._peers()) > 1:
            with self._noted() as note:
                known = note.get("hosts", {}).get(self._here, {})
                if known.get("names") is not None:
                    known["names"] = sorted({*known["names"], *names})

    def _peers(self) -> list[str]:
        """Hosts that this task may run on; one alone where the user has said which."""
        if self._task.run_once or self._task.delegate_to:
            return [self._here]
        return list(self._variables.get("ansible_play_hosts_all") or [self._here])

    def _noted(self) -> _Noted:
        self._note.parent.mkdir(parents=True, exist_ok=True)
        return _Noted(self._note)

    def _item(self) -> str:
        """Which turn of a loop this is."""
        value = self._variables.get(str(self._variables.get("ansible_loop_var")))
        return hashlib.sha256(json.dumps(value, default=str, sort_keys=True).encode()).hexdigest()

    def _ask_all(self, hosts: t.Sequence[str]) -> dict[str, Variables]:
        questions = {host: functools.partial(self._ask, host) for host in hosts if self._runs(host)}
        answers = _elsewhere.in_processes(
            questions, at_once=int(context.CLIARGS.get("forks") or constants.DEFAULT_FORKS)
        )
        return {host: _kept_of(answer) for host, answer in answers.items()}

    def _ask(self, host: str) -> Variables:
        variables = self._of(host)
        uri = self._arguments(host).get("uri")
        arguments = {"uri": uri} if uri else {}
        return _elsewhere.Elsewhere.of(self._action, variables).ask(_MODULE, arguments, variables)

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

    def _templar(self, host: str) -> t.Any:
        return self._action._templar.copy_with_new_env(available_variables=self._of(host))

    def _runs(self, host: str) -> bool:
        """Whether the task runs there; what cannot be known may be."""
        try:
            templar = self._templar(host)
            return all(
                condition if isinstance(condition, bool) else templar.evaluate_conditional(condition)
                for condition in self._task.when
            )
        except AnsibleError:
            return True

    def _arguments_on(self, host: str) -> Variables:
        """`name`, `domains`, `state`, `uri` of the task as it is written, rendered for that host."""
        parser = ModuleArgsParser(task_ds=self._task.get_ds(), collection_list=self._task.collections)
        _action, written, _delegate = parser.parse(skip_action_validation=True)
        templar = self._templar(host)
        arguments = {key: value for key, value in {**self._defaults(), **written}.items() if key in _ARGUMENTS}
        return t.cast(Variables, templar.template(arguments))  # all at once, which leaves out what is omitted

    def _defaults(self) -> Variables:
        """`uri` of module_defaults, as it is written there."""
        found: Variables = {}
        for defaults in self._task.module_defaults or []:
            for target, arguments in defaults.items():
                if str(target).rpartition(".")[2] in _DEFAULTS and "uri" in arguments:
                    found["uri"] = arguments["uri"]
        return found

    def _makes(self, host: str) -> list[str] | None:
        """Names that the task would make there; None where it does not run."""
        if not self._runs(host):
            return None
        try:
            arguments = self._arguments(host)
            items = arguments.get("domains", [arguments])
            return [str(item["name"]) for item in items if (item.get("state") or "present") in MAKING_STATES]
        except (AnsibleError, KeyError, TypeError, AttributeError):
            return [_UNKNOWN]


class _Noted:
    """The note of a task, locked while it is read and written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Variables:
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


def _kept_of(answer: Variables) -> Variables:
    """What is kept of a host's answer, whatever its form."""
    domains = answer.get("domains")
    if answer.get("failed") or not isinstance(domains, list):
        return {"names": None, "reason": printable(str(answer.get("msg") or "it did not answer"))}
    return {"names": [str(item.get("name")) for item in domains if isinstance(item, dict)]}


def _asked(answer: Variables, makes: t.Sequence[str], names: t.Collection[str]) -> Asked:
    known = None if answer["names"] is None else frozenset(answer["names"])
    return Asked(known, frozenset(names if _UNKNOWN in makes else makes), answer.get("reason", ""))


def play_of(task: t.Any) -> t.Any:
    """The play that a task stands in."""
    above = task._parent
    while above is not None and getattr(above, "_play", None) is None:
        above = getattr(above, "_parent", None)
    return getattr(above, "_play", None)
