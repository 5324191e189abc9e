# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan which guests move so that hypervisors are loaded evenly. Runs on the controller, on the hosts' reports."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._placement import model_placement, plan_balance
from ansible_collections.corral.virt.plugins.plugin_utils._commands.controller_action import ControllerAction
from ansible_collections.corral.virt.plugins.plugin_utils._placement import reported_hosts
from ansible_collections.corral.virt.plugins.plugin_utils._report import tables, terminal
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable

OPTIONS: dict[str, t.Any] = {
    **reported_hosts.OPTIONS,
    "max_moves": {"type": "int"},
    "tolerance": {"type": "float", "default": 5.0},
    "stay": {"type": "list", "elements": "str", "default": []},
    "by": {
        "type": "list",
        "elements": "str",
        "choices": ["memory", "vcpus", "cpu_use", "guests"],
        "default": list(plan_balance.BY),
    },
}


class ActionModule(ControllerAction):
    """Pure computation: it connects to no host, and changes nothing."""

    options, large = OPTIONS, "hosts"

    def answer(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the plan, and show it as a table."""
        policy = reported_hosts.policy(options, "max_moves", "tolerance")
        counting = reported_hosts.Counting.of(options["rules"], variables.get("groups"))
        infos = reported_hosts.usable(options["hosts"])
        _check_by(options["by"], infos)
        count = functools.partial(reported_hosts.host, all_defined=options["all_defined"], counting=counting)
        planned = _planned(
            [count(name, info) for name, info in infos.items()], _residents(infos, counting), policy, options
        )
        terminal.say(planned["text"])
        begun = [
            {**move, "gain": 0.0, "cost_mib": 0}
            for move in reported_hosts.unsettled(infos)
            if move["name"] not in options["stay"]
        ]
        return {"changed": False, **planned, "moves": begun + planned["moves"]}


def _check_by(by: t.Sequence[str], infos: t.Mapping[str, reported_hosts.Info]) -> None:
    """Raises BadInput for contradicting or unavailable measures of load."""
    if {"vcpus", "cpu_use"} <= set(by):
        raise BadInput("by: vcpus and cpu_use are two measures of processors; use one of them")
    unknown = [name for name, info in infos.items() if any(found.get("cpu_use") is None for found in info["guests"])]
    if "cpu_use" in by and unknown:
        raise BadInput(
            f"by: the processor use of guests on {', '.join(unknown)} is not known; set cpu_seconds of virt_host_info"
        )


def _planned(
    hosts: t.Sequence[model_placement.Host],
    residents: t.Sequence[plan_balance.Resident],
    policy: model_placement.Policy,
    options: t.Mapping[str, t.Any],
) -> dict[str, t.Any]:
    by = options["by"]
    chosen = {option: options[option] for option in ("max_moves", "tolerance", "stay")}
    moves = plan_balance.plan(hosts, residents, policy=policy, by=by, **chosen)
    homes = {move.guest: move.dest for move in moves}
    then = [dataclasses.replace(one, host=homes.get(one.guest.name, one.host)) for one in residents]
    before = plan_balance.imbalance(hosts, policy, by=by, residents=residents)
    after = plan_balance.imbalance(plan_balance.moved(hosts, residents, moves), policy, by=by, residents=then)
    broken = [
        printable(f"{' and '.join(names)} are both on {host}, and guests of group {word} stay apart")
        for (host, word), names in plan_balance.broken(residents).items()
    ]
    return {
        "imbalance": {"before": round(before, 1), "after": round(after, 1)},
        "broken": broken,
        "moves": [_described(move) for move in moves],
        "text": "\n".join([*broken, _plan_text(moves, before, after)]),
    }


def _described(move: plan_balance.SuggestedMove) -> dict[str, t.Any]:
    return {
        "name": move.guest,
        "source": move.source,
        "dest": move.dest,
        "gain": round(move.gain, 1),
        "cost_mib": move.cost_mib,
        **({"mends": move.mends} if move.mends else {}),
    }


def _residents(
    infos: t.Mapping[str, reported_hosts.Info], counting: reported_hosts.Counting
) -> list[plan_balance.Resident]:
    """Running guests, except those that are migrating."""
    moving = {found["uuid"] for info in infos.values() for found in info["guests"] if found.get("moving")}
    return [
        plan_balance.Resident(
            reported_hosts.guest(found, counting, host_name=name), name, found["disk_mib"], found.get("cpu_use") or 0.0
        )
        for name, info in infos.items()
        for found in info["guests"]
        if found["state"] in model_placement.ACTIVE and found["uuid"] not in moving
    ]


def _plan_text(moves: t.Sequence[plan_balance.SuggestedMove], before: float, after: float) -> str:
    """The plan as text: a line for each move, and the total imbalance."""
    if not moves:
        return f"imbalance {before:.1f}: no move is worth it"
    rows = [(move.guest, f"{move.source} -> {move.dest}", f"{move.gain:.1f}", str(move.cost_mib)) for move in moves]
    lines = tables.columns([("guest", "move", "gain", "MiB"), *rows])
    return "\n".join([*lines, f"imbalance {before:.1f} -> {after:.1f}"])
