# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answer "what if" for a cluster that a file describes. Runs on the controller."""

from __future__ import annotations

import dataclasses
import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._placement import model_placement, plan_simulation
from ansible_collections.corral.virt.plugins.module_utils._system import configuration
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import OWNER
from ansible_collections.corral.virt.plugins.plugin_utils._commands.controller_action import ControllerAction
from ansible_collections.corral.virt.plugins.plugin_utils._guests import host_requirements
from ansible_collections.corral.virt.plugins.plugin_utils._placement import cluster_file, reported_hosts
from ansible_collections.corral.virt.plugins.plugin_utils._report import tables, terminal
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable

OPTIONS: dict[str, t.Any] = {
    **{name: spec for name, spec in reported_hosts.OPTIONS.items() if name != "hosts"},
    "cluster": {"type": "path", "required": True},
    "lose": {"type": "list", "elements": "str", "default": []},
    "add": {"type": "list", "elements": "dict", "default": []},
    "fill": {"type": "dict"},
}
_TOLD = 10  # guests of one kind in the text


class ActionModule(ControllerAction):
    """Pure computation: no hypervisor is queried."""

    options = OPTIONS

    def answer(self, options: dict[str, t.Any], _variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the outcome, and show it as text."""
        outcome = _simulated(options)
        lines = [printable(line) for line in _lines(outcome, options)]
        for line in lines:
            terminal.say(line)
        return {
            "changed": False,
            "moved": {one.guest: one.host for one in outcome.moved if one.host},
            "homeless": _without(outcome.moved),
            "added": {one.guest: one.host for one in outcome.added if one.host},
            "refused": _without(outcome.added),
            "fits": outcome.count,
            "limit": outcome.limit,
            "hosts": {host.name: _figures(host) for host in outcome.hosts},
            "text": "\n".join(lines),
        }


def _simulated(options: t.Mapping[str, t.Any]) -> plan_simulation.SimulationOutcome:
    """The outcome of the simulation; raises BadInput, and Failed if the file cannot be read."""
    path = options["cluster"]
    if not os.path.isfile(path):
        raise BadInput(f"cluster: there is no file {path}")
    described = cluster_file.parsed(configuration.read(path, denied=OWNER), path)
    domains = {host["name"]: str(host["domain"]) for host in described if host.get("domain")}
    rules = {**options["rules"], "failure_domains": {**domains, **(options["rules"].get("failure_domains") or {})}}
    counting = reported_hosts.Counting.of(rules, cluster_file.groups(described))
    infos = cluster_file.infos(described)
    hosts = [
        reported_hosts.host(name, info, all_defined=options["all_defined"], counting=counting)
        for name, info in infos.items()
    ]
    lost = _lost(options["lose"], hosts)
    add = _wanted(options["add"], "add", counting.overhead_mib)
    kinds = _wanted([{"name": "more", **options["fill"]}], "fill", counting.overhead_mib) if options["fill"] else []
    there = {name for host in hosts for name in host.guests}
    if taken := sorted(guest.name for guest in add if guest.name in there):
        raise BadInput(f"add: the cluster already has {', '.join(taken)}; choose other names")
    fill = kinds[0] if kinds else None
    return plan_simulation.simulate(hosts, reported_hosts.policy(options), lose=lost, add=add, fill=fill)


def _lost(names: t.Sequence[str], hosts: t.Sequence[model_placement.Host]) -> set[str]:
    """Hosts with these names or failure domains; raises BadInput."""
    known = {host.name for host in hosts} | {host.domain for host in hosts if host.domain}
    if unknown := [name for name in names if name not in known]:
        raise BadInput(f"lose: the cluster has no hypervisor or failure domain {', '.join(unknown)}")
    return {host.name for host in hosts if host.name in names or host.domain in names}


def _wanted(items: t.Sequence[t.Mapping[str, t.Any]], option: str, overhead_mib: int) -> list[model_placement.Guest]:
    """Guests, each as often as its `count`; raises BadInput with every problem."""
    found: list[model_placement.Guest] = []
    problems: list[str] = []
    for item in items:
        count = item.get("count", 1)
        try:
            guest = host_requirements.of({key: value for key, value in item.items() if key != "count"})
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise BadInput(f"{option}: count of {guest.name} must be a number above zero")
            if not guest.vcpus or not guest.memory_mib:
                raise BadInput(f"{option}: {guest.name} requires vcpus and memory, for example vcpus=2 memory=2GiB")
        except BadInput as error:
            problems += error.problems
            continue
        guest = dataclasses.replace(guest, memory_mib=guest.memory_mib + overhead_mib)
        names = [f"{guest.name}-{number}" for number in range(1, count + 1)] if "count" in item else [guest.name]
        found += [dataclasses.replace(guest, name=name) for name in names]
    problems += host_requirements.given_twice((guest.name for guest in found), option)
    if problems:
        raise BadInput(problems)
    return found


def _without(placed: t.Sequence[model_placement.Placement]) -> dict[str, str]:
    """Guests without a host, with the reasons."""
    return {one.guest: printable(one.why) for one in placed if one.host is None}


def _figures(host: model_placement.Host) -> dict[str, t.Any]:
    return {
        "guests": len(host.residents),
        "vcpus_used": host.vcpus_used,
        "cpus": host.cpus,
        "memory_used_mib": host.memory_used_mib,
        "memory_mib": host.memory_mib,
    }


def _lines(outcome: plan_simulation.SimulationOutcome, options: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """Lines about each step, and a table of the hosts at the end."""
    if options["lose"]:
        yield f"loss of {', '.join(options['lose'])}: {_counted(outcome.moved, 'find room elsewhere')}"
        yield from _reasons(_without(outcome.moved))
    if options["add"]:
        yield f"added: {_counted(outcome.added, 'are placed')}"
        yield from _reasons(_without(outcome.added))
    if outcome.count is not None:
        yield f"fill: {outcome.count} more guests fit; the next one does not: {outcome.limit}"
    yield from tables.columns([("HOST", "GUESTS", "VCPUS", "MEMORY MIB"), *map(_row, outcome.hosts)])


def _row(host: model_placement.Host) -> tuple[str, str, str, str]:
    used = f"{host.memory_used_mib} of {host.memory_mib}"
    return host.name, str(len(host.residents)), f"{host.vcpus_used} on {host.cpus} cpus", used


def _counted(placed: t.Sequence[model_placement.Placement], what: str) -> str:
    return f"{sum(one.host is not None for one in placed)} of {len(placed)} guests {what}"


def _reasons(without: t.Mapping[str, str]) -> t.Iterator[str]:
    """A line for each reason, with its guests."""
    alike: dict[str, list[str]] = {}
    for name, why in without.items():
        alike.setdefault(why, []).append(name)
    for why, names in alike.items():
        more = f" and {len(names) - _TOLD} more" if names[_TOLD:] else ""
        yield f"  {', '.join(names[:_TOLD])}{more}: {why}"
