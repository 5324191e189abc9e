"""What two observed ends of a migration mean: nothing is ever done that could make two of one guest, or none."""

from __future__ import annotations

import itertools

import pytest

from ansible_collections.corral.virt.plugins.module_utils._plan.migrate import judge

STATES = ["running", "paused", "shutdown", "crashed", "absent", "unreachable", "unknown"]
DEAD = {"shutdown", "crashed", "absent"}
ENDS = list(itertools.product(STATES, STATES, [False, True]))


@pytest.mark.parametrize(("source", "dest", "was_paused"), ENDS)
def test_no_pair_of_states_leads_to_harm(source: str, dest: str, was_paused: bool) -> None:
    verdict = judge(source, dest, was_paused=was_paused)
    assert verdict.meaning
    if verdict.action in ("resume_dest", "resume_source"):
        resumed, other = (dest, source) if verdict.action == "resume_dest" else (source, dest)
        assert resumed == "paused" and other in DEAD, "resumed while the other may run"
        assert not was_paused, "resumed what its owner had paused"
    elif verdict.action == "clean_dest":
        assert dest != "running" and dest not in ("unreachable", "unknown"), "discarded what may run"
        assert source in ("running", "paused"), "discarded the last copy"
        assert dest in DEAD or source == "running", "discarded a paused copy while the source does not run"
    elif verdict.action == "done":
        assert source in DEAD and dest in ("running", "paused")
    elif verdict.action == "rolled_back":
        assert source in ("running", "paused") and dest == "absent"
    else:
        assert verdict.action == "nothing"


@pytest.mark.parametrize(
    ("source", "dest", "was_paused", "action"),
    [
        ("absent", "paused", False, "resume_dest"),
        ("absent", "paused", True, "done"),
        ("absent", "running", False, "done"),
        ("running", "absent", False, "rolled_back"),
        ("running", "paused", False, "clean_dest"),
        ("running", "shutdown", False, "clean_dest"),
        ("running", "crashed", False, "clean_dest"),
        ("paused", "absent", False, "resume_source"),
        ("paused", "absent", True, "rolled_back"),
        ("paused", "shutdown", False, "clean_dest"),
        ("paused", "paused", False, "nothing"),
        ("running", "running", False, "nothing"),
        ("absent", "absent", False, "nothing"),
        ("unreachable", "running", False, "nothing"),
        ("paused", "unreachable", False, "nothing"),
    ],
)
def test_judge(source: str, dest: str, was_paused: bool, action: str) -> None:
    assert judge(source, dest, was_paused=was_paused).action == action
