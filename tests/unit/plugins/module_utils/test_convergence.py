"""A migration that does not come to its end, pass by pass."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import Tuning
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_convergence import ConvergencePolicy, can_work


def verbs(tuning: Tuning, remaining: list[int], *, seconds_each: float = 1) -> list[str]:
    """What is done over passes that leave so much."""
    pilot, taken = ConvergencePolicy(tuning), []
    for number, left in enumerate(remaining, 1):
        figures = {"memory_iteration": number, "memory_remaining": left}
        taken += [
            f"{action.verb} {action.value}".removesuffix(" 0") for action in pilot.look(number * seconds_each, figures)
        ]
    return taken


def test_a_guest_that_converges_is_left_alone() -> None:
    assert verbs(Tuning(), [900, 300, 100, 10]) == []
    assert verbs(Tuning(schedule="minimal_downtime"), [900, 300, 100, 10]) == ["downtime 100"]


def test_stalled_passes_are_answered_step_by_step() -> None:
    stalled = [100] * 9
    assert verbs(Tuning(schedule="minimal_downtime"), stalled) == [
        "downtime 100", "downtime 150", "downtime 200", "downtime 300", "downtime 400", "downtime 500", "abort",
    ]  # fmt: skip
    assert verbs(Tuning(schedule="postcopy"), stalled) == [
        "downtime 100",
        "downtime 150",
        "downtime 200",
        "postcopy",
        "abort",
    ]


def test_suspend_allows_a_long_pause_before_it_gives_up() -> None:
    assert verbs(Tuning(schedule="suspend_if_needed"), [100] * 12)[-2:] == ["downtime 5000", "abort"]


def test_a_pass_that_gets_nearer_does_not_count() -> None:
    assert verbs(Tuning(schedule="postcopy"), [100, 90, 80, 80, 70, 70]) == [
        "downtime 100",
        "downtime 150",
        "downtime 200",
    ]


@pytest.mark.parametrize(
    ("told", "first"),
    [({}, 2), ({"postcopy_after_passes": 3}, 4), ({"postcopy_after_s": 5}, 5)],
)
def test_postcopy_follows_after_a_pass_or_a_time(told: dict[str, t.Any], first: int) -> None:
    tuning = Tuning(postcopy=True, **told)
    assert verbs(tuning, [9] * (first - 1)) == []
    assert verbs(tuning, [9] * (first + 3)) == ["postcopy"]


@pytest.mark.parametrize("action", ["abort", "suspend", "postcopy"])
def test_at_the_deadline_what_was_chosen_and_later_the_end(action: str) -> None:
    tuning = Tuning(timeout_s=3, timeout_action=action)
    assert verbs(tuning, [9, 8]) == []
    assert verbs(tuning, [9, 8, 7, 6]) == [action]
    assert verbs(tuning, list(range(12, 0, -1))) == [action, "abort"]


def test_the_rate_of_writing_tells_what_can_work() -> None:
    assert not can_work(0, Tuning(bandwidth_mib_s=100))
    assert "on its own" in can_work(10, Tuning(bandwidth_mib_s=100))
    assert "converges only with auto_converge" in can_work(90, Tuning(bandwidth_mib_s=100))
    assert "will not converge" in can_work(90, Tuning(bandwidth_mib_s=100, auto_converge=False))


def quiet(told: list[tuple[int, bool]], **tuning: t.Any) -> list[str]:
    """What is done over seconds with so many bytes sent, and the destination answering or not."""
    pilot = ConvergencePolicy(Tuning(stall_timeout_s=3, **tuning))
    looks = [
        pilot.look(second, {"data_processed": sent}, answers=answers) for second, (sent, answers) in enumerate(told)
    ]
    return [action.verb for actions in looks for action in actions]


def test_a_copy_that_stalls_while_both_hosts_answer_is_ended() -> None:
    assert quiet([(5, True)] * 4) == ["abort"]
    assert quiet([(5, True)] * 3) == []
    assert quiet([(second, True) for second in range(20)]) == [], "slow is not stalled"
    assert quiet([(5, True), (5, True), (5, False), (5, True), (5, True), (5, True)]) == ["abort"], (
        "silence does not count"
    )
    assert quiet([(5, False)] * 9) == []


def test_a_copy_that_stalls_in_postcopy_waits_for_the_network() -> None:
    pilot = ConvergencePolicy(Tuning(stall_timeout_s=3, postcopy=True))
    taken = [pilot.look(second, {"data_processed": 5, "memory_iteration": 2}) for second in range(9)]
    assert [action.verb for actions in taken for action in actions] == ["postcopy"]


def test_a_copy_of_which_libvirt_has_no_figures_stalls_too() -> None:
    for answers, verbs in ((True, [[], [], [], ["abort"], [], []]), (False, [[]] * 6)):
        pilot = ConvergencePolicy(Tuning(stall_timeout_s=3))
        assert [[action.verb for action in pilot.look(second, {}, answers=answers)] for second in range(6)] == verbs


STALLED = (
    "nothing was sent for 3 s although both hosts answer; check that the path between the hosts passes large packets "
    "(MTU) and ports 49152-49215"
)
# Seconds, and libvirt's figures then; when the copy is ended, if it is.
LOOKS: dict[str, tuple[list[tuple[float, dict[str, int]]], float | None]] = {
    "nothing more is sent": ([(1, {"data_processed": 5}), (3, {"data_processed": 5}), (4, {"data_processed": 5})], 4),
    "the first byte is sent late": ([(5, {"data_processed": 1})], None),
    "nothing is sent at first": ([(1, {}), (2, {}), (3, {})], 3),
    "the first byte is sent after a while": (
        [(0, {"memory_total": 1}), (2, {"data_processed": 1}), (4, {"data_processed": 1})],
        None,
    ),
    "there are no figures any more": ([(1, {"data_processed": 5}), (2, {}), (4, {})], 4),
}


@pytest.mark.parametrize("case", LOOKS)
def test_a_copy_that_stalls_is_ended_with_a_reason(case: str) -> None:
    looks, ended = LOOKS[case]
    pilot = ConvergencePolicy(Tuning(stall_timeout_s=3))
    taken = [(second, action) for second, figures in looks for action in pilot.look(second, figures)]
    assert [(second, tuple(action)) for second, action in taken] == (
        [(ended, ("abort", 0, STALLED))] if ended is not None else []
    )


@pytest.mark.parametrize(
    "tuning",
    [
        {"schedule": "postcopy"},
        {"timeout_action": "postcopy", "timeout_s": 5},
        {"postcopy": True, "postcopy_after_s": 5},
    ],
    ids=str,
)
def test_nothing_ends_a_copy_that_stalls_after_any_switch_to_postcopy(tuning: dict[str, t.Any]) -> None:
    pilot = ConvergencePolicy(Tuning(**{"stall_timeout_s": 3, "timeout_s": 1000, **tuning}))
    verbs = []
    for second in range(1, 10):
        sent = {"memory_iteration": min(second, 5), "memory_remaining": 100, "data_processed": min(second, 5)}
        verbs += [action.verb for action in pilot.look(second, sent)]
    assert [verb for verb in verbs if verb != "downtime"] == ["postcopy"]
