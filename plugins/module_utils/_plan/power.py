# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide how a guest comes into a state: running, paused, off. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._changes import Change
from ansible_collections.corral.virt.plugins.module_utils._errors import NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._model.domain import FoundGuest, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._plan import steps
from ansible_collections.corral.virt.plugins.module_utils._plan.steps import Step

__all__ = ["check_state", "power_off", "state_change", "state_steps"]


def check_state(wanted: GuestSpec, found: FoundGuest | None, *, moving: bool) -> None:
    """Raise Refused for a guest that is being moved, NotFound for one that is to start anew and is not there."""
    if found is None and wanted.state in ("reset", "rebooted"):
        raise NotFound(
            f"cannot {'reset' if wanted.state == 'reset' else 'reboot'} {wanted.name}: there is no such guest here"
        )
    if found is not None and moving and found.state != "running" and wanted.state != "present":
        raise Refused(
            f"cannot bring {wanted.name} to state {wanted.state}: its migration is in progress or was interrupted; "
            "finish it with virt_migrate (playbook migrate), which checks both hosts"
        )


def state_steps(wanted: GuestSpec, found: FoundGuest | None) -> list[Step]:
    """What brings it into the wanted state; raises Refused."""
    name, state = wanted.name, wanted.state
    now = found.state if found is not None and found.active else "shutdown"
    reboot = steps.Reboot(name, timeout_s=wanted.wait_timeout_s, force=wanted.force, wait=wanted.wait)
    table: dict[tuple[str, str], list[Step]] = {
        ("running", "shutdown"): [steps.Start(name)],
        ("running", "paused"): [steps.Resume(name)],
        ("paused", "shutdown"): [steps.Start(name, paused=True)],
        ("paused", "running"): [steps.Suspend(name)],
        ("rebooted", "shutdown"): [steps.Start(name)],
        ("rebooted", "paused"): [steps.Resume(name), reboot],
        ("rebooted", "running"): [reboot],
    }
    if state == "reset":
        if now == "shutdown":
            raise Refused(f"cannot reset {name}: it is not running; use state: running")
        return [steps.Reset(name)]
    if found is None or now == "shutdown":
        return table.get((state, "shutdown"), [])
    if state == "destroyed":
        return [steps.Destroy(name)]
    if state == "shutdown":
        return power_off(wanted, found, wait=wanted.wait)
    if state != "present" and now == "crashed":
        return [*power_off(wanted, found), *table[state, "shutdown"]]
    return table.get((state, now), [])


def power_off(wanted: GuestSpec, found: FoundGuest, *, wait: bool = True) -> list[Step]:
    """A paused guest would not hear that it shall shut down.

    One that crashed is kept (on_crash) because somebody wants to look at it.
    """
    if found.state == "crashed":
        if not wanted.force:
            raise Refused(
                f"cannot bring {wanted.name} to state {wanted.state}: it crashed, and its on_crash preserves it for "
                "inspection; set force: true to discard it"
            )
        return [steps.Destroy(wanted.name)]
    wake: list[Step] = [steps.Resume(wanted.name)] if found.state == "paused" else []
    return [*wake, steps.Shutdown(wanted.name, timeout_s=wanted.wait_timeout_s, force=wanted.force, wait=wait)]


def state_change(wanted: GuestSpec, found: FoundGuest | None, made: t.Sequence[Step]) -> list[Change]:
    """How the steps show in a diff."""
    after = {
        steps.Start: "paused" if wanted.state == "paused" else "running",
        steps.Resume: "running",
        steps.Suspend: "paused",
        steps.Destroy: "shutdown",
        steps.Shutdown: "shutdown",
    }
    told = [after[type(step)] for step in made if type(step) in after]
    before = found.state if found else "absent"
    if not told:
        return [] if found else [Change("state", "absent", "shutdown")]
    return [Change("state", before, told[-1])] if told[-1] != before else []
