"""What is planned of an object by table, whatever its kind."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._network.model_network import NETWORK_KIND
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Edited, Entry, Found, Spec
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import (
    Case,
    Define,
    Live,
    NounPlan,
    Update,
    noted,
    present,
)

OFF = Found("u", persistent=True, autostart=False, xml="<network/>")
ACTIVE = dataclasses.replace(OFF, live_xml="<network/>")
PASSING = dataclasses.replace(ACTIVE, persistent=False)
LAB = NETWORK_KIND.ref("lab")
HOST = Change("hosts[a]", "1", "2")


def planned(found: Found | None, *stored: Change, state: str = "present", running: Edited | None = None) -> NounPlan:
    """The plan for it; entries of `hosts` reach what runs."""
    case = Case(Spec("lab", state), found, None, Edited("<new/>", tuple(stored)), running)
    return present(NETWORK_KIND, case, {"hosts[]": Live("host")}, "as nat")


def texts(plan: NounPlan) -> list[str]:
    """The steps as they are told."""
    return [str(step) for step in plan.steps]


@pytest.mark.parametrize(
    ("found", "state", "steps"),
    [
        (ACTIVE, "present", []),
        (OFF, "present", []),
        (None, "present", ["define network lab as nat"]),
        (OFF, "active", ["start network lab"]),
        (ACTIVE, "inactive", ["stop network lab"]),
        (None, "active", ["define network lab as nat", "set autostart of network lab on", "start network lab"]),
        (PASSING, "present", ["define network lab (kept when it stops)"]),
    ],
)
def test_a_state_that_nobody_asks_for_stays(found: Found | None, state: str, steps: list[str]) -> None:
    assert texts(planned(found, state=state)) == steps


@pytest.mark.parametrize("count", [1, 4, 5, 6])
def test_a_definition_names_four_of_its_changes(count: int) -> None:
    changes = [Change(f"option{number}", 1, 2) for number in range(count)]
    names = ", ".join(f"option{number}" for number in range(min(count, 4)))
    more = f" and {count - 4} more" if count > 4 else ""
    assert texts(planned(ACTIVE, *changes)) == [f"define network lab ({names}{more})"]


def test_what_only_runs_otherwise_is_mended_and_told_once() -> None:
    entry = {"hosts[a]": Entry(True, "<host/>", "<host id='a'/>")}
    running = Edited("<live/>", (HOST,), entries=entry)
    alone, both = planned(ACTIVE, running=running), planned(ACTIVE, HOST, running=running)
    updates = ["delete hosts[a] of running network lab", "add hosts[a] of running network lab"]
    assert (texts(alone), list(alone.changes)) == (updates, [HOST])
    assert (texts(both), list(both.changes)) == ([*updates, "define network lab (hosts[a])"], [HOST])


def test_what_waits_for_a_restart_is_no_change() -> None:
    change = Change("mtu", 1500, 9000)
    plan = planned(ACTIVE, running=Edited("<live/>", (change,)))
    assert (texts(plan), plan.changes, list(plan.pending)) == ([], (), [str(change)])


def test_a_step_says_what_it_does_without_its_document() -> None:
    defined, updated = Define(LAB, "<a/>"), Update(LAB, "add", "S", "hosts[a]", 0, "<a/>")
    assert str(defined) == "define network lab" and "<a/>" not in f"{defined!r} {updated!r}"


def test_a_plan_may_be_empty() -> None:
    assert (NounPlan().steps, NounPlan().changes, NounPlan().pending, NounPlan().notes) == ((), (), (), ())


@pytest.mark.parametrize(
    ("before", "now", "notes"),
    [
        ([], [], []),
        (["a", "x: b"], [], ["a", "x: b"]),
        (["a", "x: b"], ["x: b", "a"], ["a", "x: b"]),
        (["x: b", "a"], ["x: b, c"], ["a", "x: b, c"]),
        (["x: b", "x: c"], ["x: c", "x: d"], ["x: c", "x: d"]),
        (["a"], ["b", "y: c"], ["a", "b", "y: c"]),
    ],
)
def test_a_later_note_replaces_the_one_that_names_others(before: list[str], now: list[str], notes: list[str]) -> None:
    assert noted(before, now) == tuple(notes)
