"""How busy a host and its guests were, as tables."""

from __future__ import annotations

import pytest

from ansible_collections.corral.virt.plugins.module_utils._libvirt.load import Clocks, guest_percent, host_percent

S = 10**9


@pytest.mark.parametrize(
    ("before", "after", "percent"),
    [
        ({"user": 0, "kernel": 0, "idle": 0, "iowait": 0}, {"user": 2, "kernel": 1, "idle": 4, "iowait": 1}, 37.5),
        ({"user": 5, "idle": 5}, {"user": 6, "idle": 6}, 50.0),
        ({"user": 5, "idle": 5}, {"user": 5, "idle": 9}, 0.0),
        ({"user": 5, "idle": 5}, {"user": 5, "idle": 5}, None),  # the test driver's clocks stand
        ({}, {}, None),
    ],
)
def test_what_of_a_host_was_busy(before: dict[str, int], after: dict[str, int], percent: float | None) -> None:
    assert host_percent(Clocks(0, before, {}), Clocks(S, after, {})) == percent


@pytest.mark.parametrize(
    ("before", "after", "vcpus", "percent"),
    [
        ({"u": 0}, {"u": S}, 1, 100.0),
        ({"u": 0}, {"u": S}, 4, 25.0),
        ({"u": S}, {"u": S + S // 1000}, 1, 0.1),
        ({"u": 0}, {"u": S + S // 10}, 1, 110.0),
        ({"u": S}, {"u": 5}, 1, None),  # started anew in between
        ({}, {"u": S}, 1, None),
        ({"u": S}, {}, 1, None),
        ({"u": 0}, {"u": S}, 0, None),
    ],
)
def test_what_a_guest_used_of_its_vcpus(
    before: dict[str, int], after: dict[str, int], vcpus: int, percent: float | None
) -> None:
    assert guest_percent(Clocks(7, {}, before), Clocks(7 + S, {}, after), "u", vcpus) == percent
