"""Placement as a table: at each limit of a host, and when a guest may exist elsewhere."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._plan.placement import (
    Copy,
    Guest,
    Host,
    Load,
    Placement,
    Policy,
    place,
)

UUID = "11111111-2222-3333-4444-555555555555"


def guest(name: str = "web1", vcpus: int = 2, memory_mib: int = 512, **more: t.Any) -> Guest:
    """A guest."""
    return Guest(name, vcpus, memory_mib, **more)


def host(name: str = "hyper1", cpus: int = 4, memory_mib: int = 1024, **more: t.Any) -> Host:
    """A hypervisor."""
    return Host(name, cpus, memory_mib, **more)


BRIDGES, POOLS = frozenset({"br0"}), frozenset({"fast"})
TIGHT = Policy(cpu_overcommit=1.0)
# Host, guest, policy; the reason against, empty where it fits.
LIMITS: list[tuple[dict[str, t.Any], dict[str, t.Any], Policy, str]] = [
    ({}, {}, TIGHT, ""),
    ({"memory_used_mib": 512}, {}, TIGHT, ""),
    ({"memory_used_mib": 513}, {}, TIGHT, "511 MiB of memory left"),
    ({"memory_used_mib": 2000}, {}, TIGHT, "0 MiB of memory left"),
    ({"memory_used_mib": 513}, {}, Policy(memory_overcommit=1.5), ""),
    ({}, {"memory_mib": 900}, Policy(memory_overcommit=0.8), "819 MiB of memory left"),
    ({"vcpus_used": 2}, {}, TIGHT, ""),
    ({"vcpus_used": 3}, {}, TIGHT, "1 vcpus left"),
    ({"vcpus_used": 9}, {}, TIGHT, "0 vcpus left"),
    ({"vcpus_used": 14}, {}, Policy(), ""),
    ({"vcpus_used": 15}, {}, Policy(), "1 vcpus left"),
    ({"maintenance": "new disks"}, {}, TIGHT, "is in maintenance: new disks"),
    ({"maintenance": ""}, {}, TIGHT, "is in maintenance: "),
    ({"bridges": BRIDGES}, {"bridges": BRIDGES}, TIGHT, ""),
    ({"bridges": None}, {"bridges": BRIDGES}, TIGHT, ""),
    ({"bridges": BRIDGES}, {"bridges": frozenset({"br2", "br1", "br0"})}, TIGHT, "has no bridge br1, br2"),
    ({"bridges": frozenset()}, {}, TIGHT, ""),
    ({"pools": POOLS}, {"pools": POOLS}, TIGHT, ""),
    ({"pools": None}, {"pools": POOLS}, TIGHT, ""),
    ({"pools": POOLS}, {"pools": frozenset({"slow", "fast", "big"})}, TIGHT, "has no active storage pool big, slow"),
    ({"apart": frozenset({"db"})}, {"apart": "db"}, TIGHT, "has a guest of group db, whose guests stay apart"),
    ({"apart": frozenset({"db"})}, {"apart": "web"}, TIGHT, ""),
    ({"apart": frozenset({"db"})}, {}, TIGHT, ""),
]


def test_a_guest_goes_where_no_limit_is_passed() -> None:
    wrong = []
    for its, wish, policy, reason in LIMITS:
        found = Load(host(**its), policy).against(guest(**wish))
        placed = place([guest(**wish)], [host(**its)], policy=policy)[0]
        if found != (reason or None) or placed.host != (None if reason else "hyper1") or reason not in placed.why:
            wrong.append((its, wish, reason, found, placed))
    assert not wrong


def test_a_load_counts_guests_in_and_out() -> None:
    load = Load(host(vcpus_used=1, memory_used_mib=100), TIGHT)
    empty = (load.vcpus, load.memory_mib, dict(load.batch))
    load.put(guest(apart="db"))
    assert (load.vcpus, load.memory_mib, list(load.batch)) == (3, 612, ["web1"])
    assert load.against(guest("web2", 1, 1, apart="db")) and not load.against(guest("web2", 1, 1, apart="web"))
    load.take(guest(apart="db"))
    assert (load.vcpus, load.memory_mib, load.batch) == empty and load.against(guest("web2", 1, 1, apart="db")) is None


def test_the_cost_grows_with_the_load() -> None:
    assert Load(host(), TIGHT).cost(guest()) == 1024 * 0.25 + 0.5 * 1024 * 0.25
    assert Load(host(memory_used_mib=512), TIGHT).cost(guest()) == 1024 * 0.75 + 0.5 * 1024 * 0.25
    assert Load(host(vcpus_used=2), TIGHT).cost(guest()) == 1024 * 0.25 + 0.5 * 1024 * 0.75


HERE, OFF = {"web1": Copy("running", UUID)}, {"web1": Copy("shutdown", UUID)}
# Hosts (name -> guests), the guest's own wish, hosts that were not reached, hosts to leave; host, exists, deferred,
# words.
KNOWN: list[
    tuple[dict[str, dict[str, Copy]], str | None, list[str], list[str], tuple[str | None, bool, bool], list[str]]
] = [
    ({"a": {}}, None, [], [], ("a", False, False), ["the only one with room"]),
    ({"a": {}}, "a", [], [], ("a", False, False), ["requested"]),
    ({"a": {}, "b": {}}, "b", [], [], ("b", False, False), ["requested"]),
    ({"a": {}, "b": {}}, None, [], [], ("a", False, False), ["least loaded with it, of 2"]),
    ({"a": HERE}, None, [], [], ("a", True, False), ["it is there"]),
    ({"a": HERE}, "a", [], [], ("a", True, False), ["it is there"]),
    ({"a": HERE, "b": {}}, "b", [], [], ("a", True, False), ["migrate it to b"]),
    ({"a": OFF}, None, [], [], ("a", True, False), ["it is there"]),
    ({"a": OFF, "b": HERE}, None, [], [], ("b", True, False), ["it is there"]),
    ({"a": HERE, "b": HERE}, None, [], [], (None, False, False), ["it runs on a and b at once"]),
    ({"a": HERE}, None, ["x"], [], ("a", True, False), ["it is there"]),
    ({"a": OFF}, None, ["x"], [], (None, False, True), ["x could not be reached", "it is shut off on a"]),
    ({"a": {}}, None, ["y", "x"], [], (None, False, True), ["x, y could not be reached"]),
    ({"a": {}}, "a", ["x"], [], (None, False, True), ["x could not be reached"]),
    ({"a": {}}, "x", ["x"], [], (None, False, True), ["x could not be reached"]),
    ({"a": {}}, "c", ["x"], [], (None, False, False), ["no hypervisor c", "a, x"]),
    ({"a": {}}, "c", [], [], (None, False, False), ["no hypervisor c"]),
    ({"a": HERE, "b": {}}, None, [], ["a"], ("b", False, False), ["the only one with room"]),
    ({"a": HERE}, None, [], ["a"], (None, False, False), ["no hypervisor fits"]),
    ({"a": {}, "b": {}}, None, [], ["a"], ("b", False, False), ["the only one with room"]),
    ({}, None, [], [], (None, False, False), ["there is none"]),
]


def test_a_guest_that_exists_or_may_exist_is_not_made_twice() -> None:
    wrong = []
    for hosts, wish, unreached, leave, expected, words in KNOWN:
        there = [host(name, guests=guests) for name, guests in hosts.items()]
        placed: Placement = place([guest(host=wish)], there, unreached=unreached, leave=leave)[0]
        if (placed.host, placed.exists, placed.deferred) != expected or not all(word in placed.why for word in words):
            wrong.append((hosts, wish, unreached, leave, placed))
    assert not wrong


def placed(guests: t.Sequence[Guest], hosts: t.Sequence[Host], **more: t.Any) -> dict[str, str | None]:
    """Hosts by guest."""
    return {each.guest: each.host for each in place(guests, hosts, **more)}


def test_a_smaller_guest_makes_room_for_a_bigger_one() -> None:
    hosts = [host("a", cpus=8, memory_mib=1000), host("b", cpus=8, memory_mib=400)]
    found = placed([guest("big", 1, 900), guest("small", 8, 300)], hosts, policy=TIGHT)
    assert found == {"big": "a", "small": "b"}
    pinned = placed([guest("big", 1, 900), guest("small", 8, 300, host="a")], hosts, policy=TIGHT)
    assert pinned == {"big": None, "small": "a"}
    assert placed([guest("big", 1, 1100)], hosts) == {"big": None}


def test_hosts_without_processor_or_memory_are_left_out() -> None:
    hosts = [host("a", cpus=0), host("b", memory_mib=0), host("c", cpus=1)]
    assert placed([guest(vcpus=1)], hosts) == {"web1": "c"}
    assert placed([guest(vcpus=0, memory_mib=0)], hosts[:2]) == {"web1": None}
