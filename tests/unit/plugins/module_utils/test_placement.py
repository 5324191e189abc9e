"""What holds for every placement, whatever the guests and hosts."""

from __future__ import annotations

import dataclasses
import random
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import (
    Guest,
    GuestCopy,
    Host,
    Policy,
)
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_host_load import Load
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_placement import place
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_rules import against
from ansible_collections.corral.virt.tests.unit.plugins.module_utils.examples import examples

ON, OFF = GuestCopy("running"), GuestCopy("shutdown")
NONE, A, B = frozenset[str](), frozenset({"a"}), frozenset({"b"})
NAMES = [f"hyper{number}" for number in range(5)]
POLICIES = st.builds(Policy, st.sampled_from([1.0, 4.0]), st.sampled_from([0.8, 1.0, 1.5]))


@st.composite
def offers(draw: t.Any) -> dict[str, t.Any]:
    """What few guests ask of a host: devices, versions, groups."""
    return {
        "devices": draw(st.sampled_from([None, {}, {"pci 1": 1}, {"pci 1": 0, "usb 2": 2}])),
        "versions": draw(st.sampled_from([{}, {"qemu": "7.2.22"}, {"qemu": "10.0.2", "kernel": "6.12"}])),
        "migration_group": draw(st.sampled_from(["", "", "intel"])),
        "groups": draw(st.sampled_from([None, A, A | B])),
        "networks": draw(st.sampled_from([None, A, A | B])),
        "machines": draw(st.sampled_from([None, A, A | B])),
    }


@st.composite
def needs(draw: t.Any) -> dict[str, t.Any]:
    """Most guests ask for none of it."""
    return {
        "devices": draw(st.sampled_from([(), (), (), ("pci 1",), ("usb 2",), ("usb 2", "usb 2")])),
        "versions": draw(st.sampled_from([(), (), (("qemu", "8"),), (("kernel", "6"), ("qemu", "7.2"))])),
        "runs_within": draw(st.sampled_from([None, None, "", "intel"])),
        "groups": draw(st.sampled_from([NONE, NONE, A, B])),
        "networks": draw(st.sampled_from([NONE, NONE, A, B])),
        "machines": draw(st.sampled_from([NONE, NONE, A, B])),
    }


@st.composite
def clusters(draw: t.Any) -> tuple[list[Guest], list[Host]]:
    """Guests to be placed, some of which exist already, and hosts of all sizes."""
    hosts = []
    there: dict[str, str] = {}
    for name in NAMES[: draw(st.integers(1, 5))]:
        new = [f"web{number}" for number in draw(st.sets(st.integers(0, 9), max_size=2)) if f"web{number}" not in there]
        here = {guest: draw(st.sampled_from([ON, OFF])) for guest in new}
        there.update(dict.fromkeys(here, name))
        hosts.append(
            Host(
                name,
                cpus=draw(st.integers(1, 16)),
                memory_mib=draw(st.sampled_from([1024, 4096, 16384])),
                vcpus_used=draw(st.integers(0, 8)),
                memory_used_mib=draw(st.sampled_from([0, 512, 4096])),
                guests=here,
                apart=frozenset(draw(st.sets(st.sampled_from("ab"), max_size=1))),
                bridges=draw(st.sampled_from([None, frozenset(["br0"]), frozenset(["br0", "br1"])])),
                pools=draw(st.sampled_from([None, frozenset(["default"]), frozenset(["default", "fast"])])),
                **draw(offers()),
            )
        )
    guests = [
        Guest(
            f"web{number}",
            vcpus=draw(st.integers(0, 8)),
            memory_mib=draw(st.sampled_from([0, 256, 1024, 3000])),
            host=draw(st.sampled_from([None, None, None, *NAMES])),
            apart=draw(st.sampled_from([NONE, A, B, A | B])),
            bridges=frozenset([draw(st.sampled_from(["br0", "br1"]))]),
            pools=frozenset([draw(st.sampled_from(["default", "fast"]))]),
            **draw(needs()),
        )
        for number in draw(st.sets(st.integers(0, 9), max_size=8))
    ]
    return guests, hosts


@examples(150)
@given(clusters(), POLICIES)
def test_what_always_holds(cluster: tuple[list[Guest], list[Host]], policy: Policy) -> None:
    guests, hosts = cluster
    placed = place(guests, hosts, policy=policy)
    assert [item.guest for item in placed] == [guest.name for guest in guests]
    for guest, item in zip(guests, placed):
        holder = next((host.name for host in hosts if guest.name in host.guests), None)
        if holder:
            assert (item.host, item.exists) == (holder, True), "what exists stays"
        elif item.host:
            assert guest.host in (None, item.host), "what is pinned stays"
            assert not item.exists
        else:
            assert item.why and not item.deferred
    for host in hosts:
        new = [guest for guest, item in zip(guests, placed) if item.host == host.name and not item.exists]
        old = {word for guest in guests for word in guest.apart if guest.name in host.guests}
        if new:
            check_room(dataclasses.replace(host, apart=host.apart | old), new, policy)
    assert place(guests, list(reversed(hosts)), policy=policy) == placed, "the order of hosts does not matter"
    assert place(guests[::-1], hosts, policy=policy) == placed[::-1], "nor does that of guests"


def check_room(host: Host, new: list[Guest], policy: Policy) -> None:
    """Nothing promised twice, nothing missing, groups kept apart."""
    assert host.memory_used_mib + sum(guest.memory_mib for guest in new) <= host.memory_mib * policy.memory_overcommit
    assert host.vcpus_used + sum(guest.vcpus for guest in new) <= host.cpus * policy.cpu_overcommit
    for guest in new:
        assert host.bridges is None or guest.bridges <= host.bridges
        assert host.pools is None or guest.pools <= host.pools
        for field in ("groups", "networks", "machines"):
            assert getattr(host, field) is None or getattr(guest, field) <= getattr(host, field)
        assert guest.runs_within in (None, host.migration_group)
        assert not any(program == "qemu" and version == "8" for program, version in guest.versions) or (
            host.versions.get("qemu") != "7.2.22"
        )
    used = [device for guest in new for device in guest.devices]
    assert host.devices is None or all(used.count(device) <= host.devices.get(device, 0) for device in used)
    groups = [word for guest in new for word in guest.apart]
    assert len(groups) == len(set(groups)) and not set(groups) & host.apart


@examples(60)
@given(clusters())
def test_a_second_run_leaves_all_where_they_are(cluster: tuple[list[Guest], list[Host]]) -> None:
    guests, hosts = cluster
    placed = place(guests, hosts)
    made = {item.guest: item.host for item in placed if item.host and not item.exists}
    later = [
        dataclasses.replace(
            host, guests={**host.guests, **{guest: ON for guest, at in made.items() if at == host.name}}
        )
        for host in hosts
    ]
    again = place(guests, later)
    assert [item.host for item in again if item.exists] == [item.host for item in placed if item.host]


@examples(60)
@given(clusters())
def test_nothing_new_is_made_while_a_host_is_unseen(cluster: tuple[list[Guest], list[Host]]) -> None:
    guests, hosts = cluster
    for item in place(guests, hosts, unreached=["hyper9"]):
        assert item.exists or item.deferred or "no hypervisor" in item.why
        assert not item.exists or any(host.guests.get(item.guest) == ON for host in hosts), (
            "what does not run may run there"
        )
        if item.deferred:
            assert item.host is None and "hyper9 failed or could not be reached and may have it" in item.why


def test_the_refusal_names_every_host_and_its_reason() -> None:
    hosts = [
        Host("hyper1", 4, 1024),
        Host("hyper2", 1, 9000, vcpus_used=3),
        Host("hyper3", 4, 9000, bridges=frozenset(["br9"])),
        Host("hyper4", 4, 9000, apart=frozenset(["db"])),
        Host("hyper5", 4, 9000, pools=frozenset()),
    ]
    guest = Guest("big", 2, 2048, apart=frozenset({"db"}), bridges=frozenset(["br0"]), pools=frozenset(["default"]))
    [item] = place([guest], hosts)
    assert item.host is None
    assert item.why == (
        "it needs 2 vcpus and 2 GiB, and no hypervisor fits: hyper1: 1 GiB of memory left; hyper2: 1 vcpus left; "
        "hyper3: has no bridge br0; hyper4: has a guest of group db, whose guests stay apart; hyper5: has no active storage "
        "pool default"
    )


def test_guests_spread() -> None:
    hosts = [Host(name, 8, 16384) for name in NAMES]
    placed = place([Guest(f"web{number}", 1, 1024) for number in range(10)], hosts)
    assert sorted(t.cast(str, item.host) for item in placed) == sorted(NAMES * 2)


def test_room_is_made_for_a_big_guest() -> None:
    """By processors they come in one order, by memory they would fit in another."""
    hosts = [Host("hyper1", 100, 4096), Host("hyper2", 95, 2048, memory_used_mib=900)]
    wide, tall = place([Guest("wide", 90, 1024), Guest("tall", 1, 3500)], hosts, policy=Policy(1.0, 1.0))
    assert (wide.host, wide.why) == ("hyper2", "made room for tall on hyper1")
    assert (tall.host, tall.why) == ("hyper1", "made room by placing a smaller new guest elsewhere")


@examples(150)
@given(clusters(), POLICIES, st.sets(st.sampled_from(NAMES), min_size=1))
def test_guests_leave(cluster: tuple[list[Guest], list[Host]], policy: Policy, leave: set[str]) -> None:
    """Nobody stays or comes by choice; the same rules hold as for new guests, and no guest of another host moves."""
    guests, hosts = cluster
    placed = place(guests, hosts, policy=policy, leave=leave)
    for guest, item in zip(guests, placed):
        holder = next((host.name for host in hosts if guest.name in host.guests), None)
        assert item.host not in leave
        assert item.exists == (holder is not None and holder not in leave)
        assert item.host or "no hypervisor" in item.why
    for host in hosts:
        new = [guest for guest, item in zip(guests, placed) if item.host == host.name and not item.exists]
        old = {word for guest in guests for word in guest.apart if guest.name in host.guests}
        if new:
            check_room(dataclasses.replace(host, apart=host.apart | old), new, policy)
    assert place(guests, list(reversed(hosts)), policy=policy, leave=leave) == placed


def test_what_is_off_takes_no_room_from_what_runs() -> None:
    hosts = [Host("old", 8, 9000, guests={"big": OFF, "small": ON}), Host("new", 8, 2048)]
    big, small = place([Guest("big", 1, 2000), Guest("small", 1, 1024)], hosts, leave=["old"])
    assert (big.host, small.host) == (None, "new")
    assert big.why == "it needs 1 vcpus and 2000 MiB, and no hypervisor fits: new: 1 GiB of memory left"


def test_a_host_in_maintenance_keeps_what_it_has_and_gets_nothing() -> None:
    hosts = [Host("a", 8, 9000, guests={"web1": ON}, maintenance="new fan"), Host("b", 8, 9000)]
    there, new, pinned = place([Guest("web1", 1, 64), Guest("web2", 1, 64), Guest("web3", 1, 64, host="a")], hosts)
    assert (there.host, there.exists, new.host) == ("a", True, "b")
    assert pinned.host is None and "a: is in maintenance: new fan" in pinned.why


Greedy = t.Callable[[Load, Guest], float]
GREEDY: dict[str, Greedy] = {
    "first": lambda _load, _guest: 0.0,
    "most memory left": lambda load, _guest: -load.memory_left,
    "least memory left": lambda load, _guest: load.memory_left,
}


@examples(100)
@given(clusters(), POLICIES, st.sampled_from(sorted(GREEDY)), st.sampled_from([-1, 1]))
def test_no_greedy_rule_places_more(
    cluster: tuple[list[Guest], list[Host]], policy: Policy, rule: str, order: int
) -> None:
    """Neither the largest first nor the smallest."""
    guests, hosts = cluster
    hosts = [dataclasses.replace(host, guests={}) for host in hosts]
    guests = [dataclasses.replace(guest, host=None, apart=frozenset()) for guest in guests]
    left = sum(item.host is None for item in place(guests, hosts, policy=policy))
    loads = [Load(host, policy) for host in hosts]
    for guest in sorted(guests, key=lambda guest: (order * guest.memory_mib, guest.name)):
        fits = [load for load in loads if against(load, guest) is None]
        if fits:
            min(fits, key=lambda load: GREEDY[rule](load, guest)).put(guest)
    assert left <= len(guests) - sum(len(load.batch) for load in loads)


# What few guests ask of a host, and what hosts have of it: devices, versions, migration groups.
NEEDS: tuple[dict[str, t.Any], ...] = (
    {"devices": ("pci 1",)},
    {"devices": ("usb 2", "usb 2")},
    {"versions": (("qemu", "8"),)},
    {"runs_within": "intel"},
    {"bridges": frozenset({"br1"})},
    {"apart": frozenset({"db"})},
    {"together": frozenset({"shop"})},
    {"together": frozenset({"shop"}), "bridges": frozenset({"br1"})},
)
OFFERS: tuple[dict[str, t.Any], ...] = (
    {},
    {"devices": {}, "versions": {"qemu": "7.2.22"}, "bridges": frozenset()},
    {"bridges": frozenset({"br1"}), "apart": frozenset({"db"})},
    {"devices": {"pci 1": 1, "usb 2": 2}, "versions": {"qemu": "10.0.2"}, "migration_group": "intel"},
    {"devices": {"usb 2": 3}, "versions": {"qemu": "8.2"}, "migration_group": "intel"},
)


@pytest.mark.parametrize("particular", [False, True], ids=["room", "needs"])
@pytest.mark.parametrize("seed", range(40))
def test_one_more_host_makes_no_batch_unplaceable(seed: int, particular: bool) -> None:
    """What is placed whole without it is placed whole with it, wherever it stands among the others."""
    chance, policy = random.Random(seed), Policy(cpu_overcommit=1.0)

    def drawn(some: t.Sequence[dict[str, t.Any]]) -> dict[str, t.Any]:
        return chance.choice(some) if particular else {}

    whole = 0
    for _batch in range(25):
        hosts = [
            Host(f"h{number}", chance.choice([4, 8, 16]), chance.choice([1024, 2048, 4096]), **drawn(OFFERS))
            for number in range(chance.randint(1, 4))
        ]
        guests = [
            Guest(
                f"web{number}",
                chance.choice([1, 2, 3, 4, 6]),
                chance.choice([256, 512, 700, 1024, 1500]),
                **drawn(({},) * 8 + NEEDS),
            )
            for number in range(chance.randint(2, 12))
        ]
        if all(item.host for item in place(guests, hosts, policy=policy)):
            whole += 1
            room = chance.choice([2, 4, 8]), chance.choice([300, 1024, 4096])
            more = Host(chance.choice(["h00", "h9"]), *room, **drawn(OFFERS))
            assert all(item.host for item in place(guests, [*hosts, more], policy=policy))
    assert whole, "none was placed whole: this proves nothing"
