"""Measures against a migration that does not converge, as tables: which one, at which pass or second, and when it is
given up.
"""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import Tuning
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_convergence import ConvergencePolicy, can_work

NO_LIMIT = 10**6


def measures(tuning: dict[str, t.Any], remaining: t.Sequence[int], *, seconds_each: float = 1) -> str:
    """Measures by pass, as `pass:verb value`."""
    pilot, taken = ConvergencePolicy(Tuning(**{"timeout_s": NO_LIMIT, **tuning})), []
    for number, left in enumerate(remaining, 1):
        for action in pilot.look(number * seconds_each, {"memory_iteration": number, "memory_remaining": left}):
            taken.append(f"{number}:{action.verb}{action.value or ''}")
            assert action.why or number == 1, "a measure tells why it is taken"
    return " ".join(taken)


STALLED = [100] * 14
PASSES: list[tuple[dict[str, t.Any], list[int], str]] = [
    ({}, STALLED, ""),
    ({"max_downtime_ms": 250}, STALLED, "1:downtime250"),
    (
        {"schedule": "minimal_downtime"},
        STALLED,
        "1:downtime100 2:downtime150 3:downtime200 4:downtime300 5:downtime400 6:downtime500 8:abort",
    ),
    (
        {"schedule": "suspend_if_needed"},
        STALLED,
        "1:downtime100 2:downtime150 3:downtime200 4:downtime300 5:downtime400 6:downtime500 8:downtime5000 10:abort",
    ),
    ({"schedule": "postcopy"}, STALLED, "1:downtime100 2:downtime150 3:downtime200 5:postcopy 7:abort"),
    (
        {"schedule": "very_large"},
        STALLED,
        "1:downtime300 2:downtime400 3:downtime500 4:downtime700 5:downtime1000 6:downtime1500 8:downtime5000 10:abort",
    ),
    ({"schedule": "postcopy", "max_downtime_ms": 50}, [100, 100], "1:downtime50 2:downtime150"),
    # Only a pass that leaves as much as the best before it counts as stalled.
    ({"schedule": "postcopy"}, [100, 99, 98, 97, 96], "1:downtime100"),
    ({"schedule": "postcopy"}, [100, 50, 60, 55, 50, 49], "1:downtime100 3:downtime150 4:downtime200"),
    ({"schedule": "postcopy"}, [100, 120, 110, 90], "1:downtime100 2:downtime150 3:downtime200"),
    ({"schedule": "postcopy"}, [1, 0], "1:downtime100"),
    # Post-copy that was allowed follows after the first pass, a pass, or a time.
    ({"postcopy": True}, [9, 8, 7, 6], "2:postcopy"),
    ({"postcopy": True, "postcopy_after_passes": 1}, [9, 8, 7, 6], "2:postcopy"),
    ({"postcopy": True, "postcopy_after_passes": 2}, [9, 8, 7, 6], "3:postcopy"),
    ({"postcopy": True, "postcopy_after_s": 3}, [9, 8, 7, 6], "3:postcopy"),
    ({"postcopy": True, "postcopy_after_s": 4, "postcopy_after_passes": 2}, [9, 8, 7, 6], "3:postcopy"),
    ({"postcopy": False, "postcopy_after_s": 1, "postcopy_after_passes": 1}, [9, 8, 7, 6], ""),
    ({"postcopy": True, "schedule": "minimal_downtime"}, [9, 8, 7, 6], "1:downtime100"),
    ({"postcopy": True, "schedule": "minimal_downtime", "postcopy_after_s": 2}, [9, 8, 7], "1:downtime100 2:postcopy"),
    # The deadline, the same again, the end.
    ({"timeout_s": 3}, [9, 8], ""),
    ({"timeout_s": 3}, [9, 8, 7], "3:abort"),
    ({"timeout_s": 3, "timeout_action": "suspend"}, [*range(14, 0, -1)], "3:suspend 6:abort"),
    ({"timeout_s": 3, "timeout_action": "postcopy"}, [*range(14, 0, -1)], "3:postcopy 6:abort"),
]


def test_measures_follow_passes_and_seconds() -> None:
    wrong = [(tuning, remaining, measures(tuning, remaining), expected) for tuning, remaining, expected in PASSES]
    assert not [case for case in wrong if case[2] != case[3]]


def test_one_look_takes_what_several_passes_ask_for() -> None:
    pilot = ConvergencePolicy(Tuning(schedule="postcopy"))
    assert pilot.look(0, {}) == []
    assert [action.value for action in pilot.look(1, {"memory_iteration": 1, "memory_remaining": 5})] == [100]
    assert pilot.look(2, {"memory_iteration": 1, "memory_remaining": 900}) == [], "the same pass counts once"
    assert pilot.look(3, {"memory_iteration": 2, "memory_remaining": 4}) == []
    assert [action.verb for action in pilot.look(4, {"memory_iteration": 9, "memory_remaining": 4})] == ["downtime"]
    assert pilot.look(5, {}) == []


def test_the_first_downtime_needs_no_reason() -> None:
    (action,) = ConvergencePolicy(Tuning(max_downtime_ms=250)).look(0, {"memory_iteration": 1})
    assert action == ("downtime", 250, "")


def test_post_copy_waits_for_a_pass() -> None:
    pilot = ConvergencePolicy(Tuning(postcopy=True, postcopy_after_s=1))
    assert pilot.look(5, {"memory_iteration": 0, "memory_remaining": 5}) == []
    assert pilot.look(5, {}) == []
    assert [action.verb for action in pilot.look(6, {"memory_iteration": 1, "memory_remaining": 5})] == ["postcopy"]


def test_the_deadline_holds_without_figures() -> None:
    pilot = ConvergencePolicy(Tuning(timeout_s=10, stall_timeout_s=1000, timeout_action="suspend"))
    found = [
        [f"{action.verb} {action.why}" for action in pilot.look(second, {})] for second in (9.9, 10, 19.9, 20, 30, 500)
    ]
    result = "it took longer than timeout, {} s"
    assert found == [[], ["suspend " + result.format(10)], [], ["abort " + result.format(20)], [], []]


def test_what_can_work_is_told() -> None:
    cases: list[tuple[int, dict[str, t.Any], list[str]]] = [
        (0, {}, []),
        (0, {"bandwidth_mib_s": 1}, []),
        (5, {}, ["5 MiB", "only a faster link"]),
        (80, {"bandwidth_mib_s": 100}, ["80 MiB", "100 MiB/s: it converges on its own"]),
        (81, {"bandwidth_mib_s": 100}, ["only with auto_converge"]),
        (81, {"bandwidth_mib_s": 100, "postcopy": True}, ["only with auto_converge, postcopy"]),
        (81, {"bandwidth_mib_s": 100, "auto_converge": False, "postcopy": True}, [": it converges only with postcopy"]),
        (
            81,
            {"bandwidth_mib_s": 100, "auto_converge": False, "timeout_action": "suspend"},
            [": it converges only with suspend"],
        ),
        (
            81,
            {"bandwidth_mib_s": 100, "auto_converge": False, "schedule": "suspend_if_needed"},
            [": it converges only with suspend"],
        ),
        (81, {"bandwidth_mib_s": 100, "auto_converge": False}, ["81 MiB", "100 MiB/s", "it will not converge"]),
        (
            81,
            {"bandwidth_mib_s": 100, "auto_converge": False, "schedule": "minimal_downtime"},
            ["it will not converge"],
        ),
    ]
    found = [(can_work(dirty, Tuning(**tuning)), words) for dirty, tuning, words in cases]
    assert not [
        (text, words) for text, words in found if not all(word in text for word in words) or (text and not words)
    ]
