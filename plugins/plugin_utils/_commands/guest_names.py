# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts of a play have guests of a name, queried once for a task.

The first host's action queries all hosts, the others read its note.
"""

from __future__ import annotations

import functools
import hashlib
import json
import typing as t

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.corral.virt.plugins.plugin_utils._commands.guest_hosts import MAKING_STATES, Asked
from ansible_collections.corral.virt.plugins.plugin_utils._commands.other_hosts import Noted, OtherHosts
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable

_MODULE = "corral.virt.virt_state_info"
_ARGUMENTS = ("name", "domains", "state", "uri")
_DEFAULTS = ("virt", "virt_domain", "virt_domains")  # the group of all modules, and these two
_UNKNOWN = "?"  # a name that could not be rendered for a host: it may be any

Variables = dict[str, t.Any]


class Names:
    """Guests by host, for one task. Items of a loop share the answers, and each host adds what it created."""

    def __init__(self, action: ActionBase, variables: Variables) -> None:
        self._task, self._variables = action._task, variables
        self._here = str(variables["inventory_hostname"])
        self._others = OtherHosts(action, variables, defaults=_DEFAULTS)
        self._arguments = functools.cache(lambda host: self._others.arguments(host, _ARGUMENTS))

    def asked(self, names: t.Collection[str], *, alone: bool) -> dict[str, Asked]:
        """What each host that runs this task has and would create, for guests of these `names`.

        A single host is queried only if `alone`; else the result is empty.
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
        """Record that this host has these guests from now on."""
        if len(self._peers()) > 1:
            with self._noted() as note:
                known = note.get("hosts", {}).get(self._here, {})
                if known.get("names") is not None:
                    known["names"] = sorted({*known["names"], *names})

    def _peers(self) -> list[str]:
        """Hosts that this task may run on; only this one with run_once or delegate_to."""
        if self._task.run_once or self._task.delegate_to:
            return [self._here]
        return list(self._variables.get("ansible_play_hosts_all") or [self._here])

    def _noted(self) -> Noted:
        return Noted("corral-names", str(self._task._uuid))

    def _item(self) -> str:
        """A digest of the loop's current item."""
        value = self._variables.get(str(self._variables.get("ansible_loop_var")))
        return hashlib.sha256(json.dumps(value, default=str, sort_keys=True).encode()).hexdigest()

    def _ask_all(self, hosts: t.Sequence[str]) -> dict[str, Variables]:
        answers = self._others.ask(filter(self._others.runs, hosts), self._ask)
        return {host: _kept_of(answer) for host, answer in answers.items()}

    def _ask(self, host: str) -> Variables:
        uri = self._arguments(host).get("uri")
        return self._others.connected(host).ask(_MODULE, {"uri": uri} if uri else {}, self._others.variables(host))

    def _makes(self, host: str) -> list[str] | None:
        """Names that the task would create on that host; None if it does not run there."""
        if not self._others.runs(host):
            return None
        try:
            arguments = self._arguments(host)
            items = arguments.get("domains", [arguments])
            return [str(item["name"]) for item in items if (item.get("state") or "present") in MAKING_STATES]
        except (AnsibleError, KeyError, TypeError, AttributeError):
            return [_UNKNOWN]


def _kept_of(answer: Variables) -> Variables:
    """The part of a host's answer to keep: its guests' names, or None and the reason."""
    domains = answer.get("domains")
    if answer.get("failed") or not isinstance(domains, list):
        return {"names": None, "reason": printable(str(answer.get("msg") or "it did not answer"))}
    return {"names": [str(item.get("name")) for item in domains if isinstance(item, dict)]}


def _asked(answer: Variables, makes: t.Sequence[str], names: t.Collection[str]) -> Asked:
    known = None if answer["names"] is None else frozenset(answer["names"])
    return Asked(known, frozenset(names if _UNKNOWN in makes else makes), answer.get("reason", ""))
