"""How long a guest is waited for that boots on a fast, a busy or a dead host."""

from __future__ import annotations

import pytest

from ansible_collections.corral.virt.plugins.module_utils._libvirt.model_state import Doing
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import Patience, has_no_system

TIMEOUT_S = 300


def waited_s(cpu: float, *, stops_s: float = 10**9, reads: float = 0, before_s: float = 0) -> float:
    """How long it is waited for at most, with that share of a processor and as many reads in a second."""
    patience, elapsed_s = Patience(TIMEOUT_S), 0.0
    while not patience.is_over(elapsed_s):
        worked_s = min(elapsed_s, stops_s)
        patience.sees(elapsed_s, Doing(before_s + cpu * worked_s, int(reads * worked_s), 0))
        elapsed_s += 5
    return elapsed_s


@pytest.mark.parametrize(
    ("cpu", "most_s"),
    [(1.0, 305), (0.5, 605), (0.1, 3005), (0.06, 5005), (0.04, 305), (0.0, 300)],
)
def test_a_guest_on_a_busy_host_has_as_much_of_a_processor_as_on_an_idle_one(cpu: float, most_s: float) -> None:
    assert waited_s(cpu) == pytest.approx(most_s, abs=10)


def test_a_guest_that_stops_working_is_not_waited_for() -> None:
    assert waited_s(0.2, stops_s=400) == pytest.approx(440, abs=15)


def test_a_guest_that_reads_its_disk_is_at_work_but_not_for_ever() -> None:
    assert waited_s(0.0, reads=1) == 20 * TIMEOUT_S


def test_what_a_guest_did_before_the_wait_does_not_count() -> None:
    assert waited_s(0.5, before_s=10**6) == waited_s(0.5)


def test_a_guest_that_nobody_sees_any_more_is_not_at_work() -> None:
    """Its hypervisor has died, say: what it did before tells nothing."""
    patience = Patience(TIMEOUT_S)
    for elapsed_s in (290, 310):
        patience.sees(elapsed_s, Doing(elapsed_s / 2))
    assert not patience.is_over(311) and patience.is_over(341)


def test_a_guest_that_starts_again_begins_anew() -> None:
    patience = Patience(TIMEOUT_S)
    patience.sees(0, Doing(0.0))
    patience.sees(290, Doing(290.0))
    patience.sees(295, Doing(0.5))
    patience.sees(300, Doing(3.0))
    assert not patience.is_over(300)


def test_of_a_guest_that_cannot_be_seen_the_clock_alone_tells() -> None:
    patience = Patience(TIMEOUT_S)
    patience.sees(0, Doing())
    assert not patience.is_over(TIMEOUT_S - 1) and patience.is_over(TIMEOUT_S)
    assert str(Doing()) == "nothing seen of it"
    assert str(Doing(70.2, 12, 0)) == "70 s of CPU, 12 disk reads, nothing sent yet"


ASKED = Doing(100.0, 5, 0)


@pytest.mark.parametrize(
    ("elapsed_s", "now", "agent", "is_so"),
    [
        (10, Doing(110.0, 5, 0), None, True),
        (10, Doing(100.1, 5, 0), "disconnected", True),
        (9, Doing(109.0, 5, 0), None, False),
        (10, Doing(110.0, 5, 0), "connected", False),
        (10, Doing(110.0, 6, 0), None, False),
        (10, Doing(110.0, 5, 1), None, False),
        (10, Doing(), None, False),
    ],
)
def test_a_removal_does_not_wait_for_a_guest_that_has_no_system(
    elapsed_s: float, now: Doing, agent: str | None, *, is_so: bool
) -> None:
    assert has_no_system(elapsed_s, ASKED, now, agent) == is_so


def test_a_guest_whose_system_was_loaded_has_its_time() -> None:
    """It may be still for a while when it shuts down."""
    loaded = Doing(100.0, 5000, 0)
    assert not has_no_system(30, loaded, loaded, None)
    assert has_no_system(30, Doing(1.0), Doing(1.0), None), "no disks at all"
