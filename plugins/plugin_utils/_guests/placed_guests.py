# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that get a host: the request as guests and hosts, and the result with moves, refusals and warnings. Pure."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._core.output import agree, some_of
from ansible_collections.corral.virt.plugins.module_utils._placement import model_placement, plan_host_loss
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_placement import place
from ansible_collections.corral.virt.plugins.plugin_utils._guests import host_requirements, missing_arguments
from ansible_collections.corral.virt.plugins.plugin_utils._inventory import inventory_guests
from ansible_collections.corral.virt.plugins.plugin_utils._placement import reported_hosts
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable

_NAMED = 10  # guests in a message
_STARTS = ("running", "paused", "rebooted", "reset")  # states in which a guest holds memory when the batch is done


@dataclasses.dataclass(frozen=True)
class PlacementRequest:
    """The guests to place, and the candidate hosts."""

    usable: t.Mapping[str, t.Any]  # what the hosts said, by name
    leave: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]]  # guests that leave a host, by host
    named: frozenset[str]  # guests that the task speaks of
    guests: t.Sequence[model_placement.Guest]
    hosts: t.Sequence[model_placement.Host]
    policy: model_placement.Policy

    @property
    def leaving(self) -> set[str]:
        """Guests that leave a host."""
        return {guest["name"] for found in self.leave.values() for guest in found}

    @classmethod
    def of(
        cls, options: t.Mapping[str, t.Any], wrong: t.Sequence[t.Sequence[str]], counting: reported_hosts.Counting
    ) -> PlacementRequest:
        """The guests and hosts of the options, with the problems of each guest; raises BadInput."""
        usable = reported_hosts.usable(options["hosts"])
        leave = {name: leaving(usable[name], options) for name in options["leave"] if name in usable}
        guests = needs(options["guests"], wrong, usable, counting.overhead_mib)
        named = frozenset(guest.name for guest in guests)
        started = {
            guest.name: guest
            for guest, item in zip(guests, options["guests"], strict=True)
            if item.get("state") in _STARTS
        }
        guests += [
            reported_hosts.guest(guest, counting, host_name=host)
            for host, found in leave.items()
            for guest in found
            if guest["name"] not in named
        ]
        guests = [_without_refused(guest, options.get("refused") or ()) for guest in guests]
        count = functools.partial(
            reported_hosts.host, started=started, all_defined=options["all_defined"], counting=counting
        )
        hosts = [count(name, info) for name, info in usable.items()]
        if missing := [name for name in options["leave"] if name not in usable]:
            raise BadInput(
                f"leave: {', '.join(missing)} {agree(len(missing), 'was', 'were')} not reached, so the guests there "
                "are not known"
            )
        return cls(usable, leave, named, guests, hosts, reported_hosts.policy(options))


def _without_refused(guest: model_placement.Guest, refused: t.Iterable[t.Mapping[str, t.Any]]) -> model_placement.Guest:
    """The guest with the hosts that have refused it."""
    its = {str(one["host"]): str(one["why"]) for one in refused if one["name"] == guest.name}
    return dataclasses.replace(guest, refused=tuple(sorted(its.items())))


def place_guests(
    asked: PlacementRequest, options: t.Mapping[str, t.Any], task_vars: t.Mapping[str, t.Any]
) -> list[model_placement.Placement]:
    """The host of each guest, or why it has none."""
    unseen = set(options["group"] or options["hosts"]) - {host.name for host in asked.hosts} - set(options["gone"])
    asked_in_vain = unseen & set(task_vars.get("ansible_play_hosts_all") or unseen)
    placed = place(
        asked.guests,
        asked.hosts,
        unreached=asked_in_vain,
        excluded=unseen - asked_in_vain,
        gone=options["gone"],
        policy=asked.policy,
        leave=asked.leave,
    )
    strangers = inventory_guests.strangers(task_vars.get("groups") or {})
    placed = [_refused(item, strangers) if item.guest in asked.named else item for item in placed]
    lacks = {str(item.get("name")): missing_arguments.why(item, asked.usable) for item in options["guests"]}
    return [incomplete(item, lacks.get(item.guest, "")) for item in placed]


def moving(
    asked: PlacementRequest, placed: t.Sequence[model_placement.Placement], options: t.Mapping[str, t.Any]
) -> dict[str, t.Any]:
    """Guests that leave, and those that cannot; unfinished moves of earlier runs are continued."""
    left = departures(asked.leave, {item.guest: item for item in placed})
    known = {(guest["name"], guest["source"]) for guest in left["moves"] + left["stays"]}
    unsettled = reported_hosts.unsettled(asked.usable)
    begun = [move for move in unsettled if move["source"] in asked.leave and _is_meant(move, options)]
    return {**left, "moves": [*left["moves"], *(move for move in begun if (move["name"], move["source"]) not in known)]}


def placements(asked: PlacementRequest, placed: t.Sequence[model_placement.Placement]) -> dict[str, t.Any]:
    """The hosts of guests, a line that explains each, and the guests that are deferred."""
    deferred = [item for item in placed if item.deferred and item.guest not in asked.leaving]
    return {
        "placements": {item.guest: item.host for item in placed if item.host},
        "explained": [printable(f"{item.guest} -> {_outcome(item)}: {item.why}") for item in placed],
        "deferred": [item.guest for item in deferred],
        "unclear": [printable(f"{item.guest}: {item.why}") for item in deferred if item.unclear],
    }


def warnings(placed: t.Sequence[model_placement.Placement]) -> t.Iterator[str]:
    """A warning for each reason why guests are deferred."""
    names: dict[str, list[str]] = {}
    for item in placed:
        if item.deferred:
            names.setdefault(item.why, []).append(item.guest)
    for why, guests in names.items():
        yield printable(
            f"{some_of(guests, _NAMED)} {agree(len(guests), 'is', 'are')} neither created nor changed: {why}"
        )


def homeless_warnings(
    asked: PlacementRequest, options: t.Mapping[str, t.Any], placed: t.Sequence[model_placement.Placement]
) -> t.Iterator[str]:
    """A warning for each member of a cluster with Pacemaker whose guests would find no room when it dies."""
    if asked.leave:
        return
    wanted = {str(item["name"]): item.get("ha") for item in options["guests"]}
    # What is no dictionary, the module refuses.
    protected = {name for name, ha in wanted.items() if isinstance(ha, dict) and ha.get("mode") == "restart"}
    guests = {guest.name: guest for guest in asked.guests}
    going = [(guests[one.guest], one.host) for one in placed if one.host and not one.exists]
    members = {host: frozenset(info.get("members") or ()) for host, info in asked.usable.items()}
    new = [
        (dataclasses.replace(guest, members=members[host]) if guest.name in protected else guest, host)
        for guest, host in going
    ]
    lacking = plan_host_loss.homeless_of_cluster(plan_host_loss.with_guests(asked.hosts, new), asked.policy)
    for host, names in lacking.items():
        yield printable(
            f"after the loss of {host}, the other members of its cluster have no room for {len(names)} of its "
            f"protected guests: {some_of(names, _NAMED)}"
        )


def positions(guests: t.Sequence[t.Mapping[str, t.Any]], placements: t.Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Positions of each host's guests in the list, which is slow to search if there are many."""
    found: dict[str, dict[str, int]] = {}
    for position, guest in enumerate(guests):
        if host := placements.get(guest["name"]):
            found.setdefault(host, {})[guest["name"]] = position
    return found


def _outcome(item: model_placement.Placement) -> str:
    return item.host or ("deferred" if item.deferred else "refused")


def _refused(item: model_placement.Placement, strangers: t.Mapping[str, str]) -> model_placement.Placement:
    """Refuses a new guest whose name the inventory knows as another host."""
    owner = None if item.exists or item.host is None else strangers.get(inventory_guests.destination(item.guest))
    if owner is None:
        return item
    why = (
        f"{owner} is a host of this inventory outside the group {inventory_guests.GROUP}; choose another name, or put "
        "that host into the group"
    )
    return model_placement.Placement(item.guest, None, why)


def incomplete(item: model_placement.Placement, lacking: str) -> model_placement.Placement:
    """Refuses a new guest that lacks required options."""
    if item.exists or item.host is None or not lacking:
        return item
    return model_placement.Placement(item.guest, None, lacking)


def _is_meant(guest: t.Mapping[str, t.Any], options: t.Mapping[str, t.Any]) -> bool:
    """True if the guest is to leave, by its name and its state."""
    named = options["only"] is None or guest["name"] in options["only"]
    may_stay = options["running_only"] or guest.get("uuid") in options["stay"]
    return named and (not may_stay or guest["state"] in model_placement.ACTIVE)


def leaving(info: reported_hosts.Info, options: t.Mapping[str, t.Any]) -> list[t.Mapping[str, t.Any]]:
    """Guests that leave a host."""
    return [guest for guest in info["guests"] if _is_meant(guest, options)]


def departures(
    leave: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]], placed: t.Mapping[str, model_placement.Placement]
) -> dict[str, list[dict[str, t.Any]]]:
    """Moves of the guests on hosts to leave, running and large ones first; and those that stay, with reasons."""
    moves, stays = [], []
    for source, found in leave.items():
        for guest in found:
            item = placed[guest["name"]]
            described = {"name": guest["name"], "source": source, "state": guest["state"], "why": printable(item.why)}
            if item.exists:
                stays.append(
                    {**described, "why": f"{item.host} has it too, and it runs there; remove the copy on {source}"}
                )
            elif item.host is None:
                stays.append(described)
            else:
                moves.append(
                    {**described, "dest": item.host, "memory_mib": guest["memory_mib"], "disk_mib": guest["disk_mib"]}
                )
    moves.sort(key=lambda move: (move["state"] not in model_placement.ACTIVE, -move["memory_mib"], move["name"]))
    return {"moves": moves, "stays": sorted(stays, key=lambda stay: str(stay["name"]))}


def needs(
    items: t.Sequence[t.Mapping[str, t.Any]],
    wrong: t.Sequence[t.Sequence[str]],
    usable: t.Mapping[str, reported_hosts.Info],
    overhead_mib: int = 0,
) -> list[model_placement.Guest]:
    """Guests with their needs; raises BadInput with every problem."""
    found, problems = list[model_placement.Guest](), list[str]()
    there: dict[str, set[str]] = {}
    for known_guest in (each for info in usable.values() for each in info["guests"]):
        there.setdefault(known_guest["name"], set()).add(known_guest["uuid"])
    for item, known in zip(items, wrong, strict=True):
        problems += known
        if known:
            continue
        try:
            guest = host_requirements.of(item, namesakes=there.get(str(item.get("name")), ()))
            copied = item.get("clone_of") and not missing_arguments.having(guest.name, usable)
            guest = _like(guest, missing_arguments.having(str(item["clone_of"]), usable)) if copied else guest
            found.append(dataclasses.replace(guest, memory_mib=guest.memory_mib + overhead_mib))
        except BadInput as error:
            problems += error.problems
    problems += host_requirements.given_twice((str(item.get("name")) for item in items), "guests")
    if problems:
        raise BadInput(problems)
    return found


def _like(guest: model_placement.Guest, holders: t.Mapping[str, t.Mapping[str, t.Any]]) -> model_placement.Guest:
    """The copy's needs: it is created beside its original, and as large by default."""
    if len(holders) != 1:
        return guest
    [(host, original)] = holders.items()
    vcpus, memory_mib = guest.vcpus or original["vcpus"], guest.memory_mib or original["memory_mib"]
    none: frozenset[str] = frozenset()  # what its original is plugged into, the host has
    offers = dict.fromkeys(("bridges", "networks", "pools", "machines", "cpu_models", "platform"), none)
    return dataclasses.replace(
        guest, vcpus=vcpus, memory_mib=memory_mib, host=host, disks=(), devices=(), **t.cast("dict[str, t.Any]", offers)
    )


def message(refused: t.Sequence[model_placement.Placement]) -> str:
    """Why guests have no host; guests with the same reason are grouped."""
    guests: dict[str, list[str]] = {}
    for item in refused:
        guests.setdefault(item.why, []).append(item.guest)
    told = {
        some_of(names, _NAMED): why if len(names) == 1 else why.replace("it needs", "each needs", 1)
        for why, names in guests.items()
    }
    return "; ".join(f"cannot place {names}: {why}" for names, why in told.items())
