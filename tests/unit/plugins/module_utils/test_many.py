"""Many guests in one call: side by side when asked, in the order given, and none stops the others."""

from __future__ import annotations

import threading
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._guest import run_guest_options, run_guests

NAMES = ("a", "b", "c")
GUESTS = [GuestSpec(name) for name in NAMES]


def done(wanted: GuestSpec) -> dict[str, t.Any]:
    """The middle one fails."""
    if wanted.name == "b":
        raise Refused("no")
    return {"name": wanted.name, "changed": True, "steps": [f"start {wanted.name}"]}


@pytest.mark.parametrize("at_once", [1, 3])
def test_results_are_in_the_order_given(at_once: int) -> None:
    results = run_guests.each(GUESTS, done, at_once=at_once)
    assert [one["name"] for one in results] == [*NAMES]
    assert [bool(one.get("failed")) for one in results] == [False, True, False]


def test_guests_are_waited_for_together() -> None:
    meet = threading.Barrier(3, timeout=300)

    def wait(wanted: GuestSpec) -> dict[str, t.Any]:
        meet.wait()
        return {"name": wanted.name}

    assert len(run_guests.each(GUESTS, wait, at_once=3)) == 3


def test_at_once_is_a_number_of_guests() -> None:
    with pytest.raises(BadInput, match="at_once: must be at least 1, not 0"):
        run_guest_options.all_wanted([], 0)
