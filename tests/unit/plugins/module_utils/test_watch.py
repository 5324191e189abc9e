"""What is done about a migration on its way, tick by tick."""

from __future__ import annotations

import pytest

from ansible_collections.corral.virt.plugins.module_utils._model.move import Tuning
from ansible_collections.corral.virt.plugins.module_utils._plan.watch import Watch


def test_figures_are_the_highest_that_were_seen() -> None:
    watch = Watch(Tuning())
    for passes, throttle in ((1, 0), (3, 40), (2, 20)):
        watch.tick(1, {"memory_iteration": passes, "auto_converge_throttle": throttle}, {}, broken="", answers=True)
    assert watch.figures() == {"passes": 3, "throttle_percent": 40, "measures": []}


def test_disks_stay_as_they_were_last_seen() -> None:
    watch = Watch(Tuning())
    watch.tick(1, {}, {"vda": (1, 9)}, broken="", answers=True)
    watch.tick(2, {}, {"vda": (9, 9)}, broken="", answers=True)
    watch.tick(3, {}, {}, broken="", answers=True)
    assert watch.disks == {"vda": (9, 9)}


def test_what_is_broken_ends_it_and_nothing_follows() -> None:
    watch = Watch(Tuning(max_downtime_ms=300))
    actions = watch.tick(1, {"memory_iteration": 1}, {}, broken="hyper2 no longer answers", answers=False)
    assert [action.verb for action in actions] == ["abort"]
    assert watch.why == "hyper2 no longer answers"
    assert watch.figures()["measures"] == ["abort (hyper2 no longer answers)"]


def test_measures_are_told_with_their_value_and_reason() -> None:
    watch = Watch(Tuning(max_downtime_ms=300, timeout_s=10, timeout_action="suspend"))
    assert [action.verb for action in watch.tick(1, {"memory_iteration": 1}, {}, broken="", answers=True)] == [
        "downtime"
    ]
    assert [action.verb for action in watch.tick(10, {"memory_iteration": 1}, {}, broken="", answers=False)] == [
        "suspend"
    ]
    assert (watch.suspends, watch.why) == (True, "")
    watch.tick(11, {"memory_iteration": 1}, {}, broken="", answers=False)
    assert vars(watch)["suspends"], "it stays its doing"
    assert [action.verb for action in watch.tick(20, {"memory_iteration": 1}, {}, broken="", answers=False)] == [
        "abort"
    ]
    result = watch.figures()["measures"]
    assert result == [
        "downtime 300",
        "suspend (it took longer than timeout, 10 s)",
        "abort (it took longer than timeout, 20 s)",
    ]
    assert watch.why == "it took longer than timeout, 20 s"


def test_a_schedule_that_is_at_its_end_says_why() -> None:
    watch = Watch(Tuning(schedule="postcopy"))
    verbs = []
    for number in range(1, 20):
        actions = watch.tick(number, {"memory_iteration": number, "memory_remaining": 5}, {}, broken="", answers=False)
        verbs += [action.verb for action in actions]
        if watch.why:
            break
    assert verbs == ["downtime", "downtime", "downtime", "postcopy", "abort"]
    assert "passes made no progress" in watch.why


def test_nothing_is_done_and_nothing_counted_before_the_first_figures() -> None:
    watch = Watch(Tuning())
    assert watch.tick(1, {}, {}, broken="", answers=True) == []
    assert (watch.figures(), watch.disks, watch.suspends) == (
        {"passes": 0, "throttle_percent": 0, "measures": []},
        {},
        False,
    )


def test_only_a_suspension_is_its_own_doing() -> None:
    watch = Watch(Tuning(max_downtime_ms=300))
    assert [action.verb for action in watch.tick(1, {"memory_iteration": 1}, {}, broken="", answers=True)] == [
        "downtime"
    ]
    assert not watch.suspends


@pytest.mark.parametrize(("answers", "ends"), [(True, True), (False, False)])
def test_it_counts_as_stalled_only_while_the_destination_answers(answers: bool, ends: bool) -> None:
    """What the destination does not answer, another watch ends."""
    watch = Watch(Tuning(stall_timeout_s=5))
    verbs = [
        action.verb
        for second in range(30)
        for action in watch.tick(second, {"memory_iteration": 1, "data_processed": 7}, {}, broken="", answers=answers)
    ]
    assert ("abort" in verbs) == ends
