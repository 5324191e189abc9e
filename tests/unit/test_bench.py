"""What `make bench` makes of its figures."""

from __future__ import annotations

import pytest

from ansible_collections.corral.virt.tests.bench import place
from ansible_collections.corral.virt.tests.bench.row import Row, table


@pytest.mark.parametrize(
    ("ours", "theirs", "target", "ok"),
    [
        pytest.param(1.0, 20.0, 20.0, True, id="just_met"),
        pytest.param(1.0, 19.999, 20.0, False, id="missed_though_it_rounds_to_the_target"),
        pytest.param(2.0, 1.0, 0.5, True, id="slower_within_the_limit"),
        pytest.param(5.0, 1.0, None, True, id="nothing_asked"),
        pytest.param(1.0, None, 20.0, False, id="target_not_measured"),
        pytest.param(1.0, None, None, True, id="nothing_asked_nothing_measured"),
    ],
)
def test_row_judges_its_target(ours: float, theirs: float | None, target: float | None, ok: bool) -> None:
    assert Row("bench", 100, ours, "peer", theirs, "s", target).ok is ok


def test_row_as_data() -> None:
    row = Row("bench", 100, 1.23456, "peer", 30.0, "s", 20.0, "reports a change")
    assert row.data() == {
        "name": "bench", "n": 100, "ours": 1.235, "peer": "peer", "peer_value": 30.0, "unit": "s", "ratio": 24.3, "target": 20.0,
        "ok": True, "note": "reports a change",
    }  # fmt: skip


def test_table_says_what_is_missed_and_why_a_peer_is_missing() -> None:
    rows = [
        Row("bench", 1, 2.0, "slow", 30.0, "s", 20.0),
        Row("bench", 100, 49.04, "gone", None, "MB", note="cannot run: no wheel"),
    ]
    assert [line.split() for line in table(rows).splitlines()[1:]] == [
        ["bench", "1", "2.00", "s", "slow", "30.00", "s", "15.00", "20", "MISSED"],
        ["bench", "100", "49.0", "MB", "gone", "-", "-", "-", "cannot", "run:", "no", "wheel"],
    ]


def test_medians_are_measured_in_turns() -> None:
    values = iter([5.0, 0.0, 1.0, 2.0, 9.0, 4.0, 2.0, 6.0, 3.0, 8.0])
    assert place.medians(lambda: next(values), lambda: next(values)) == [3.0, 4.0]
    assert not list(values), f"{place.REPEATS} turns"


def test_medians_measure_once_what_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "ENOUGH_S", 0.0)
    values = iter([7.0, 1.0])
    assert place.medians(lambda: next(values)) == [7.0]
