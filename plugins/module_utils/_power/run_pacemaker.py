# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Act on a guest that Pacemaker may run: it looks away meanwhile, and then looks where the guest is."""

from __future__ import annotations

import contextlib
import typing as t
from xml.etree import ElementTree

from ansible_collections.corral.virt.plugins.module_utils._core import step
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._core.step import Step
from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_here, is_system, tls
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._libvirt import states
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._libvirt.model_state import ACTIVE
from ansible_collections.corral.virt.plugins.module_utils._power import files_pacemaker, plan_power
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import Entrust, Resource

S = t.TypeVar("S", bound=Step)


def resource(connection: t.Any, uuid: str | None) -> Resource | None:
    """The resource of the guest with that UUID; None if it is none, or libvirt is not this host's."""
    uri = str(connection.getURI())
    return files_pacemaker.resource(uuid) if uuid and is_here(uri) and is_system(uri) else None


def hold(found: Resource, gate: Gate, stack: contextlib.ExitStack) -> files_pacemaker.PacemakerHold:
    """Have Pacemaker look away until `stack` ends."""
    held = files_pacemaker.PacemakerHold(found)
    gate.hold(stack, lambda: held)
    return held


def as_left(
    name: str, found: Resource | None, steps: tuple[S, ...], *, starts: tuple[type, ...] | None
) -> tuple[S | Entrust, ...]:
    """The steps, and that Pacemaker keeps the guest as they leave it: running, from a step of one of the classes
    `starts` on, or off at their end, without any.
    """
    role = "Stopped" if starts is None else "Started"
    if found is None or found.role == role:
        return steps
    begun = (at for at, one in enumerate(steps, 1) if isinstance(one, starts or ()))
    last = len(steps) if starts is None else next(begun, 0)
    return (*steps[:last], Entrust(name, found.name, role), *steps[last:])


def run(
    gate: Gate,
    found: Resource | None,
    steps: t.Sequence[S],
    do: t.Callable[[S], object],
    *,
    stops: bool = False,
    again: t.Callable[[], object] | None = None,
    within: t.ContextManager[object] | None = None,
) -> list[object]:
    """Pass the steps to the gate. Pacemaker looks away while the guest starts, or (`stops`) is not where it was.

    `again` is a look that is made when Pacemaker looks away, before the first step. `within` is entered then, and what
    it does after a failure is done before Pacemaker looks again.
    """
    with contextlib.ExitStack() as stack:
        held = hold(found, gate, stack) if found and (stops or plan_power.holds(steps)) else None
        if again:
            gate.perform(again, otherwise=lambda: None)
        if within:
            stack.enter_context(within)
        return gate.run(steps, lambda step: _DOERS[type(step)](held, step) if type(step) in _DOERS else do(step))


_DOERS: dict[type[Step], t.Callable[..., object]] = {Entrust: files_pacemaker.PacemakerHold.entrust}


P = t.TypeVar("P", bound=step.Plan[t.Any])


def entrusted(
    plan: P, wanted: GuestSpec, found: Resource | None, undefines: tuple[type, ...] = ()
) -> tuple[P, t.Callable[[], None] | None]:
    """The plan for a guest that may be a resource of Pacemaker. One that is off here and is to be removed may run on
    another member, or Pacemaker may be starting it there: then also a look, to be made again when Pacemaker looks away.

    Both raise Refused if another member may run it.
    """
    if found is None or wanted.state != "absent" or plan_power.holds(plan.steps):
        return plan_power.entrusted(plan, wanted, found, undefines), None
    plan = plan_power.entrusted(plan, wanted, found, undefines)
    plan_power.refuse_elsewhere(wanted, found, [*_elsewhere(found.uuid)])

    def again() -> None:
        files_pacemaker.settle()
        plan_power.refuse_elsewhere(wanted, found, [*_elsewhere(found.uuid)])

    return plan, again


def _others(here: str, said: str) -> list[str]:
    """The other members that may run a guest: those that Pacemaker sees, and those that it has lost and not fenced."""
    nodes = ElementTree.fromstring(said).iterfind("nodes/node")  # noqa: S314 (Pacemaker's own)
    return sorted(
        {node.get("name", "") for node in nodes if "true" in (node.get("online"), node.get("unclean"))} - {here}
    )


def _elsewhere(uuid: str) -> t.Iterator[str]:
    for member in _others(*files_pacemaker.members()):
        try:
            with opened(tls(member)) as connection:
                found = [state for domain, state in states.of_all(connection) if domain.UUIDString() == uuid]
        except Failed as error:
            yield f"{member} does not say whether it runs there: {error}"
            continue
        if found and found[0] in ACTIVE:
            yield f"{member} has it {found[0]}"
