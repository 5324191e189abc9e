"""Guests that an I/O error has paused: libvirt's test driver has none."""

from __future__ import annotations

import typing as t

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import GuestSpec, Power
from ansible_collections.corral.virt.plugins.module_utils._power import libvirt_power, plan_power_steps
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power import power_off

FAILED = [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR]
RUNS = [libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_UNPAUSED]


class Guest:
    """One that is in these states, one after another, and stays in the last."""

    def __init__(self, *states: list[int]) -> None:
        self.states, self.heard = list(states), t.cast("list[str]", [])

    def state(self) -> list[int]:
        """As libvirt tells it."""
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def name(self) -> str:
        """Its name."""
        return "web1"

    def isPersistent(self) -> bool:  # noqa: N802  as libvirt names it
        """It has a definition."""
        return True

    def resume(self) -> None:
        """Do the same again."""
        self.heard.append("resume")

    def destroy(self) -> None:
        """End."""
        self.heard.append("destroy")


def do(guest: Guest, step: plan_power_steps.GuestStep) -> None:
    """Carry it out."""
    libvirt_power.DOERS[type(step)](guest, step)


def test_one_that_fails_again_is_not_resumed() -> None:
    with pytest.raises(
        Failed, match=r"cannot resume web1: .* paused it again; `virsh domblkerror web1` shows which; make"
    ):
        do(Guest(FAILED, FAILED, RUNS, FAILED), plan_power_steps.Resume("web1"))
    do(guest := Guest(FAILED), plan_power_steps.Resume("web1", to_shut_down=True))
    assert guest.heard == ["resume"]


def test_one_with_room_again_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libvirt_power, "_AGAIN_S", 0.2)
    do(guest := Guest(FAILED, FAILED, RUNS), plan_power_steps.Resume("web1"))
    assert guest.heard == ["resume"]


def test_one_that_hears_nothing_is_destroyed_only_when_told_to() -> None:
    guest = Guest(FAILED)
    with pytest.raises(
        Failed, match=r"cannot shut down web1: .* paused it; .*; make .* or set force: true to destroy it"
    ):
        do(guest, plan_power_steps.Shutdown("web1", timeout_s=1))
    assert guest.heard == []
    do(guest, plan_power_steps.Shutdown("web1", timeout_s=1, force=True))
    assert guest.heard == ["destroy"]


def test_one_that_is_to_be_off_need_not_run_first() -> None:
    found = Power("web1", "u", "paused", active=True, moving=False, stopped_itself=True)
    wish = GuestSpec("web1", state="shutdown", wait_timeout_s=7)
    assert power_off(wish, found) == [
        plan_power_steps.Resume("web1", to_shut_down=True),
        plan_power_steps.Shutdown("web1", timeout_s=7, force=wish.force),
    ]
