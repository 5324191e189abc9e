"""A wait for a login, with a clock of its own."""

from __future__ import annotations

import time
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.action import virt_ready


def test_a_guest_that_stays_paused_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration pauses it for less."""
    clock, states = (
        0.0,
        {0: "running", 20: "paused", 70: "paused", 75: "running", 90: "paused", 145: "paused", 155: "paused"},
    )
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    wait = virt_ready._Wait(t.cast(t.Any, None), {"name": "web1", "hypervisor": "h1", "timeout": 600}, {})
    told = {}
    for clock, state in states.items():
        monkeypatch.setattr(wait, "_asked", lambda state=state: {"domains": [{"state": state, "observed": {}}]})
        wait._looked_s = -1000.0
        told[clock] = wait.problem("refused")
    assert [when for when, problem in told.items() if problem] == [155]
    assert (
        "it is paused there" in told[155]
        and "resume it: ansible-playbook corral.virt.resume -e guest=web1" in told[155]
    )
