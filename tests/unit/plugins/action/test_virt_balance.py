"""The plan as a table."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.action import virt_balance
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_balance import SuggestedMove


def test_a_plan_is_a_table() -> None:
    moves = [
        SuggestedMove("web5", "hyper1", "hyper2", 6.87, 109),
        SuggestedMove("database", "hyper1", "hyper12", 2.04, 20480),
    ]
    assert virt_balance._plan_text(moves, 11.04, 2.13) == (
        "guest     move               gain  MiB\n"
        "web5      hyper1 -> hyper2   6.9   109\n"
        "database  hyper1 -> hyper12  2.0   20480\n"
        "imbalance 11.0 -> 2.1"
    )


def test_no_plan_is_one_line() -> None:
    assert virt_balance._plan_text([], 0.4, 0.4) == "imbalance 0.4: no move is worth it"
