"""Rooms for the guests of hosts that fail: each claim is checked by trying all ways to put them elsewhere."""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import Guest, Host, Policy
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_host_loss import (
    homeless_of_cluster,
    refusals,
    with_guests,
)
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_placement import place
from ansible_collections.corral.virt.tests.unit.plugins.module_utils.examples import examples

ROOMY = Policy(cpu_overcommit=100.0)


def host(name: str, *residents: int, memory_mib: int = 10, domain: str = "", **more: t.Any) -> Host:
    """With guests of these sizes."""
    guests = tuple(Guest(f"{name}{n}", 0, size) for n, size in enumerate(residents))
    return Host(name, 8, memory_mib, memory_used_mib=sum(residents), residents=guests, domain=domain, **more)


def reasons(hosts: t.Sequence[Host], losses: int = 1) -> list[str]:
    """Why guests of these hosts could not all come to them: a loss would leave one without a host."""
    placed = [(guest, host.name) for host in hosts for guest in host.residents]
    empty = [dataclasses.replace(host, residents=(), memory_used_mib=0) for host in hosts]
    return [*refusals(empty, placed, ROOMY, losses).values()]


@pytest.mark.parametrize(
    ("hosts", "losses", "words"),
    [
        ([host("a", 5), host("b", 5)], 1, ""),
        ([host("a", 6), host("b", 5)], 1, "the loss of a would leave a0 (0 vcpus, 6 MiB) without a hypervisor"),
        ([host("a", 5, 5), host("b", 2)], 1, "the loss of a would leave a1 (0 vcpus, 5 MiB) without"),
        ([host("a", 4, 4), host("b", 4), host("c", 4)], 1, ""),
        ([host("a", 4, 4), host("b", 4), host("c", 4)], 2, "the loss of a and b would leave"),
        ([host("a", 4), host("b", 4), host("c")], 0, ""),
        ([host("a")], 1, ""),
        ([host("a", 1)], 1, "the loss of a would leave a0"),
        ([host("a", 4, domain="r1"), host("b", 4, domain="r1"), host("c", 1, domain="r2")], 1, ""),
        ([host("a", 5, domain="r1"), host("b", 5, domain="r1"), host("c", 1, domain="r2")], 1, "the loss of r1 would"),
        ([host("a", 5), host("b", 5, maintenance="new fan")], 1, "the loss of a would leave a0"),
        ([host("a", 3, 4), host("b", 5)], 1, "the loss of a would leave a0 (0 vcpus, 3 MiB) without a hypervisor"),
        ([host("a", 3, 4), host("b", 8)], 1, "the loss of a would leave a1 (0 vcpus, 4 MiB) and 1 more without a"),
    ],
)
def test_losses(hosts: list[Host], losses: int, words: str) -> None:
    found = reasons(hosts, losses)
    assert bool(found) == bool(words) and all(found) and "".join(found[:1]).startswith(words)


def test_room_on_other_members_for_the_protected_guests_of_one_that_dies() -> None:
    """A host that is no member has none for them, and other guests do not count."""
    cluster = frozenset({"a", "b"})

    def member(name: str, *sizes: int) -> Host:
        found = host(name, *sizes)
        return dataclasses.replace(
            found, residents=tuple(dataclasses.replace(one, members=cluster) for one in found.residents)
        )

    assert homeless_of_cluster([member("a", 5), member("b", 5)], ROOMY) == {}
    assert homeless_of_cluster([member("a", 6, 2), member("b", 5), host("c")], ROOMY) == {"a": ["a0"], "b": ["b0"]}
    assert homeless_of_cluster([host("a", 6, 2), member("b", 2)], ROOMY) == {}
    assert homeless_of_cluster([host("a", 6, 3), member("b", 2)], ROOMY) == {"b": ["b0"]}


def test_guests_that_end_with_their_host_take_no_room() -> None:
    pinned = Guest("own", 0, 9, host="a")
    assert reasons([Host("a", 8, 20, residents=(pinned,)), host("b", 5)]) == []


def test_new_guests_leave_the_room_that_a_loss_takes() -> None:
    """The largest are taken, and whoever is refused learns why; without the rule all are."""
    hosts = [host("a", 2), host("b", 2), host("c", 2)]
    guests = [Guest(f"web{n}", 0, 3) for n in range(6)]
    policy = Policy(cpu_overcommit=100.0, losses=1)
    placed = place(guests, hosts, policy=policy)
    taken = [one for one in placed if one.host]
    assert 0 < len(taken) < 6 and len([one for one in place(guests, hosts, policy=ROOMY) if one.host]) == 6
    [refused, *_others] = [one for one in placed if not one.host]
    assert refused.why.startswith("require_n_plus is 1, and with it the loss of ")
    assert place(guests[::-1], hosts[::-1], policy=policy) == placed[::-1]
    [none] = place(guests[:1], [host("a", 6), host("b", 6)], policy=policy)
    assert none.host is None and "the loss of b would leave b0" in none.why


@pytest.mark.parametrize("count", range(9))
def test_the_one_that_is_too_much_is_refused_alone(count: int) -> None:
    """Those before and after it come; the reason is that of all before it, and it."""
    hosts, sizes = [host("a"), host("b")], [1] * count + [11 - count, 1]
    placed = [(Guest(f"web{number}", 0, size), "a") for number, size in enumerate(sizes)]
    found = refusals(hosts, placed, ROOMY, 1)
    worst = f"web{max(count - 1, 0)} (0 vcpus, {1 if count else 11} MiB)"
    assert found == {f"web{count}": f"the loss of a would leave {worst} without a hypervisor"}
    assert refusals(hosts, placed[:count], ROOMY, 1) == {}


def words(*names: str) -> frozenset[str]:
    """As guests and hosts have them."""
    return frozenset(names)


def bridged(count: int = 5, **more: t.Any) -> list[Host]:
    """Hosts of which only the first has the bridge br1."""
    return [Host(f"h{n}", 64, 100, bridges=words("br0", *["br1"] * (n == 0)), **more) for n in range(count)]


BIG = Guest("big", 4, 16, bridges=words("br1"))
SMALL = [Guest(f"s{n}", 1, 1, bridges=words("br0")) for n in range(20)]
NO_BRIDGE = "require_n_plus is 1, and with it the loss of h0 would leave big (4 vcpus, 16 MiB) without a hypervisor"


def refused(guests: t.Sequence[Guest], hosts: t.Sequence[Host]) -> dict[str, str]:
    """Reasons by guest, with one loss to survive."""
    policy = Policy(cpu_overcommit=100.0, losses=1)
    return {one.guest: one.why for one in place(guests, hosts, policy=policy) if one.host is None}


def test_a_guest_that_cannot_survive_a_loss_is_refused_alone() -> None:
    assert refused([BIG, *SMALL], bridged()) == {"big": NO_BRIDGE}
    assert refused([*SMALL, BIG], bridged()[::-1]) == {"big": NO_BRIDGE}


def test_a_guest_that_was_there_and_cannot_survive_a_loss_refuses_nobody() -> None:
    there = [dataclasses.replace(one, residents=(BIG,), memory_used_mib=16, vcpus_used=4) for one in bridged(1)]
    assert not refused(SMALL, [*there, *bridged()[1:]])


def test_the_room_that_a_refused_guest_would_have_taken_goes_to_others() -> None:
    hosts = [Host("h0", 64, 16, bridges=words("br0", "br1")), *bridged()[1:3]]
    own = [Guest(f"own{n}", 1, 10, bridges=words("br0")) for n in range(10)]
    assert refused([BIG, Guest("small", 1, 2, bridges=words("br0"), prefer=words("h0"))], hosts) == {"big": NO_BRIDGE}
    pinned = Guest("pinned", 1, 10, host="h0", bridges=words("br0"))
    assert refused([BIG, pinned, *own], hosts) == {"big": NO_BRIDGE}


def test_room_that_is_too_little_for_a_loss_is_left_to_whom_it_serves() -> None:
    """Guests on hosts that could not serve them anyway are welcome."""
    hosts = [host("a", 6, bridges=words("x")), host("b", 6, bridges=words("x")), host("c", bridges=words("y"))]
    hosts = [
        dataclasses.replace(one, residents=tuple(dataclasses.replace(g, bridges=words("x")) for g in one.residents))
        for one in hosts
    ]
    found = refused(
        [Guest("web", 0, 1, bridges=words("x")), Guest("db", 0, 1, bridges=words("y"))],
        [*hosts, host("d", bridges=words("y"))],
    )
    assert list(found) == ["web"] and "the loss of b would leave b0" in found["web"]


def test_guests_that_stay_together_are_refused_together() -> None:
    shop = [
        Guest("shop0", 1, 1, together=words("shop"), bridges=words("br1")),
        Guest("shop1", 1, 1, together=words("shop")),
    ]
    assert sorted(refused([*shop, *SMALL], bridged())) == ["shop0", "shop1"]


def test_a_host_with_more_guests() -> None:
    before = Host("a", 8, 100, 1, 10, residents=(Guest("old", 1, 10),), disk_left_mib={"fast": 50, "slow": 9})
    disks, db, shop = (("fast", 20), ("big", 5)), frozenset({"db"}), frozenset({"shop"})
    new = [Guest("n1", 2, 30, disks=disks, apart=db, together=shop), Guest("n2", 1, 5, disks=(("fast", 1),))]
    other = Host("b", 8, 100)
    [filled, same] = with_guests([before, other], [(guest, "a") for guest in new])
    assert same is other and filled.residents == (*before.residents, *new)
    assert (filled.vcpus_used, filled.memory_used_mib, filled.apart, filled.together) == (4, 45, db, shop)
    assert (
        filled.devices is None
        and filled.disk_left_mib == {"fast": 29, "slow": 9}
        and before.disk_left_mib == {"fast": 50, "slow": 9}
    )


def fits(homeless: t.Sequence[int], rooms: t.Sequence[int]) -> bool:
    """Whether any way to put them there is possible: all are tried."""
    return any(
        all(sum(size for size, at in zip(homeless, chosen) if at == index) <= room for index, room in enumerate(rooms))
        for chosen in itertools.product(range(len(rooms)), repeat=len(homeless))
    )


@examples(150)
@given(
    st.lists(st.lists(st.integers(1, 6), max_size=3), min_size=2, max_size=3), st.lists(st.integers(1, 6), max_size=4)
)
def test_what_is_claimed_is_true(residents: list[list[int]], new: list[int]) -> None:
    """After each placement, the guests of any lost host have a place on the others."""
    hosts = [host(name, *sizes) for name, sizes in zip("abc", residents) if sum(sizes) <= 10]
    guests = [Guest(f"web{n}", 0, size) for n, size in enumerate(new)]
    placed = place(guests, hosts, policy=Policy(cpu_overcommit=100.0, losses=1))
    there = {
        one.name: [guest.memory_mib for guest in one.residents]
        + [guest.memory_mib for guest, item in zip(guests, placed) if item.host == one.name]
        for one in hosts
    }
    if any(item.host for item in placed):
        for lost in there:
            assert fits(there[lost], [10 - sum(sizes) for name, sizes in there.items() if name != lost])


def test_devices_of_guests_that_come_are_in_use_then() -> None:
    before = Host("a", 8, 100, devices={"pci 1": 1, "usb 2": 2})
    new = [Guest("n1", 1, 1, devices=("pci 1", "usb 2")), Guest("n2", 1, 1, devices=("usb 9",))]
    [filled] = with_guests([before], [(guest, "a") for guest in new])
    assert filled.devices == {"pci 1": 0, "usb 2": 1} and before.devices == {"pci 1": 1, "usb 2": 2}


@examples(150)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["", "", "d", "e"])), max_size=2), min_size=2, max_size=3
    )
)
def test_what_is_claimed_of_devices_is_true(residents: list[list[tuple[int, str]]]) -> None:
    """Guests of a lost host find their devices free on the others, and where none is homeless, no way exists."""
    hosts = []
    for name, guests in zip("abc", residents):
        there = tuple(
            Guest(f"{name}{n}", 0, size, devices=(word,) if word else ()) for n, (size, word) in enumerate(guests)
        )
        used = [sum(word in one.devices for one in there) for word in ("d", "e")]
        if max(used) <= 1 and sum(one.memory_mib for one in there) <= 10:
            hosts.append(Host(name, 8, 10, residents=there, devices={"d": 1, "e": 1}))
    if not reasons(hosts):
        empty = [dataclasses.replace(one, residents=()) for one in hosts]
        filled = with_guests(empty, [(guest, one.name) for one in hosts for guest in one.residents])
        for lost in filled:
            assert can_restart(lost.residents, [one for one in filled if one is not lost])


def can_restart(homeless: t.Sequence[Guest], left: t.Sequence[Host]) -> bool:
    """Whether any way to put them there is possible, by memory and devices: all are tried."""
    for chosen in itertools.product(range(len(left)), repeat=len(homeless)):
        come = [[guest for guest, at in zip(homeless, chosen) if at == index] for index in range(len(left))]
        if all(
            sum(guest.memory_mib for guest in guests) <= host.memory_mib - host.memory_used_mib
            and all(
                sum(word in guest.devices for guest in guests) <= free for word, free in (host.devices or {}).items()
            )
            for host, guests in zip(left, come)
        ):
            return True
    return False


def test_the_largest_are_taken_first() -> None:
    """By memory, then by processors; each answer is of its guest."""
    hosts, policy = [host("a"), host("b")], Policy(cpu_overcommit=100.0, losses=1)
    guests = [Guest("small", 0, 4), Guest("busy", 2, 6), Guest("idle", 1, 6)]
    found = {one.guest: one.host for one in place(guests, hosts, policy=policy)}
    assert list(found) == ["small", "busy", "idle"] and found["busy"] and not found["idle"]
    assert [one.host for one in place(guests[:1], [host("a", 2), host("b", 4)], policy=policy)] == ["a"]
    assert [one.host for one in place([], [host("a", 6), host("b", 6)], policy=policy)] == []
