"""Many guests are checked before any moves; then a few at a time do, in order, and one that fails stops no other."""

from __future__ import annotations

import threading
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Failed
from ansible_collections.corral.virt.plugins.module_utils._migration import run_migrations


def params(*guests: dict[str, t.Any], at_once: int = 2, **options: t.Any) -> dict[str, t.Any]:
    """The module's."""
    return {"guests": list(guests), "options": options, "at_once": at_once}


def test_what_a_guest_says_goes_before_the_options_of_all() -> None:
    first, second = run_migrations.requested(
        params(
            {"name": "web1", "dest": "hyper2"},
            {"name": "db1", "dest": "hyper3", "bandwidth": "9"},
            bandwidth=50,
            storage="full",
        )
    )
    assert (first["bandwidth"], first["storage"], first["transport"]) == (50, "full", "tls")
    assert (second["bandwidth"], second["storage"], second["dest"]) == (9, "full", "hyper3")


def test_the_problems_of_all_are_told_at_once() -> None:
    guests = {"name": "web1"}, {"name": "a/b", "dest": "hyper2"}, {"name": "web1", "dest": "hyper2", "speed": 1}
    wrong = params(*guests, at_once=0, timeout=0)
    with pytest.raises(BadInput, match="web1: missing") as caught:
        run_migrations.requested(wrong)
    result = " | ".join(caught.value.problems)
    for part in ("web1: missing required arguments: dest", "a/b: name: ", "a/b: timeout: must be at least 1", "speed"):
        assert part in result
    assert "guests: web1 is given twice" in result and "at_once: must be at least 1, not 0" in result


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_never_more_at_once_and_all_in_order(at_once: int) -> None:
    """As many as may be at work together are; each waits there until they are so many."""
    together = threading.Barrier(at_once)
    begun: list[str] = []
    lock, active, most = threading.Lock(), [0], [0]

    def move(params: run_migrations.MigrateParams) -> dict[str, t.Any]:
        with lock:
            begun.append(params["name"])
            active[0] += 1
            most[0] = max(most[0], active[0])
        together.wait(timeout=300)
        with lock:
            active[0] -= 1
        return {"name": params["name"], "changed": True, "steps": [f"moved {params['name']}"]}

    names = [f"web{number}" for number in range(6)]
    results = run_migrations.each([{"name": name, "dest": "hyper2"} for name in names], at_once, move)
    assert [one["name"] for one in results] == names
    assert most == [at_once]
    assert sorted(begun[:at_once]) == names[:at_once]


def test_one_that_fails_stops_no_other() -> None:
    def move(params: run_migrations.MigrateParams) -> dict[str, t.Any]:
        if params["name"] == "db1":
            raise Failed("cannot migrate db1: no room", ["made its disk"])
        return {"name": params["name"], "changed": False, "steps": [], "diff": {"before": {}, "after": {}}}

    results = run_migrations.each([{"name": name, "dest": "hyper2"} for name in ("web1", "db1", "web2")], 2, move)
    result = run_migrations.summary(results)
    assert (result["failed"], result["msg"], result["changed"]) == (True, "cannot migrate db1: no room", True)
    assert [bool(one.get("failed")) for one in result["results"]] == [False, True, False]
    assert result["steps"] == ["made its disk"] and result["diff"] == []
    assert "failed" not in run_migrations.summary([results[0], results[2]])
