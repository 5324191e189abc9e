# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulates lost hosts, added guests, and more guests of one kind until none fits. Pure.

Each step is placed as a real run would place it, after the steps before it.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import (
    Guest,
    Host,
    Placement,
    Policy,
)
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_host_loss import with_guests
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_placement import place

_MOST = 100_000  # guests of a kind


@dataclasses.dataclass(frozen=True)
class SimulationOutcome:
    """Placements of the guests of lost hosts and of added guests, and how many more fit."""

    hosts: t.Sequence[Host]
    moved: t.Sequence[Placement]
    added: t.Sequence[Placement]
    count: int | None = None  # more of the kind asked for
    limit: str = ""  # why not one more


def simulate(
    hosts: t.Sequence[Host],
    policy: Policy,
    *,
    lose: t.Collection[str] = (),
    add: t.Sequence[Guest] = (),
    fill: Guest | None = None,
) -> SimulationOutcome:
    """The outcome of all steps in this order. Guests of a lost host do not return to it."""
    left = [host for host in hosts if host.name not in lose]
    homeless = [_restarted(one, left) for host in hosts if host.name in lose for one in host.residents]
    # Guests that restart elsewhere are needed more than the room that a next loss takes.
    moved, left = _placed(homeless, left, dataclasses.replace(policy, losses=0))
    added, left = _placed(add, left, policy)
    if fill is None:
        return SimulationOutcome(left, moved, added)
    count, limit, left = filled(fill, left, policy)
    return SimulationOutcome(left, moved, added, count, limit)


def _restarted(guest: Guest, left: t.Sequence[Host]) -> Guest:
    """The guest to restart; its UUID, which slows placement, is kept only if a host has a guest of its name."""
    return guest if any(guest.name in host.guests for host in left) else dataclasses.replace(guest, uuid=None)


def filled(kind: Guest, hosts: t.Sequence[Host], policy: Policy) -> tuple[int, str, list[Host]]:
    """How many guests of that kind fit, why not one more, and the hosts with them."""
    most = min(_MOST, sum(_at_most(kind, host, policy) for host in hosts) + 1)
    guests = [dataclasses.replace(kind, name=f"{kind.name}-{number}") for number in range(1, most + 1)]
    placed, left = _placed(guests, hosts, policy)
    refused = next((one.why for one in placed if one.host is None), f"{most} is the most that is tried")
    return sum(one.host is not None for one in placed), refused, left


def _at_most(kind: Guest, host: Host, policy: Policy) -> int:
    """How many such guests a host has memory and processors for."""
    memory = host.memory_mib * policy.memory_overcommit - host.memory_used_mib
    cpu = host.cpus * policy.cpu_overcommit - host.vcpus_used
    return max(0, int(min(memory // max(1, kind.memory_mib), cpu // max(1, kind.vcpus))))


def _placed(guests: t.Sequence[Guest], hosts: t.Sequence[Host], policy: Policy) -> tuple[list[Placement], list[Host]]:
    placed = place(guests, hosts, policy=policy) if guests else []
    there = [(guest, one.host) for guest, one in zip(guests, placed) if one.host and not one.exists]
    return placed, with_guests(hosts, there)
