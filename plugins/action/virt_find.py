# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the guests that a playbook affects. Runs on the controller, on the hosts' answers."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._core.output import some_of
from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions, hosted_guests, selection
from ansible_collections.corral.virt.plugins.plugin_utils._commands.actions import PlaybookAction
from ansible_collections.corral.virt.plugins.plugin_utils._commands.controller_action import ControllerAction
from ansible_collections.corral.virt.plugins.plugin_utils._inventory import inventory_guests
from ansible_collections.corral.virt.plugins.plugin_utils._report import terminal
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable
from ansible_collections.corral.virt.plugins.plugin_utils._report.wording import enumerated

OPTIONS: dict[str, t.Any] = {
    "action": {"type": "str", "required": True},
    "arguments": {"type": "dict", "required": True},
    "results": {"type": "dict", "required": True},
    "expected": {"type": "list", "elements": "dict"},
}

Arguments = t.Mapping[str, t.Any]


class ActionModule(ControllerAction):
    """Pure computation: it connects to no host, and changes nothing."""

    options, large = OPTIONS, "results"

    def answer(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the guests, and the items for `virt_domains` by host."""
        action, arguments = actions.action(options["action"]), options["arguments"]
        answers = hosted_guests.answers(options["results"])
        hosts = _hosts(arguments, answers, variables)
        there = hosted_guests.copies(answers)
        if options["expected"] is not None:
            selection.check_name(action, arguments, there)
        hit = selection.found(action, arguments, there, hosts, self._asked)
        if options["expected"] is not None:
            selection.check_expected(action, hit, options["expected"])
        gone = selection.missing(arguments, there) if arguments.get("missing_ok") else []
        for name in map(printable, gone):
            terminal.say(f"{name} is not there")
        unasked = [*hosts.silent, *hosts.hidden]
        domains = _domains(action, arguments, hit)
        if unasked and action.removes and hit:
            domains = {host: [{**one, "keep_shared": True} for one in its] for host, its in domains.items()}
            terminal.say(printable(_kept(hit, hosts, arguments)))
        guests = [{"name": copy.name, "uuid": copy.uuid, "host": copy.host, "state": copy.state} for copy in hit]
        return {
            "changed": False,
            "guests": guests,
            "domains": domains,
            "unasked": unasked,
            "namesakes": selection.namesakes(hit, there),
            "missing": gone,
        }

    def _asked(self, question: str) -> list[str]:
        """The question as a problem if it is unconfirmed; check mode only shows it."""
        gate = Gate(check_mode=self._task.check_mode)
        return gate.perform(lambda: [question], otherwise=lambda: _said(question))


def _said(question: str) -> list[str]:
    terminal.say(printable(question))
    return []


def _kept(hit: t.Sequence[hosted_guests.HostedGuest], hosts: hosted_guests.Hosts, arguments: Arguments) -> str:
    names = some_of([copy.name for copy in hit], hosted_guests.SHOWN)
    unasked = enumerated([*hosts.silent, *hosts.hidden])
    return (
        f"{unasked} may have {names}, too, and did not tell: disks on shared filesystems, and lines in known_hosts, "
        f"are kept{selection.where_dead(hosts, arguments, 'confirm_gone')}"
    )


def _hosts(arguments: Arguments, answers: t.Mapping[str, t.Any], variables: Arguments) -> hosted_guests.Hosts:
    """The hypervisors, by their outcome in this play."""
    group = arguments.get("virt_group", "hyper")
    asked = variables.get("ansible_play_hosts_all") or []
    every = set((variables.get("groups") or {}).get(group) or asked) - set(arguments.get("gone") or ())
    return hosted_guests.Hosts(
        group=group,
        answered=tuple(sorted(answers)),
        silent=tuple(host for host in asked if host not in answers),
        hidden=tuple(sorted(every - set(asked))),
        strangers=inventory_guests.strangers(variables.get("groups") or {}),
        clocks={host: float(found.get("clock") or 0) for host, found in answers.items()},
    )


def _domains(
    action: PlaybookAction, arguments: Arguments, hit: t.Sequence[hosted_guests.HostedGuest]
) -> dict[str, list[dict[str, t.Any]]]:
    """Items for `virt_domains`, by host."""
    if not action.domain:
        return {}
    if action.renames:
        return {
            copy.host: [
                {"name": arguments[action.new_name], "uuid": copy.uuid, "renamed_from": copy.name, **action.domain}
            ]
            for copy in hit
        }
    more = {**action.domain, **{name: arguments[name] for name in actions.domain_arguments() if name in arguments}}
    found: dict[str, list[dict[str, t.Any]]] = {}
    for copy in hit:
        found.setdefault(copy.host, []).append({"name": copy.name, "uuid": copy.uuid, **more})
    return found
