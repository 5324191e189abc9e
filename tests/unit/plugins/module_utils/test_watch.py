"""What is done about a migration on its way, tick by tick."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import (
    COPY,
    DELTA,
    FULL,
    DiskMove,
    Tuning,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_convergence import (
    Watch,
    has_lagging_clock,
    progress,
    sent_bytes,
)


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


DISKS = {"disk_processed": 5, "disk_total": 10}
MEMORY = {"memory_total": 100, "memory_remaining": 30}


@pytest.mark.parametrize(
    ("figures", "disks", "expected"),
    [
        ({}, {}, None),
        ({"memory_remaining": 30}, {}, None),
        (DISKS, {}, ("copying disks", 5, 10, "")),
        (DISKS, {"vda": (5, 10)}, ("copying disks", 5, 10, "")),
        (DISKS, {"vda": (1, 3), "vdb": (4, 4), "vdc": (0, 0)}, ("copying disks", 5, 10, "vda 33 %, vdb 100 %")),
        (MEMORY, {}, ("memory, pass 1", 70, 100, "")),
        ({**MEMORY, **DISKS, "memory_iteration": 3}, {}, ("memory, pass 3", 70, 100, "")),
        ({"memory_total": 100, "downtime": 250}, {}, ("memory, pass 1", 100, 100, "expected downtime 250 ms")),
    ],
)
def test_what_is_shown(
    figures: dict[str, t.Any], disks: dict[str, tuple[int, int]], expected: tuple[str, int, int, str] | None
) -> None:
    assert progress(figures, disks) == expected


def test_what_was_sent() -> None:
    moves = [
        DiskMove(target, "/a", how, "", bytes_to_move=10)
        for target, how in (("vda", FULL), ("vdb", DELTA), ("sda", COPY))
    ]
    sent = sent_bytes(moves, {"vda": (12, 12), "vdb": (3, 12)}, {"memory_bytes": 100})
    assert sent == {"disks": {"vda": 12, "vdb": 10}, "disk_bytes": 22, "bytes_sent": 122}
    unseen = [DiskMove("vda", "/a", FULL, "", bytes_to_move=0)]
    assert sent_bytes(unseen, {}, {}) == {"disks": {"vda": 0}, "disk_bytes": 0, "bytes_sent": 0}
    assert sent_bytes([], {}, {}) == {"disks": {}, "disk_bytes": 0, "bytes_sent": 0}


@pytest.mark.parametrize(
    ("completed", "lags"), [({}, False), ({"downtime_ms": 1000}, False), ({"downtime_ms": 1001}, True)]
)
def test_a_clock_that_stood_still(completed: dict[str, int], lags: bool) -> None:
    assert has_lagging_clock(completed) is lags
