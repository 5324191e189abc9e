# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides how a guest gets into a state: running, paused, off. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import step
from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.problems import WHERE_IT_IS
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest, GuestSpec, Power
from ansible_collections.corral.virt.plugins.module_utils._power import plan_power_steps
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import GuestStep, Resource

Found = t.Union[FoundGuest, Power]

_MOST_KEPT_H = 8760  # a year


def plan(wanted: GuestSpec, found: Power | None) -> step.Plan[GuestStep]:
    """Steps of a guest that must exist; raises NotFound and Refused."""
    if found is None:
        which = f" with UUID {wanted.uuid}" if wanted.uuid else ""
        raise NotFound(
            f"cannot bring {wanted.name} to state {wanted.state}: there is no such guest{which} here; {WHERE_IT_IS}"
        )
    if found.name != wanted.name:
        raise Refused(
            f"cannot bring {wanted.name} to state {wanted.state}: the guest with UUID {found.uuid} is called "
            f"{found.name} now; set name: {found.name}, or omit uuid"
        )
    check_state(wanted, found, moving=found.moving)
    made = state_steps(wanted, found)
    return step.Plan(tuple(made), tuple(state_change(found, made)))


def waiting_problems(guest: str, *, wait: bool, force: bool, timeout_s: int | None) -> t.Iterator[str]:
    """Problems of the options for waiting."""
    if timeout_s is not None and timeout_s < 1:
        yield f"wait_timeout of {guest}: must be at least 1 s, not {timeout_s}"
    if force and not wait:
        yield f"wait of {guest}: force requires waiting; omit one of wait: false and force: true"


def _keeping_problems(guest: str, hours: int, *, removes: bool) -> t.Iterator[str]:
    """Problems of the option for keeping removed disks."""
    if not 0 <= hours <= _MOST_KEPT_H:
        yield f"keep_removed_h of {guest}: must be between 0 and {_MOST_KEPT_H} hours, not {hours}"
    elif hours and not removes:
        yield f"keep_removed_h of {guest}: requires remove_storage: true; without it no disk is removed"


def state_problems(params: t.Mapping[str, t.Any], guest: str) -> list[str]:
    """Problems of the options for a guest's state."""
    problems = [
        f"{option} of {guest}: profiles are merged on the controller; run the module as a task or with ansible -m"
        for option in ("nic_profile", "disk_profile")
        if params.get(option)
    ]
    waits = params.get("wait_for_ip") not in (None, "none")
    wait, timeout_s = params.get("wait") is not False, params.get("wait_timeout")
    problems += waiting_problems(guest, wait=wait, force=bool(params.get("force")), timeout_s=timeout_s)
    if waits and not wait:
        problems.append(f"wait of {guest}: wait_for_ip requires waiting; omit one of wait: false and wait_for_ip")
    if waits and params["state"] not in ("running", "rebooted"):
        problems.append(f"wait_for_ip of {guest}: it requires state: running or state: rebooted, not {params['state']}")
    problems += _keeping_problems(guest, params.get("keep_removed_h") or 0, removes=bool(params.get("remove_storage")))
    if params.get("force_off") and params["state"] != "absent":
        problems.append(f"force_off of {guest}: it requires state: absent; state: destroyed powers a guest off")
    if params.get("apply") == "live" and params.get("allow_restart"):
        problems.append(
            f"apply of {guest}: live changes only the running guest, which a restart would undo; choose one of apply "
            "and allow_restart"
        )
    return problems


def check_state(wanted: GuestSpec, found: Found | None, *, moving: bool) -> None:
    """Raises Refused for a guest that is migrating, NotFound for a missing one that is to reset or reboot."""
    if found is None and wanted.state in ("reset", "rebooted"):
        verb = "reset" if wanted.state == "reset" else "reboot"
        raise NotFound(f"cannot {verb} {wanted.name}: there is no such guest here; {WHERE_IT_IS}")
    if found is not None and moving and found.state != "running" and wanted.state != "present":
        raise Refused(
            f"cannot bring {wanted.name} to state {wanted.state}: its migration is in progress or was interrupted; "
            "finish it with virt_migrate (playbook migrate), which checks both hosts"
        )


def state_steps(wanted: GuestSpec, found: Found | None) -> list[GuestStep]:
    """The steps to the wanted state; raises Refused."""
    name, state = wanted.name, wanted.state
    live = found if found is not None and found.active else None
    now = live.state if live else "shutdown"
    reboot = plan_power_steps.Reboot(name, timeout_s=wanted.wait_timeout_s, force=wanted.force, wait=wanted.wait)
    table: dict[tuple[str, str], list[GuestStep]] = {
        ("running", "shutdown"): [plan_power_steps.Start(name)],
        ("running", "paused"): [plan_power_steps.Resume(name)],
        ("paused", "shutdown"): [plan_power_steps.Start(name, paused=True)],
        ("paused", "running"): [plan_power_steps.Suspend(name)],
        ("rebooted", "shutdown"): [plan_power_steps.Start(name)],
        ("rebooted", "paused"): [plan_power_steps.Resume(name), reboot],
        ("rebooted", "running"): [reboot],
    }
    if state == "reset":
        if live is None:
            raise Refused(f"cannot reset {name}: it is not running; use state: running")
        return [plan_power_steps.Reset(name)]
    if live is None:
        return table.get((state, "shutdown"), [])
    if state == "destroyed":
        return [plan_power_steps.Destroy(name)]
    if state == "shutdown":
        return power_off(wanted, live, wait=wanted.wait)
    if state != "present" and now == "crashed":
        return [*power_off(wanted, live), *table[state, "shutdown"]]
    return table.get((state, now), [])


_ROLES = {
    "running": "Started",
    "paused": "Started",
    "rebooted": "Started",
    "shutdown": "Stopped",
    "destroyed": "Stopped",
    "absent": plan_power_steps.REMOVED,
}
_HELD = (plan_power_steps.Start, plan_power_steps.Shutdown, plan_power_steps.Destroy, plan_power_steps.Entrust)

P = t.TypeVar("P", bound="step.Plan[t.Any]")


def entrusted(plan: P, wanted: GuestSpec, resource: Resource | None, undefines: tuple[type, ...] = ()) -> P:
    """The plan for a guest that may be a resource of Pacemaker: that keeps it in the state, or forgets it when it is
    undefined, by a step of one of these classes.

    Raises Refused for a guest to be removed that the role would have started again.
    """
    if resource is None:
        return plan
    if wanted.state == "absent" and resource.listed:
        raise Refused(
            f"cannot remove {wanted.name}: cluster_guests lists it, and the role corral.virt.cluster would have it "
            "started again; remove it there, run the role, and run this again"
        )
    role = _ROLES.get(wanted.state, resource.role)
    if role == resource.role:
        return plan
    if any(isinstance(one, plan_power_steps.Shutdown) and not (one.wait or one.force) for one in plan.steps):
        raise Refused(
            f"cannot ask {wanted.name} to shut down without waiting for it: Pacemaker runs it, and would switch it off "
            "after a while; set wait: true, or force: true"
        )
    entrust = plan_power_steps.Entrust(wanted.name, resource.name, role)
    # From its undefinition on it is to be forgotten, whatever becomes of its disks.
    last = next((at for at, one in enumerate(plan.steps, 1) if isinstance(one, undefines)), len(plan.steps))
    return dataclasses.replace(
        plan,
        steps=(*plan.steps[:last], entrust, *plan.steps[last:]),
        changes=(*plan.changes, Change("target-role", resource.role, role)),
    )


def refuse_elsewhere(wanted: GuestSpec, resource: Resource, elsewhere: t.Sequence[str]) -> None:
    """Raise Refused for a guest that is to be removed and may run `elsewhere`: what the members say."""
    if elsewhere:
        raise Refused(
            f"cannot remove {wanted.name}: Pacemaker runs it as {resource.name}, it is off here, and "
            f"{', and '.join(elsewhere)}; remove it on the host that runs it"
        )


def holds(steps: t.Iterable[object]) -> bool:
    """True if Pacemaker must look away meanwhile: the guest stops or starts."""
    return any(isinstance(one, _HELD) for one in steps)


def power_off(wanted: GuestSpec, found: Found, *, wait: bool = True) -> list[GuestStep]:
    """The steps that power a guest off. A paused guest is resumed first, to receive the request.

    A crashed guest is preserved (on_crash) for inspection: raises Refused without force.
    """
    if found.state == "crashed":
        if not wanted.force:
            raise Refused(
                f"cannot bring {wanted.name} to state {wanted.state}: it crashed, and its on_crash preserves it for "
                "inspection; set force: true to discard it"
            )
        return [plan_power_steps.Destroy(wanted.name)]
    wake: list[GuestStep] = [plan_power_steps.Resume(wanted.name, to_shut_down=True)] if found.state == "paused" else []
    shutdown = plan_power_steps.Shutdown(
        wanted.name,
        timeout_s=wanted.wait_timeout_s,
        force=wanted.force,
        wait=wait,
        suspends=bool(wake) and wanted.state != "running" and not found.stopped_itself,
    )
    return [*wake, shutdown]


def state_change(found: Found | None, made: t.Sequence[GuestStep]) -> list[Change]:
    """The changes of state for a diff."""
    after = {
        plan_power_steps.Start: "running",
        plan_power_steps.Resume: "running",
        plan_power_steps.Suspend: "paused",
        plan_power_steps.Destroy: "shutdown",
        plan_power_steps.Shutdown: "shutdown",
    }
    states = [
        "paused" if isinstance(step, plan_power_steps.Start) and step.paused else after[type(step)]
        for step in made
        if type(step) in after
    ]
    before = found.state if found else "absent"
    if not states:
        return [] if found else [Change("state", "absent", "shutdown")]
    return [Change("state", before, states[-1])] if states[-1] != before else []
