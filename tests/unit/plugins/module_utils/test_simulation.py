"""What if: hosts are lost, guests added, and what is left filled."""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._placement import plan_simulation
from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import (
    Guest,
    GuestCopy,
    Host,
    Policy,
)
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_simulation import simulate
from ansible_collections.corral.virt.plugins.modules import virt_simulate


def host(name: str, *sizes: int, memory_mib: int = 100, cpus: int = 8) -> Host:
    """With running guests of these sizes."""
    guests = tuple(Guest(f"{name}-{size}", 1, size, uuid=f"{name}{size}") for size in sizes)
    return Host(name, cpus, memory_mib, len(guests), sum(sizes), residents=guests)


def test_guests_of_a_lost_host_find_room_or_not() -> None:
    found = simulate([host("a", 60, 30), host("b", 50), host("c", 65)], Policy(), lose=["a"])
    assert {one.guest: one.host for one in found.moved} == {"a-60": None, "a-30": "b"}
    assert [one.why.startswith("it needs 1 vcpus and 60 MiB") for one in found.moved] == [True, False]
    assert {one.name: (one.memory_used_mib, len(one.residents)) for one in found.hosts} == {"b": (80, 2), "c": (65, 1)}


def test_a_guest_does_not_go_where_another_one_has_its_name() -> None:
    """Nor is it taken for that one; a copy of its own is no other guest."""
    lost = dataclasses.replace(host("a", 10), guests={"a-10": GuestCopy("running", "a10")})
    for uuid, state, expected in (("other", "shutdown", None), ("other", "running", None), ("a10", "shutdown", "b")):
        left = dataclasses.replace(host("b"), guests={"a-10": GuestCopy(state, uuid)})
        [moved] = simulate([lost, left], Policy(), lose=["a"]).moved
        assert moved.host == expected and ("has another guest named a-10" in moved.why) is (expected is None)
        assert simulate([lost, left], Policy(), lose=["a"]).hosts == [left], "a copy is counted there already"
    both = simulate([lost, left, host("c")], Policy(), lose=["a"])
    assert [one.host for one in both.moved] == ["b"], "where its copy is"


def test_added_guests_come_after_those_that_lost_their_host() -> None:
    add = [Guest("new", 1, 45)]
    assert [one.host for one in simulate([host("a", 40), host("b", 50)], Policy(), add=add).added] == ["a"]
    found = simulate([host("a", 40), host("b", 50)], Policy(), lose=["a"], add=add)
    assert ([one.host for one in found.moved], [one.host for one in found.added]) == (["b"], [None])


def test_filled_until_one_is_refused() -> None:
    hosts = [host("a", 40), host("b", 50), host("c", 10, cpus=1)]
    found = simulate(hosts, Policy(cpu_overcommit=4.0), fill=Guest("more", 1, 20))
    assert found.count == 3 + 2 + 3 and "no hypervisor fits" in found.limit
    assert [len(one.residents) for one in found.hosts] == [4, 3, 4]
    all_three = simulate(hosts, Policy(), lose=["c"], add=[Guest("new", 1, 10)], fill=Guest("more", 1, 20))
    assert [one.host for one in (*all_three.moved, *all_three.added)] == ["a", "b"] and all_three.count == 4
    none = simulate(hosts, Policy(), fill=Guest("more", 1, 500))
    assert none.count == 0 and "no hypervisor fits" in none.limit
    apart = simulate(hosts, Policy(), fill=Guest("more", 1, 20, apart=frozenset({"db"})))
    assert apart.count == 3 and "stay apart" in apart.limit


def test_what_may_be_promised_can_be_filled() -> None:
    policy = Policy(cpu_overcommit=3.0, memory_overcommit=2.0)
    assert simulate([host("a", 50, cpus=100)], policy, fill=Guest("more", 1, 10)).count == 15
    assert simulate([host("a", cpus=5)], policy, fill=Guest("more", 2, 1)).count == 7


def test_there_is_an_end_of_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_simulation, "_MOST", 2)
    found = simulate([host("a")], Policy(), fill=Guest("more", 1, 10))
    assert (found.count, found.limit) == (2, "2 is the most that is tried")


def test_the_room_for_a_next_loss_is_not_filled() -> None:
    """Guests that lost their host come back all the same."""
    hosts = [host("a", 40), host("b", 40), host("c", 40)]
    policy = Policy(cpu_overcommit=100.0, losses=1)
    found = simulate(hosts, policy, fill=Guest("more", 1, 10))
    assert found.count and sum(one.memory_used_mib for one in found.hosts) <= 200
    assert "require_n_plus is 1" in found.limit
    two = simulate(hosts[:2], policy, lose=["a"])
    assert [one.host for one in two.moved] == ["b"]


def test_guests_of_a_lost_host_and_new_ones_have_the_same_policy() -> None:
    twice, hosts = Policy(memory_overcommit=2.0), [host("a", 90), host("b", 90)]
    assert [one.host for one in simulate(hosts, twice, lose=["a"]).moved] == ["b"]
    assert [one.host for one in simulate(hosts[:1], twice, add=[Guest("new", 1, 90)]).added] == ["a"]


def test_without_a_kind_there_is_no_limit() -> None:
    found = simulate([host("a")], Policy())
    assert (found.count, found.limit, found.moved, found.added) == (None, "", [], [])


@pytest.mark.parametrize(
    ("kind", "its", "most"),
    [
        (Guest("more", 1, 10), {}, 10),
        (Guest("more", 1, 30), {}, 3),
        (Guest("more", 1, 1), {}, 8),
        (Guest("more", 3, 1), {}, 2),
        (Guest("more", 1, 10), {"memory_used_mib": 71}, 2),
        (Guest("more", 1, 1), {"vcpus_used": 5}, 3),
        (Guest("more", 1, 101), {}, 0),
        (Guest("more", 1, 10), {"memory_used_mib": 200}, 0),
        (Guest("more", 0, 0), {}, 8),
        (Guest("more", 1, 1), {"cpus": 200}, 100),
    ],
)
def test_no_more_are_tried_than_there_can_be(
    kind: Guest, its: dict[str, t.Any], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = dataclasses.replace(host("a", cpus=10 if kind.memory_mib == 10 else 8), **its)
    assert plan_simulation._at_most(kind, there, Policy(cpu_overcommit=1.0)) == most
    tried: list[int] = []

    def placed(guests: list[Guest], hosts: list[Host], _policy: Policy) -> tuple[list[t.Any], list[Host]]:
        tried.append(len(guests))
        return [], hosts

    monkeypatch.setattr(plan_simulation, "_placed", placed)
    plan_simulation.filled(kind, [there, there], Policy(cpu_overcommit=1.0))
    assert tried == [2 * most + 1]


def test_no_more_is_tried_than_is_documented() -> None:
    documented = Path(virt_simulate.__file__).read_text()
    assert f"at most {plan_simulation._MOST:,} times" in documented
