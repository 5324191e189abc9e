"""Packing, rule by rule: what is large, what costs, where room is made, and what is told of those that remain."""

from __future__ import annotations

import collections
import random
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._placement import plan_packing
from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import (
    Guest,
    GuestCopy,
    Host,
    Policy,
)
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_host_costs import Choices, Fleet, evenly
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_host_load import Load, Neighbours

TIGHT = Policy(cpu_overcommit=1.0)


def guest(name: str, memory_mib: int = 100, vcpus: int = 1, **more: t.Any) -> Guest:
    """A guest."""
    return Guest(name, vcpus, memory_mib, **more)


def host(name: str, memory_mib: int = 1000, cpus: int = 10, **more: t.Any) -> Host:
    """A hypervisor."""
    return Host(name, cpus, memory_mib, **more)


def fleet(*hosts: Host, guests: t.Sequence[Guest] = ()) -> Fleet:
    """The hosts before anything is put on them."""
    neighbours = Neighbours(hosts, guests)
    return Fleet({one.name: Load(one, TIGHT, (), neighbours) for one in hosts})


def packed(guests: t.Sequence[Guest], *hosts: Host) -> dict[str, tuple[str | None, str]]:
    """Where each goes, and why."""
    found = plan_packing.packed(guests, hosts, TIGHT, apart={}, last=())
    return {name: (one.host, one.why) for name, one in found.items()}


def words(*names: str) -> frozenset[str]:
    """As guests and hosts have them."""
    return frozenset(names)


OPEN, CLOSED = host("a"), host("b", maintenance="new disks")


@pytest.mark.parametrize(
    ("guests", "hosts", "expected"),
    [
        ([guest("x", 1000, 10)], [OPEN], False),
        ([guest("x", 1001, 1)], [OPEN], True),
        ([guest("x", 1, 11)], [OPEN], True),
        ([guest("x", 600, 1), guest("y", 401, 1)], [OPEN], True),
        ([guest("x", 600, 1), guest("y", 401, 1)], [OPEN, host("c")], False),
        ([guest("x", 600, 1), guest("y", 401, 1)], [OPEN, CLOSED], True),
        ([guest("x", 1000, 1)], [OPEN, host("c", memory_used_mib=9000)], False),
        ([guest("x", 1001, 1)], [OPEN, host("c", memory_used_mib=1000)], True),
    ],
)
def test_hosts_have_too_little_together(guests: list[Guest], hosts: list[Host], expected: bool) -> None:
    assert plan_packing._exceed(guests, fleet(*hosts)) is expected


@pytest.mark.parametrize(
    ("wish", "its", "expected"),
    [
        ({}, {}, True),
        ({"host": "a"}, {}, True),
        ({"host": "b"}, {}, False),
        ({"host": "a"}, {"maintenance": "new disks"}, False),
        ({}, {"memory_used_mib": 1000}, False),
    ],
)
def test_who_may_take_a_guest(wish: dict[str, t.Any], its: dict[str, t.Any], expected: bool) -> None:
    assert bool(fleet(host("a", **its)).fitting(guest("x", **wish))) is expected


def test_more_rules_are_tried_where_they_could_help(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[plan_packing.Size] = []
    ordered = plan_packing._ordered

    def noted(guests: t.Any, there: t.Any, last: t.Any, size: plan_packing.Size, urgent: t.Any) -> list[Guest]:
        tried.append(size)
        return ordered(guests, there, last, size, urgent)

    monkeypatch.setattr(plan_packing, "_ordered", noted)
    assert [one for one, _why in packed([guest("x"), guest("y", 900)], host("a")).values()] == ["a", "a"]
    assert tried == [max], "all have a host"
    tried.clear()
    packed([guest(name, 600) for name in "xyz"], host("a"), host("b"))
    assert len(tried) > len(plan_packing._RULES), "one of them may find room"
    tried.clear()
    packed([guest(name, 600) for name in "wxyz"], host("a"), host("b"))
    assert tried == [max, plan_packing._smallest, plan_packing._smallest], "all cannot have a host"


def test_the_largest_come_first_and_a_group_is_as_large_as_all_of_it() -> None:
    together = [guest(name, 300, together=words("A")) for name in ("s1", "s2")]
    others = [guest("big", 500), guest("same", 600, 2), guest("middle", 400), guest("small", 10)]
    every = [*others, *together]
    none = collections.Counter[str]()
    order = plan_packing._ordered(every, fleet(host("a"), guests=every), ["big"], max, none)
    assert [one.name for one in order] == ["same", "s1", "s2", "middle", "small", "big"]
    order = plan_packing._ordered(every, fleet(host("a"), guests=every), ["big"], max, collections.Counter(middle=3))
    assert [one.name for one in order] == ["middle", "same", "s1", "s2", "small", "big"]


def test_a_host_is_chosen_again_while_it_is_the_cheapest() -> None:
    there = fleet(host("a"), host("b", memory_used_mib=900))
    choices = Choices(guest("x"), there, evenly)
    for name in ("x", "y", "z"):
        assert (choices.best, choices.count) == (0, 2)
        choices.put(guest(name))
    assert there.memory_left[0] == 700


def test_a_host_that_one_guest_cannot_have_stays_for_the_next() -> None:
    there = fleet(host("a", guests={"x": GuestCopy("running", "other")}), host("b", memory_used_mib=500))
    assert there.fitting(guest("x", uuid="u1")) == [1] and there.fitting(guest("y", uuid="u2")) == [0, 1]
    assert there.key(guest("x", uuid="u1")) != there.key(guest("y", uuid="u2")) == there.key(guest("z", uuid="u3"))


def lumpy(count: int, fill: float, seed: int) -> tuple[list[Guest], list[Host]]:
    """Hosts of several sizes, and guests that fill that share of each; few of them fit on one."""
    chance = random.Random(seed)
    sizes, hosts = list[tuple[int, int]](), list[Host]()
    for number in range(count):
        cpus, memory = chance.choice(((32, 65536), (64, 131072), (48, 262144), (96, 196608)))
        hosts.append(Host(f"h{number:02}", cpus, memory))
        left = int(cpus * fill), int(memory * fill)
        while min(left) > 0:
            one = tuple(int(each * chance.uniform(0.2, 0.7)) for each in (cpus, memory))
            if left[0] - one[0] < 0.05 * cpus or left[1] - one[1] < 0.05 * memory:
                one = left
            sizes.append((one[0], one[1]))
            left = left[0] - one[0], left[1] - one[1]
    chance.shuffle(sizes)
    return [guest(f"g{number}", memory, cpus) for number, (cpus, memory) in enumerate(sizes)], hosts


def test_large_guests_that_fit_on_hosts_of_several_sizes_are_placed_whole() -> None:
    """Of batches that fill 92 of 100 parts of memory and processors, 97 of 100 at least."""
    batches = [lumpy(count, 0.92, seed) for count in (8, 20) for seed in range(40)]
    whole = [None not in [where for where, _why in packed(guests, *hosts).values()] for guests, hosts in batches]
    assert sum(whole) >= 0.97 * len(whole)


def test_each_guest_without_a_host_has_its_reason() -> None:
    found = packed([guest("x", 2000), guest("y", 3000)], host("a"))
    assert [why.partition(", and")[0] for _host, why in found.values()] == [
        "it needs 1 vcpus and 3000 MiB",
        "it needs 1 vcpus and 2000 MiB",
    ]
    full = host("a", memory_used_mib=950, guests={"x": GuestCopy("running", "other")})
    named = packed([guest("x", uuid="u1"), guest("y", uuid="u2")], full)
    assert "another guest named x" in named["x"][1] and "another guest named" not in named["y"][1]


def squeezed(wanted: Guest, there: Fleet, *others: Guest) -> tuple[plan_packing._Packing, bool]:
    """A packing that has put the others on the first host and then chooses one for `wanted`; whether it found one."""
    work = plan_packing._Packing(there, evenly)
    for other in others:
        there.put(other, 0)
    work.choose(wanted)
    return work, wanted not in work.left


def full(**more: t.Any) -> Fleet:
    """A host on which only the guest finds what it needs, and one with a little room."""
    return fleet(host("a", bridges=words("x"), **more), host("b", memory_used_mib=900, bridges=words()))


WANTED = guest("big", 950, bridges=words("x"))


@pytest.mark.parametrize(
    ("wanted", "others", "expected"),
    [
        (WANTED, [guest("o", 100)], True),  # all that is left elsewhere
        (WANTED, [guest("o", 101)], False),
        (guest("big", 1000, bridges=words("x")), [guest("o", 100)], True),  # all that there is
        (guest("big", 100, 10, bridges=words("x")), [guest("o", 100)], True),
        (guest("big", 1001, bridges=words("x")), [guest("o", 100)], False),
        (guest("big", 950, bridges=words("y")), [guest("o", 100)], False),
        (WANTED, [guest("o", 100, host="a")], False),
        (WANTED, [guest("o", 100, together=words("shop"))], False),
        (guest("big", 970, bridges=words("x")), [guest("n", 20), guest("o", 70)], True),  # the second frees enough
        (guest("big", 990, bridges=words("x")), [guest("n", 20), guest("o", 70)], False),
    ],
)
def test_room_is_made(wanted: Guest, others: list[Guest], expected: bool) -> None:
    work, found = squeezed(wanted, full(), *others)
    assert found is expected
    assert len(work._fleet.loads[0].batch) == len(others), "what moved was replaced, or stays"


def test_no_room_is_made_for_who_asks_for_a_host_or_stays_with_others() -> None:
    for more in ({"host": "b"}, {"together": words("shop")}):
        wanted = guest("big", 950, bridges=words("x"), **more)
        assert not squeezed(wanted, full(), guest("o", 100))[1]


def test_room_is_made_for_others_than_the_one_that_was_refused() -> None:
    work, found = squeezed(guest("huge", 5000), full(), guest("o", 100))
    assert not found
    work.choose(WANTED)
    assert WANTED not in work.left


def test_room_is_made_where_no_host_has_more_than_who_goes_needs() -> None:
    there = fleet(host("a", bridges=words("x")), host("b", memory_used_mib=500, bridges=words()))
    assert squeezed(guest("big", 1000, bridges=words("x")), there, guest("o", 500))[1]


def test_a_guest_is_not_refused_for_the_name_of_another_one() -> None:
    wanted = [guest(name, 950, bridges=words("x"), uuid=f"u-{name}") for name in ("x", "y")]
    work, found = squeezed(wanted[0], full(guests={"x": GuestCopy("running", "other")}), guest("o", 100))
    assert not found
    work.choose(wanted[1])
    assert work.left == wanted[:1]
