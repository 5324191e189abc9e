"""Placement as a table: at each limit of a host, and when a guest may exist elsewhere."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._placement import plan_host_costs, plan_rules
from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import (
    Guest,
    GuestCopy,
    Host,
    Placement,
    Policy,
)
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_host_load import Load, Neighbours
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_host_loss import with_guests
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_placement import place
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_rules import against, dislikes, mib

UUID = "11111111-2222-3333-4444-555555555555"


def guest(name: str = "web1", vcpus: int = 2, memory_mib: int = 512, **more: t.Any) -> Guest:
    """A guest."""
    return Guest(name, vcpus, memory_mib, **more)


def host(name: str = "hyper1", cpus: int = 4, memory_mib: int = 1024, **more: t.Any) -> Host:
    """A hypervisor."""
    return Host(name, cpus, memory_mib, **more)


def words(*names: str) -> frozenset[str]:
    """Names as guests and hosts have them."""
    return frozenset(names)


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
    (
        {"apart": frozenset({"db"})},
        {"apart": frozenset({"db"})},
        TIGHT,
        "has a guest of group db, whose guests stay apart",
    ),
    ({"apart": frozenset({"db"})}, {"apart": frozenset({"web"})}, TIGHT, ""),
    ({"apart": frozenset({"db"})}, {}, TIGHT, ""),
    (
        {"apart": frozenset({"db"})},
        {"apart": frozenset({"a", "db"})},
        TIGHT,
        "has a guest of group db, whose guests stay apart",
    ),
    ({"networks": words("lan")}, {"networks": words("lan")}, TIGHT, ""),
    ({"networks": words("lan")}, {"networks": words("wan", "lan")}, TIGHT, "has no active network wan"),
    ({"networks": None}, {"networks": words("wan")}, TIGHT, ""),
    ({"machines": words("pc", "q35")}, {"machines": words("q35")}, TIGHT, ""),
    ({"machines": words("pc")}, {"machines": words("q35")}, TIGHT, "does not provide machine type q35"),
    ({"cpu_models": words("EPYC")}, {"cpu_models": words("EPYC")}, TIGHT, ""),
    ({"cpu_models": words("EPYC")}, {"cpu_models": words("Haswell")}, TIGHT, "does not provide CPU model Haswell"),
    ({"platform": words("efi", "tpm")}, {"platform": words("efi", "tpm")}, TIGHT, ""),
    ({"platform": None}, {"platform": words("efi", "tpm")}, TIGHT, ""),
    (
        {"platform": words("efi")},
        {"platform": words("efi", "secure_boot", "tpm")},
        TIGHT,
        "does not provide guests with secure_boot, tpm",
    ),
    ({"groups": words("ssd", "rack1")}, {"groups": words("ssd", "rack1")}, TIGHT, ""),
    ({"groups": words("ssd")}, {"groups": words("ssd", "rack1")}, TIGHT, "is not in the group rack1"),
    ({"groups": None}, {"groups": words("ssd")}, TIGHT, ""),
    ({"devices": {"pci 1": 1}}, {"devices": ("pci 1",)}, TIGHT, ""),
    ({"devices": None}, {"devices": ("pci 1",)}, TIGHT, ""),
    ({"devices": {}}, {}, TIGHT, ""),
    ({"devices": {}}, {"devices": ("pci 1",)}, TIGHT, "has no device pci 1"),
    ({"devices": {"pci 1": 0}}, {"devices": ("pci 1",)}, TIGHT, "device pci 1 is in use"),
    ({"devices": {"usb 1": 1}}, {"devices": ("usb 1", "usb 1")}, TIGHT, "device usb 1 is in use"),
    ({"devices": {"usb 1": 2}}, {"devices": ("usb 1", "usb 1")}, TIGHT, ""),
    ({"versions": {"qemu": "8.2.2"}}, {"versions": (("qemu", "8.2"),)}, TIGHT, ""),
    ({"versions": {"qemu": "9.0"}}, {"versions": (("qemu", "9.0.0"),)}, TIGHT, ""),
    ({"versions": {"qemu": "10.0"}}, {"versions": (("qemu", "9"),)}, TIGHT, ""),
    ({"versions": {"kernel": "6.1.0-18-amd64"}}, {"versions": (("kernel", "6.1"),)}, TIGHT, ""),
    ({"versions": {"qemu": "0"}}, {"versions": (("qemu", "0.0"),)}, TIGHT, ""),
    ({"versions": {"libvirt": "9"}}, {"versions": (("qemu", "9"),)}, TIGHT, ""),
    (
        {"versions": {"libvirt": "9", "qemu": "7.2.22"}},
        {"versions": (("libvirt", "9"), ("qemu", "8"))},
        TIGHT,
        "has qemu 7.2.22, and it requires 8",
    ),
    ({"migration_group": "intel"}, {"runs_within": "intel"}, TIGHT, ""),
    ({}, {"members": words("hyper1", "hyper2")}, TIGHT, ""),
    (
        {},
        {"members": words("hyper3", "hyper2")},
        TIGHT,
        "is no member of the cluster that runs it (members: hyper2, hyper3)",
    ),
    ({}, {"refused": (("hyper2", "it has no firmware"),)}, TIGHT, ""),
    ({}, {"refused": (("hyper0", "a"), ("hyper1", "it has no firmware"))}, TIGHT, "it has no firmware"),
    ({"migration_group": "intel"}, {}, TIGHT, ""),
    ({}, {"runs_within": ""}, TIGHT, ""),
    ({}, {"runs_within": "amd"}, TIGHT, "is not in migration group amd, and the guest runs"),
    (
        {"migration_group": "intel"},
        {"runs_within": "amd"},
        TIGHT,
        "is not in migration group amd, and the guest runs",
    ),
    ({"migration_group": "intel"}, {"runs_within": ""}, TIGHT, "is in a migration group, and the guest runs"),
    ({"disk_left_mib": {"fast": 100}}, {"disks": (("fast", 100),)}, TIGHT, ""),
    (
        {"disk_left_mib": {"fast": 99.5}},
        {"disks": (("big", 9999), ("fast", 100))},
        TIGHT,
        "99 MiB left in pool fast, of 100 MiB that it needs",
    ),
    ({}, {"disks": (("fast", 100),)}, TIGHT, ""),
    (
        {"disk_left_mib": {"fast": 500, "fast/thin": 99}},
        {"disks": (("fast/thin", 100),)},
        TIGHT,
        "99 MiB left in thin pool fast/thin, of 100 MiB that it needs",
    ),
    ({"thin_pools": words("fast/thin")}, {"thin_pools": words("fast/thin")}, TIGHT, ""),
    ({"thin_pools": None}, {"thin_pools": words("fast/thin")}, TIGHT, ""),
    ({"thin_pools": words()}, {"thin_pools": words("fast/thin")}, TIGHT, "has no usable thin pool fast/thin"),
    ({"together": words("shop")}, {"together": words("shop")}, TIGHT, ""),
    ({}, {"together": words("shop")}, TIGHT, ""),
    ({"memory_used_mib": 1024, "vcpus_used": 4}, {"together": words("shop"), "vcpus": 0, "memory_mib": 0}, TIGHT, ""),
]


def test_a_guest_does_not_go_to_a_host_that_cannot_start_it_while_another_can() -> None:
    """Guests with the same needs as it go there."""
    special = dataclasses.replace(guest(), name="special", refused=(("hyper1", "it has no firmware"),))
    plain = dataclasses.replace(guest(), name="plain", prefer=frozenset({"hyper1"}))
    hosts = [host(), host(name="hyper2")]
    assert [one.host for one in place([special, plain], hosts, policy=TIGHT)] == ["hyper2", "hyper1"]
    nowhere = dataclasses.replace(special, refused=(("hyper1", "it has no firmware"), ("hyper2", "nor has this one")))
    assert [one.why for one in place([nowhere], hosts, policy=TIGHT)] == ["it has no firmware; nor has this one"]


def test_a_guest_goes_where_no_limit_is_passed() -> None:
    wrong = []
    for its, wish, policy, reason in LIMITS:
        found = against(Load(host(**its), policy), guest(**wish))
        placed = place([guest(**wish)], [host(**its)], policy=policy)[0]
        if found != (reason or None) or placed.host != (None if reason else "hyper1") or reason not in placed.why:
            wrong.append((its, wish, reason, found, placed))
    assert not wrong


@pytest.mark.parametrize("rule", plan_rules.RULES, ids=lambda rule: rule.__name__)
def test_every_rule_has_a_case_that_it_alone_breaks(rule: t.Any) -> None:
    cases = [(Load(host(**its), policy), guest(**wish)) for its, wish, policy, _reason in LIMITS]
    elsewhere = Load(host(), TIGHT)
    elsewhere.neighbours.together["shop"] = {"hyper2": 1}
    cases.append((elsewhere, guest(together=words("shop"))))
    assert [rule] in [[one for one in plan_rules.RULES if one(load, wish)] for load, wish in cases]


SHOP = words("shop")
# Guests of one group, hosts; where each goes.
TOGETHER: list[tuple[list[Guest], list[Host], list[str | None]]] = [
    ([guest("g1", 1, 100, together=SHOP), guest("g2", 1, 100, together=SHOP)], [host("a"), host("b")], ["a", "a"]),
    # all of the batch must fit, by memory and by processors, and may fill the host
    ([guest("g1", 1, 512, together=SHOP), guest("g2", 1, 512, together=SHOP)], [host("a")], ["a", "a"]),
    ([guest("g1", 1, 512, together=SHOP), guest("g2", 1, 513, together=SHOP)], [host("a")], [None, None]),
    ([guest("g1", 2, 1, together=SHOP), guest("g2", 2, 1, together=SHOP)], [host("a")], ["a", "a"]),
    ([guest("g1", 2, 1, together=SHOP), guest("g2", 3, 1, together=SHOP)], [host("a")], [None, None]),
    # where others of the group are already, as many as fit come to them
    (
        [guest("g1", 1, 600, together=SHOP), guest("g2", 1, 600, together=SHOP)],
        [host("a", together=SHOP), host("b", 8, 9000)],
        ["a", None],
    ),
]


@pytest.mark.parametrize(("guests", "hosts", "expected"), TOGETHER)
def test_guests_that_stay_together(guests: list[Guest], hosts: list[Host], expected: list[str | None]) -> None:
    assert [one.host for one in place(guests, hosts, policy=TIGHT)] == expected


RACK = {"domain": "rack1"}
# Host, guests of other hosts in the rack, guest; how many wishes it breaks.
DISLIKED: list[tuple[dict[str, t.Any], list[Guest], dict[str, t.Any], int]] = [
    ({}, [], {}, 0),
    ({}, [], {"prefer": words("hyper1")}, 0),
    ({}, [], {"prefer": words("hyper2")}, 1),
    ({"groups": words("ssd")}, [], {"prefer": words("ssd", "hyper2")}, 0),
    ({"groups": words("ssd")}, [], {"prefer": words("hdd")}, 1),
    (RACK, [guest("db1", apart=words("db"))], {"apart": words("db")}, 1),
    (RACK, [guest("db1", apart=words("db"))], {"apart": words("web")}, 0),
    (RACK, [guest("db1", apart=words("db"))], {}, 0),
    ({}, [guest("db1", apart=words("db"))], {"apart": words("db")}, 0),
    (RACK, [guest("db1", apart=words("db"))], {"apart": words("db"), "prefer": words("hyper2")}, 2),
]


@pytest.mark.parametrize(("its", "others", "wish", "count"), DISLIKED)
def test_wishes_that_a_host_breaks(
    its: dict[str, t.Any], others: list[Guest], wish: dict[str, t.Any], count: int
) -> None:
    beside = [host("hyper9", domain="rack1", apart=one.apart) for one in others]
    assert dislikes(Load(host(**its), TIGHT, neighbours=Neighbours(beside)), guest(**wish)) == count
    counted = Neighbours()
    for one in others:
        counted.count(one, host("hyper9", domain="rack1"), 1)
    load = Load(host(**its), TIGHT, neighbours=counted)
    assert dislikes(load, guest(**wish)) == count
    for one in others:
        counted.count(one, host("hyper9", domain="rack1"), -1)
    assert dislikes(load, guest(**wish)) == bool(wish.get("prefer")) * (count > 0)


def test_sizes_as_people_read_them() -> None:
    assert [mib(amount) for amount in (-1, 0.9, 10239.9, 10240, 10752)] == [
        "0 MiB",
        "0 MiB",
        "10239 MiB",
        "10 GiB",
        "10.5 GiB",
    ]


def test_a_load_counts_guests_in_and_out() -> None:
    load = Load(host(vcpus_used=1, memory_used_mib=100), TIGHT)
    empty = (load.vcpus, load.memory_mib, dict(load.batch))
    load.put(guest(apart=frozenset({"db"})))
    assert (load.vcpus, load.memory_mib, list(load.batch)) == (3, 612, ["web1"])
    assert against(load, guest("web2", 1, 1, apart=frozenset({"db"}))) and not against(
        load, guest("web2", 1, 1, apart=frozenset({"web"}))
    )
    load.take(guest(apart=frozenset({"db"})))
    assert (load.vcpus, load.memory_mib, load.batch) == empty and against(
        load, guest("web2", 1, 1, apart=frozenset({"db"}))
    ) is None


def test_the_cost_grows_with_the_load() -> None:
    hosts = [host("a"), host("b", memory_used_mib=512), host("c", vcpus_used=2)]
    one = plan_host_costs.Fleet({each.name: Load(each, TIGHT) for each in hosts})
    assert plan_host_costs.evenly(one, 512, 2, [0, 1, 2]) == [
        1024 * 0.25 + 0.5 * 1024 * 0.25,
        1024 * 0.75 + 0.5 * 1024 * 0.25,
        1024 * 0.25 + 0.5 * 1024 * 0.75,
    ]


HERE, OFF = {"web1": GuestCopy("running", UUID)}, {"web1": GuestCopy("shutdown", UUID)}
# Hosts (name -> guests), the guest's own wish, hosts that were not reached, hosts to leave; host, exists, deferred,
# words.
KNOWN: list[
    tuple[dict[str, dict[str, GuestCopy]], str | None, list[str], list[str], tuple[str | None, bool, bool], list[str]]
] = [
    ({"a": {}}, None, [], [], ("a", False, False), ["the only host that fits"]),
    ({"a": {}}, "a", [], [], ("a", False, False), ["requested"]),
    ({"a": {}, "b": {}}, "b", [], [], ("b", False, False), ["requested"]),
    ({"a": {}, "b": {}}, None, [], [], ("a", False, False), ["least loaded with it, of 2"]),
    ({"a": HERE}, None, [], [], ("a", True, False), ["it is there"]),
    ({"a": HERE}, "a", [], [], ("a", True, False), ["it is there"]),
    ({"a": HERE, "b": {}}, "b", [], [], ("a", True, False), ["it is there; migrate it to b with playbook migrate"]),
    ({"a": OFF}, None, [], [], ("a", True, False), ["it is there"]),
    ({"a": OFF, "b": HERE}, None, [], [], ("b", True, False), ["it is there"]),
    ({"a": HERE, "b": HERE}, None, [], [], (None, False, False), ["it runs on a and b at once"]),
    ({"a": HERE}, None, ["x"], [], ("a", True, False), ["it is there"]),
    ({"a": OFF}, None, ["x"], [], (None, False, True), ["x failed or could not be reached", "it is shut off on a"]),
    ({"a": {}}, None, ["y", "x"], [], (None, False, True), ["x, y failed or could not be reached"]),
    ({"a": {}}, "a", ["x"], [], (None, False, True), ["x failed or could not be reached"]),
    ({"a": {}}, "x", ["x"], [], (None, False, True), ["x failed or could not be reached"]),
    ({"a": {}}, "c", ["x"], [], (None, False, False), ["no hypervisor c", "a, x"]),
    ({"a": {}}, "c", [], [], (None, False, False), ["there is no hypervisor c; choose one of a"]),
    ({"a": HERE, "b": {}}, None, [], ["a"], ("b", False, False), ["the only host that fits"]),
    ({"a": HERE}, None, [], ["a"], (None, False, False), ["no hypervisor fits"]),
    ({"a": {}, "b": {}}, None, [], ["a"], ("b", False, False), ["the only host that fits"]),
    ({"a": OFF, "b": {}}, None, ["x"], ["a"], (None, False, True), []),
    ({"a": HERE, "b": {}}, None, ["x"], ["a"], ("b", False, False), []),
    ({}, None, [], [], (None, False, False), ["it needs 2 vcpus and 512 MiB, and no hypervisor fits: there is none"]),
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


def chosen(guests: list[Guest], hosts: list[Host], **more: t.Any) -> dict[str, tuple[str | None, str]]:
    """Where each goes, and why."""
    return {one.guest: (one.host, one.why) for one in place(guests, hosts, policy=TIGHT, **more)}


MADE_ROOM = "made room by placing a smaller new guest elsewhere"


def test_room_is_made_and_counted_on_both_hosts() -> None:
    hosts = [host("a", 8, 2000, bridges=words("x")), host("b", 8, 2000, bridges=words())]
    guests = [guest("p", 8, 100), guest("q", 1, 1900, bridges=words("x")), guest("r", 7, 100), guest("s", 1, 1)]
    assert chosen(guests, hosts) == {
        "p": ("b", "made room for q on a"),
        "q": ("a", MADE_ROOM),
        "r": ("a", "the only host that fits"),
        "s": (None, "it needs 1 vcpus and 1 MiB, and no hypervisor fits: a: 0 MiB of memory left; b: 0 vcpus left"),
    }


def four_hosts() -> list[Host]:
    return [
        host("a", 8, 2000, bridges=words("x", "p")),
        host("b", 8, 3000, bridges=words("x", "q")),
        host("c", 8, 5000, bridges=words("p", "q")),
        host("d", 8, 4000, bridges=words("q")),
    ]


def test_room_is_made_where_most_memory_is_left_and_who_goes_goes_where_it_is_cheapest() -> None:
    """Guests whose host was asked for stay."""
    p, q, big = guest("p", 8, 100, bridges=words("p")), guest("q", 8, 100, bridges=words("q")), "made room for g on"
    g = guest("g", 1, 1900, bridges=words("x"))
    assert chosen([p, q, g], four_hosts()) == {
        "p": ("a", "least loaded with it, of 2"),
        "q": ("d", f"{big} b"),
        "g": ("b", MADE_ROOM),
    }
    pinned = Guest("q", 8, 100, host="b", bridges=words("q"))
    assert chosen([p, pinned, g], four_hosts()) == {
        "p": ("c", f"{big} a"),
        "q": ("b", "requested"),
        "g": ("a", MADE_ROOM),
    }
    both = [pinned, Guest("p", 8, 100, host="a", bridges=words("p")), g]
    assert chosen(both, four_hosts())["g"][0] is None


def test_the_smallest_goes_first_where_several_could() -> None:
    hosts = [host("a", 8, 2000, bridges=words("x")), host("b", 8, 40000, bridges=words())]
    guests = [guest("p", 4, 90), guest("q", 4, 80), guest("g", 1, 1800, bridges=words("x"))]
    found = chosen(guests, hosts)
    assert (found["p"][0], found["q"], found["g"]) == ("a", ("b", "made room for g on a"), ("a", MADE_ROOM))


def test_a_guest_that_arrives_is_known_by_either_end() -> None:
    arriving = GuestCopy("paused", UUID, moving="h2", moving_from="u")
    [one] = place([guest()], [host("h1"), host("h2", guests={"web1": arriving})])
    assert one.why.startswith("it is being migrated to h2; run again when it is there") and one.deferred
    both = [host("h1", guests={"web1": GuestCopy("running", UUID, moving="h2")}), host("h2", guests={"web1": arriving})]
    [one] = place([guest()], both, leave=["h1"])
    assert (one.host, one.why) == ("h2", "it is being migrated to h2")
    assert (
        place([guest()], both[::-1], leave=["h1"]) == [one] == [Placement("web1", "h2", "it is being migrated to h2")]
    )


def moving(dest: str) -> Placement:
    """What is told of a guest that is being migrated."""
    remedy = f"run again when it is there, or finish it (playbook migrate -e guest=web1 -e to={dest})"
    return Placement("web1", None, f"it is being migrated to {dest}; {remedy}", deferred=True)


RUNS_TO = {name: GuestCopy("running", UUID, moving=name) for name in ("h2", "h3", "h9")}
RUNS, STOPPED = GuestCopy("running", UUID), GuestCopy("shutdown", UUID)
DEAD = "see the error of h9 above; where it is dead, remove it from the inventory, or: -e gone=h9 -e confirm=h9"
CHOOSE = "to choose one, set uuid, or host to h1 or h2, or rename the others (virsh domrename)"
COPIES = Placement(
    "web1",
    None,
    "it is running on h1 and paused on h2, as during a migration; run again when it is on one host, or compare the copies "
    "if none is in progress",
    deferred=True,
    unclear=True,
)
# The guest as each host has it; more; what is decided.
SETTLED: list[tuple[dict[str, GuestCopy], dict[str, t.Any], Placement]] = [
    (
        {"h1": STOPPED},
        {"unreached": ["h9"]},
        Placement(
            "web1",
            None,
            f"h9 failed or could not be reached and may have it running, and it is shut off on h1; {DEAD}",
            deferred=True,
        ),
    ),
    (
        {},
        {"unreached": ["h9"]},
        Placement(
            "web1",
            None,
            f"h9 failed or could not be reached and may have it; {DEAD}",
            deferred=True,
        ),
    ),
    (
        {},
        {"unreached": ["h9"], "gone": ["h8"]},
        Placement(
            "web1",
            None,
            f"h9 failed or could not be reached and may have it; {DEAD.replace('=h9', '=h8,h9')}",
            deferred=True,
        ),
    ),
    (
        {},
        {"excluded": ["h4", "h2", "h3", "h5", "h6"]},
        Placement(
            "web1",
            None,
            "this run leaves out h2, h3, h4 and 2 more, which may have it; run it for all hypervisors, without --limit",
            deferred=True,
        ),
    ),
    (
        {"h1": STOPPED},
        {"unreached": ["h9"], "excluded": ["h2"]},
        Placement(
            "web1",
            None,
            "h9 failed or could not be reached, this run leaves out h2, and each may have it running, and it is shut off "
            f"on h1; {DEAD}; run it for all hypervisors, without --limit",
            deferred=True,
        ),
    ),
    (
        {"h1": RUNS, "h2": GuestCopy("running", "other")},
        {},
        Placement(
            "web1",
            None,
            f"2 guests have this name (UUID {UUID} running on h1, UUID other running on h2); {CHOOSE}",
            deferred=True,
            unclear=True,
        ),
    ),
    (
        {"h1": RUNS, "h2": RUNS},
        {},
        Placement(
            "web1",
            None,
            "it runs on h1 and h2 at once; nothing was touched: compare both copies, then destroy the wrong one",
        ),
    ),
    ({"h1": RUNS_TO["h2"]}, {}, moving("h2")),
    ({"h1": RUNS_TO["h2"]}, {"leave": ["h2"]}, moving("h2")),
    ({"h1": RUNS_TO["h3"]}, {"leave": ["h1"]}, Placement("web1", "h3", "it is being migrated to h3")),
    ({"h1": RUNS_TO["h3"]}, {"leave": ["h1", "h3"]}, moving("h3")),
    ({"h1": RUNS_TO["h9"]}, {"leave": ["h1"]}, moving("h9")),  # a host that is not in this run
    # The copy that arrives has no record yet.
    (
        {"h1": GuestCopy("paused", UUID), "h2": GuestCopy("running", UUID, moving="h1")},
        {"leave": ["h2"]},
        Placement("web1", "h1", "it is being migrated to h1"),
    ),
    # Its owner has paused it, so both are.
    (
        {"h1": GuestCopy("paused", UUID, moving="h2"), "h2": GuestCopy("paused", UUID)},
        {"leave": ["h1"]},
        Placement("web1", "h2", "it is being migrated to h2"),
    ),
    # Its record of an earlier move to this host was left.
    (
        {"h2": GuestCopy("paused", UUID, moving="h2"), "h1": GuestCopy("running", UUID, moving="h3")},
        {},
        moving("h3"),
    ),
    ({"h1": RUNS, "h2": GuestCopy("paused", UUID)}, {}, COPIES),
    ({"h1": RUNS, "h2": GuestCopy("paused", UUID)}, {"leave": ["h1"]}, COPIES),
]


@pytest.mark.parametrize(("copies", "more", "expected"), SETTLED)
def test_what_was_seen_of_a_guest_is_told(
    copies: dict[str, GuestCopy], more: dict[str, t.Any], expected: Placement
) -> None:
    known = [host(name, guests={"web1": copy}) for name, copy in copies.items()]
    empty = [host(name) for name in ("h1", "h2", "h3") if name not in copies]
    assert place([guest()], [*known, *empty], **more) == [expected]


OTHER = GuestCopy("shutdown", "other")
STAYS_OFF = (
    f"it is off on h1 and h2 with the same UUID {UUID}, and no migration of it is recorded; compare the copies and undefine "
    "the wrong one (playbook purge -e guest=web1 --limit HOST)"
)
TWICE_OFF = f"{STAYS_OFF}, or set host to h1 or h2"
DIFFERENT = f"2 guests have this name (UUID {UUID} off on h1, UUID other off on h2); {CHOOSE}"
THERE, TO_H2, ON_BOTH = (
    "it is there",
    "it is there; migrate it to h2 with playbook migrate",
    "it runs on h1 and h2 at once",
)
# The guest as each host has it, what chooses one of them; its host, and why.
CHOSEN: list[tuple[dict[str, GuestCopy], dict[str, t.Any], str | None, str]] = [
    ({"h1": STOPPED, "h2": STOPPED}, {}, None, TWICE_OFF),
    ({"h1": STOPPED, "h2": STOPPED}, {"uuid": UUID}, None, TWICE_OFF),
    ({"h1": STOPPED, "h2": STOPPED}, {"host": "h3"}, None, TWICE_OFF),
    ({"h1": STOPPED, "h2": STOPPED}, {"host": "h2"}, "h2", THERE),
    ({"h1": STOPPED, "h2": OTHER}, {}, None, DIFFERENT),
    ({"h1": STOPPED, "h2": OTHER}, {"host": "h3"}, None, DIFFERENT),
    ({"h1": STOPPED, "h2": OTHER}, {"uuid": UUID}, "h1", THERE),
    ({"h1": STOPPED, "h2": OTHER}, {"uuid": "other"}, "h2", THERE),
    ({"h1": STOPPED, "h2": OTHER}, {"host": "h2"}, "h2", THERE),
    ({"h1": STOPPED, "h2": OTHER}, {"uuid": UUID, "host": "h2"}, "h1", TO_H2),
    ({"h1": RUNS, "h2": STOPPED}, {"host": "h2"}, "h1", TO_H2),
    ({"h1": RUNS, "h2": OTHER}, {}, None, DIFFERENT.replace("off on h1", "running on h1")),
    ({"h1": RUNS, "h2": OTHER}, {"uuid": "other"}, "h2", THERE),
    ({"h1": RUNS, "h2": OTHER}, {"host": "h2"}, "h2", THERE),
    ({"h1": RUNS, "h2": RUNS}, {"uuid": UUID}, None, ON_BOTH),
    ({"h1": RUNS, "h2": RUNS}, {"host": "h2"}, None, ON_BOTH),
    ({"h1": RUNS, "h2": GuestCopy("running", "other")}, {"uuid": "other"}, "h2", THERE),
]


@pytest.mark.parametrize(("copies", "wish", "expected", "why"), CHOSEN)
def test_of_several_copies_one_is_taken_only_if_it_is_known_which(
    copies: dict[str, GuestCopy], wish: dict[str, t.Any], expected: str | None, why: str
) -> None:
    hosts = [*(host(name, guests={"web1": copy}) for name, copy in copies.items()), host("h3")]
    for order in (hosts, hosts[::-1]):
        [one] = place([guest(**wish)], order)
        assert (one.host, one.exists) == (expected, expected is not None)
        assert one.deferred == one.unclear == (expected is None and why != ON_BOTH)
        assert one.why == why or (why == ON_BOTH and one.why.startswith(why))


RENAMED = (
    f"both have the UUID {UUID}; compare the copies and undefine the wrong one (playbook purge -e guest=web1 or -e "
)
RENAMED += "guest=web1-old, with --limit HOST)"
# The guest as each host has it, the same UUID under another name, more; why it is left as it is, or where it is.
ALIASES: list[tuple[dict[str, GuestCopy], dict[str, GuestCopy], dict[str, t.Any], str]] = [
    ({"h1": STOPPED}, {"h2": RUNS}, {}, f"it is off on h1 and, as web1-old, running on h2: {RENAMED}"),
    ({"h1": RUNS}, {"h2": RUNS}, {}, f"it is running on h1 and, as web1-old, running on h2: {RENAMED}"),
    (
        {"h1": STOPPED, "h2": STOPPED},
        {"h3": GuestCopy("paused", UUID)},
        {},
        f"it is off on h1 and off on h2 and, as web1-old, paused on h3: {RENAMED}",
    ),
    ({"h1": STOPPED}, {"h2": RUNS}, {"leave": ["h1"]}, f"it is off on h1 and, as web1-old, running on h2: {RENAMED}"),
    ({"h1": STOPPED}, {"h2": STOPPED}, {}, "h1"),
    ({"h1": STOPPED}, {"h2": GuestCopy("running", "other")}, {}, "h1"),
    ({"h1": GuestCopy("shutdown")}, {"h2": GuestCopy("running")}, {}, "h1"),
    (
        {},
        {"h2": STOPPED},
        {"uuid": UUID},
        f"its UUID {UUID} is that of web1-old on h2 (off); rename that guest (virsh domrename), or set another uuid",
    ),
]


@pytest.mark.parametrize(("copies", "aliases", "more", "expected"), ALIASES)
def test_a_guest_that_runs_under_another_name_is_not_taken(
    copies: dict[str, GuestCopy], aliases: dict[str, GuestCopy], more: dict[str, t.Any], expected: str
) -> None:
    hosts = [
        *(host(name, guests={"web1": copy}) for name, copy in copies.items()),
        *(host(name, guests={"web1-old": copy}) for name, copy in aliases.items()),
        host("h4"),
    ]
    [one] = place([guest(uuid=more.get("uuid"))], hosts, leave=more.get("leave", ()))
    if expected == "h1":
        assert (one.host, one.exists, one.why) == ("h1", True, "it is there")
    else:
        assert one == Placement("web1", None, expected, deferred=True, unclear=True)
    # Under its other name, one that runs is taken unless both run.
    if copies == {"h1": STOPPED} and aliases == {"h2": RUNS}:
        assert place([guest("web1-old")], hosts) == [Placement("web1-old", "h2", "it is there", exists=True)]


# A guest of that name on another host; what else is known.
BESIDE: list[tuple[dict[str, GuestCopy], dict[str, t.Any]]] = [
    ({"h1": RUNS, "h2": OTHER}, {}),
    ({"h1": STOPPED, "h2": STOPPED}, {}),
    ({"h1": RUNS_TO["h2"], "h2": GuestCopy("paused", UUID), "h3": OTHER}, {}),
    ({"h1": STOPPED, "h2": OTHER}, {"unreached": ["h9"]}),
    ({"h1": STOPPED, "h2": STOPPED}, {"excluded": ["h9"]}),
]


@pytest.mark.parametrize(("copies", "more"), BESIDE)
def test_a_leftover_of_one_guest_keeps_no_other_from_its_host(
    copies: dict[str, GuestCopy], more: dict[str, t.Any]
) -> None:
    there = GuestCopy("running", "db1-uuid")
    hosts = [
        host(name, guests={"web1": copy, **({"db1": there} if name == "h1" else {})}) for name, copy in copies.items()
    ]
    web1, db1 = place([guest(), guest("db1")], hosts, **more)
    assert web1.deferred and web1.host is None and db1 == Placement("db1", "h1", "it is there", exists=True)


def test_a_guest_does_not_leave_while_another_host_has_a_copy_that_is_off_too() -> None:
    hosts = [host("h1", guests={"web1": STOPPED}), host("h2", guests={"web1": STOPPED}), host("h3")]
    for leave in (["h1"], ["h2"]):
        [one] = place([guest(uuid=UUID)], hosts, leave=leave)
        assert one == Placement("web1", None, STAYS_OFF, deferred=True, unclear=True)


def test_a_guest_that_leaves_has_no_options_that_could_choose_between_namesakes() -> None:
    hosts = [host("h1", guests={"web1": STOPPED}), host("h2", guests={"web1": OTHER}), host("h3")]
    [one] = place([guest()], hosts, leave=["h1"])
    assert one.why == (
        f"2 guests have this name (UUID {UUID} off on h1, UUID other off on h2); rename the others (virsh domrename)"
    )


def test_another_guest_of_that_name_keeps_a_guest_with_a_uuid_away() -> None:
    hosts = [host("h1", guests={"web1": GuestCopy("shutdown", "other")}), host("h2")]
    [one] = place([guest(uuid=UUID)], hosts)
    assert one == Placement("web1", "h2", "the only host that fits")
    [one] = place([guest(uuid=UUID)], hosts[:1])
    assert one.why == (
        "it needs 2 vcpus and 512 MiB, and no hypervisor fits: h1: has another guest named web1 (UUID other); rename "
        "one of them (virsh domrename)"
    )
    # One that leaves a host may come back to its own definition there, and one without a UUID is known by its name.
    assert against(Load(host(guests={"web1": GuestCopy("shutdown", UUID)}), TIGHT), guest(uuid=UUID)) is None
    assert against(Load(hosts[0], TIGHT), guest()) is None


def test_a_guest_that_was_put_on_a_host_by_request_stays_while_another_makes_room() -> None:
    hosts = [host("a", 8, 2000, bridges=words("x")), host("b", 8, 40000, bridges=words())]
    guests = [Guest("r", 2, 50, host="a"), guest("p", 4, 90), guest("g", 1, 1900, bridges=words("x"))]
    assert chosen(guests, hosts) == {
        "r": ("a", "requested"),
        "p": ("b", "made room for g on a"),
        "g": ("a", MADE_ROOM),
    }


def test_nobody_makes_room_for_a_guest_that_would_not_fit_then() -> None:
    hosts = [host("a", 8, 2000, bridges=words("x")), host("b", 8, 40000, bridges=words())]
    assert chosen([guest("p", 4, 90), guest("g", 1, 2001, bridges=words("x"))], hosts) == {
        "p": ("a", "least loaded with it, of 2"),
        "g": (
            None,
            "it needs 1 vcpus and 2001 MiB, and no hypervisor fits: a: 1910 MiB of memory left; b: has no bridge x",
        ),
    }


def test_groups_that_stay_apart_count_what_is_there() -> None:
    there = host("h1", guests={"web1": GuestCopy("running", UUID)})
    placed = place(
        [guest(apart=frozenset({"web"})), guest("web2", apart=frozenset({"web"}))], [there, host("h2")], policy=TIGHT
    )
    assert [(one.host, one.exists) for one in placed] == [("h1", True), ("h2", False)]


def test_a_host_without_processors_or_memory_takes_nobody() -> None:
    for empty in (host("h1", cpus=0), host("h1", memory_mib=0)):
        [one] = place([guest()], [empty])
        assert one.host is None and one.why.endswith("no hypervisor fits: there is none")
    [one] = place([guest(vcpus=1, memory_mib=1)], [host("h1", cpus=1, memory_mib=1)], policy=TIGHT)
    assert one.host == "h1"
    hosts = [host("a", cpus=0), host("b", memory_mib=0), host("c", cpus=1)]
    assert placed([guest(vcpus=1)], hosts) == {"web1": "c"}
    assert placed([guest(vcpus=0, memory_mib=0)], hosts[:2]) == {"web1": None}


def test_of_many_hosts_is_told_what_they_lack_not_each() -> None:
    full = [host(f"h{number:03}", 4, 1024, memory_used_mib=number) for number in range(96)]
    fans = [host(f"m{number}", 64, 9000, maintenance=f"fan {number}") for number in range(3)]
    busy, bare = host("busy", 2, 9000, vcpus_used=7), host("bare", 64, 9000, bridges=frozenset())
    [one] = place([guest(memory_mib=2048, bridges=BRIDGES)], [*full, *fans, busy, bare])
    assert one.why == (
        "it needs 2 vcpus and 2 GiB, and no hypervisor fits, of 101: h000, h001, h002 and 93 more: lacks memory "
        "(most left: 1 GiB on h000); m0, m1, m2: is in maintenance; bare: has no bridge br0; busy: lacks vcpus "
        "(most left: 1 on busy)"
    )
    [one] = place([guest(vcpus=9)], [*fans, *(host(f"b{cpus}", cpus) for cpus in range(8, 2, -1))], policy=TIGHT)
    assert one.why.endswith("b3, b4, b5 and 3 more: lacks vcpus (most left: 8 on b8); m0, m1, m2: is in maintenance")
    for count, each in ((8, "h000: 1 GiB of memory left; h001: 1023 MiB"), (9, "of 9: h000, h001, h002 and 6 more:")):
        assert each in place([guest(memory_mib=2048)], full[:count])[0].why
    several = place([guest(f"web{number}", memory_mib=900_000) for number in range(20)], [*full, *fans])
    assert sum(len(each.why) for each in several) < 4000


def test_where_memory_and_processors_are_scarce_guests_are_packed_again() -> None:
    """Spread evenly, one of them finds no room, and none can make it."""
    hosts = [host(f"h{number}", 8, 8000) for number in range(2)]
    sizes = [(2, 3000), (4, 2000), (2, 3000), (1, 1000), (2, 2000), (5, 5000)]
    guests = [guest(f"web{number}", *size) for number, size in enumerate(sizes)]
    assert None not in placed(guests, hosts, policy=TIGHT).values()
    # What fits on no host, full or empty, is no reason to pack the others otherwise.
    spread = [guest(f"web{number}", 1, 1000) for number in range(4)]
    found = placed([*spread, guest("big", 1, 9000)], hosts, policy=TIGHT)
    assert found == {**placed(spread, hosts, policy=TIGHT), "big": None}
    assert sorted(str(found[one.name]) for one in spread) == ["h0", "h0", "h1", "h1"]


def test_where_a_host_is_too_small_for_all_fewest_are_left() -> None:
    several = [guest(f"web{number}", 1, 250) for number in range(4)]
    found = placed([guest("big", 1, 900), *several], [host("a", 8, 1000)], policy=TIGHT)
    assert found == {"big": None, **{one.name: "a" for one in several}}


def test_disks_of_a_batch_share_the_room_of_a_pool() -> None:
    guests = [guest(f"web{n}", 0, 1, disks=(("fast", 60),)) for n in range(3)]
    assert list(placed(guests, [host(disk_left_mib={"fast": 130})]).values()).count("hyper1") == 2


def test_guests_of_a_batch_share_no_device() -> None:
    """Also where one makes room for another, and where a guest has it already."""
    hosts = [host("a", devices={"usb 1": 1, "usb 2": 1}), host("b", devices={"usb 1": 1, "usb 2": 0})]
    guests = [guest(name, 1, 10, devices=("usb 1",)) for name in ("g1", "g2", "g3")]
    found = {one.guest: one.host for one in place(guests, hosts)}
    assert found == {"g1": "a", "g2": "b", "g3": None}
    [_first, _second, third] = place(guests, hosts)
    assert "a: device usb 1 is in use; b: device usb 1 is in use" in third.why
    assert placed([guest("g1", 1, 10, devices=("usb 2",))], hosts) == {"g1": "a"}
    load = Load(host(devices={"usb 1": 1}), TIGHT)
    load.put(guests[0])
    assert (load.devices_left("usb 1"), load.devices_left("usb 2")) == (0, None)
    load.take(guests[0])
    assert load.devices_left("usb 1") == 1


def test_of_many_hosts_is_told_which_are_too_old() -> None:
    hosts = [host(f"h{n:02d}", versions={"qemu": f"7.{n}"}, devices={}) for n in range(10)]
    [old] = place([guest(versions=(("qemu", "8"),))], hosts)
    assert old.why.endswith("of 10: h00, h01, h02 and 7 more: has qemu older than 8")
    [bound] = place([guest(devices=("pci 1",))], hosts)
    assert bound.why.endswith("of 10: h00, h01, h02 and 7 more: has no device pci 1")


def test_a_group_that_stays_together_is_placed_whole_or_not() -> None:
    """The first one goes where all have room, and others of a later batch follow."""
    hosts = [host("a", 8, 1500), host("b", 8, 3000)]
    group = [guest(f"shop{n}", 1, 600, together=words("shop")) for n in range(3)]
    assert placed([*group, guest("big", 1, 1400)], hosts) == {"shop0": "b", "shop1": "b", "shop2": "b", "big": "a"}
    found = place([*group, guest("shop3", 1, 2000, together=words("shop"))], hosts)
    assert {one.host for one in found} == {None}
    assert "cannot have all of group shop, which needs 4 vcpus and 3800 MiB: 3000 MiB of memory left" in found[0].why
    later = [host("a", 8, 9000), host("b", 8, 9000, together=words("shop"))]
    assert placed(group, later) == dict.fromkeys(("shop0", "shop1", "shop2"), "b")
    full = [host("a", 8, 9000), host("b", 8, 100, together=words("shop"))]
    assert "a: guests of group shop stay together on b" in place(group[:1], full)[0].why


def shop(name: str, memory_mib: int = 100, **more: t.Any) -> Guest:
    """A guest that stays with the others of its group."""
    return guest(name, 1, memory_mib, **{"together": words("shop"), **more})


# What two guests of a group need, hosts; where both go, and why not.
WHOLE: list[tuple[dict[str, t.Any], dict[str, t.Any], list[Host], str | None, str]] = [
    ({}, {"bridges": BRIDGES}, [host("a", bridges=words()), host("b", memory_used_mib=100, bridges=BRIDGES)], "b", ""),
    ({}, {"pools": POOLS}, [host("a", pools=words()), host("b", memory_used_mib=100, pools=POOLS)], "b", ""),
    ({}, {"devices": ("pci 1",)}, [host("a", devices={}), host("b", memory_used_mib=1, devices={"pci 1": 1})], "b", ""),
    ({"devices": ("pci 1",)}, {"devices": ("pci 1",)}, [host("a", devices={"pci 1": 1})], None, "pci 1 is in use"),
    ({}, {"apart": words("db")}, [host("a", apart=words("db")), host("b", memory_used_mib=100)], "b", ""),
    ({}, {"host": "b"}, [host("a"), host("b", memory_used_mib=100)], "b", ""),
    ({"host": "a"}, {"host": "b"}, [host("a"), host("b")], None, "they request a and b"),
    ({"apart": words("db")}, {"apart": words("db")}, [host("a"), host("b")], None, "they stay apart by group db"),
    ({"runs_within": ""}, {"runs_within": "amd"}, [host("a")], None, "they run in migration groups '' and 'amd'"),
    (
        {"disks": (("fast", 60),)},
        {"disks": (("fast", 60),)},
        [host("a", disk_left_mib={"fast": 100}), host("b", memory_used_mib=1, disk_left_mib={"fast": 120})],
        "b",
        "",
    ),
    ({"uuid": "u1"}, {}, [host("a", guests={"g1": GuestCopy("shutdown", "other")}), host("b")], "b", ""),
    ({}, {"refused": (("a", "it does not see /srv"),)}, [host("a"), host("b", memory_used_mib=100)], "b", ""),
    (
        {},
        {"refused": (("a", "it does not see /srv"),)},
        [host("a")],
        None,
        "a: cannot have all of group shop, which needs 2 vcpus and 200 MiB: g2: it does not see /srv",
    ),
    ({"members": words("a")}, {"members": words("a", "b")}, [host("a", memory_used_mib=100), host("b")], "a", ""),
    ({"members": words("a")}, {"members": words("b")}, [host("a"), host("b")], None, "they run in different clusters"),
    # a guest of two groups makes one of them
    (
        {},
        {"together": words("shop", "bar"), "bridges": BRIDGES},
        [host("a", bridges=words()), host("b", 4, 999)],
        "b",
        "",
    ),
]


@pytest.mark.parametrize(("first", "second", "hosts", "expected", "reason"), WHOLE)
def test_a_group_goes_where_all_of_it_can_be(
    first: dict[str, t.Any], second: dict[str, t.Any], hosts: list[Host], expected: str | None, reason: str
) -> None:
    found = place([shop("g1", **first), shop("g2", **second)], hosts)
    assert [one.host for one in found] == [expected, expected] and reason in found[0].why
    assert place([shop("g2", **second), shop("g1", **first)], hosts[::-1]) == found[::-1]


def test_a_group_of_which_one_is_off_is_not_divided_by_others() -> None:
    hosts = [
        host("old", guests={"g1": GuestCopy("running", UUID), "g2": OFF["web1"]}),
        host("a", 8, 250),
        host("b", 8, 240),
    ]
    found = placed([shop("g1"), shop("g2"), guest("web9", 1, 140)], hosts, leave=["old"])
    assert found == {"g1": "a", "g2": "a", "web9": "b"}


@pytest.mark.parametrize(
    ("prefer", "expected"),
    [((), "a"), (("b",), "b"), (("ssd",), "c"), (("b", "ssd"), "b"), (("full",), "a"), (("nobody",), "a")],
)
def test_what_is_preferred_is_taken_where_there_is_room(prefer: tuple[str, ...], expected: str) -> None:
    hosts = [
        host("a", 8, 9000),
        host("b", 8, 9000, memory_used_mib=100),
        host("c", 8, 9000, memory_used_mib=200, groups=words("ssd")),
        host("full", 8, 9000, memory_used_mib=9000),
    ]
    assert placed([guest(prefer=words(*prefer))], hosts) == {"web1": expected}


def test_guests_that_stay_apart_prefer_different_failure_domains() -> None:
    racks = {"a": "r1", "b": "r1", "c": "r2"}
    hosts = [host(name, 8, 9000 if name != "c" else 2000, domain=rack) for name, rack in racks.items()]
    guests = [guest(f"db{n}", 1, 100, apart=words("db")) for n in range(3)]
    two = placed(guests[:2], hosts)
    assert {racks[str(name)] for name in two.values()} == {"r1", "r2"}
    assert set(placed(guests, hosts).values()) == {"a", "b", "c"}
    known = [dataclasses.replace(hosts[0], apart=words("db")), *hosts[1:]]
    assert placed(guests[:1], known) == {"db0": "c"}


def test_neighbours_are_counted_in_and_out() -> None:
    """By host, and by failure domain where the host is in one."""
    inside, outside = host("a", together=words("shop"), apart=words("db"), domain="rack1"), host("b", apart=words("db"))
    near = Neighbours([inside, outside], [guest(together=words("shop")), guest("web2", 3, 100, together=words("shop"))])
    assert (near.together, near.apart) == ({"shop": {"a": 1}}, {("db", "rack1"): 1})
    whole = near.bundles["shop"].guest
    assert (whole.memory_mib, whole.vcpus) == (612, 5)
    more = guest(together=words("shop"), apart=words("db"))
    near.count(more, inside, 1)
    near.count(more, outside, 1)
    assert (near.together, near.apart) == ({"shop": {"a": 2, "b": 1}}, {("db", "rack1"): 2})
    for _time in range(2):
        near.count(more, inside, -1)
    near.count(more, outside, -1)
    assert (near.together, near.apart) == ({"shop": {}}, {})


def test_pools_of_one_filesystem_share_its_room() -> None:
    rooms = {"fast": 100, "iso": 100, "slow": 100}
    shared = host(disk_left_mib=rooms, filesystems={"fast": "2049", "iso": "2049", "slow": "2050"})
    here = Load(shared, TIGHT)
    here.put(guest(disks=(("fast", 60),)))
    assert [here.disk_left(pool) for pool in rooms] == [40, 40, 100]
    here.put(guest("web2", disks=(("iso", 40), ("slow", 1))))
    assert [here.disk_left(pool) for pool in rooms] == [0, 0, 99]
    guests = [guest(name, disks=((pool, 60),)) for name, pool in (("web1", "fast"), ("web2", "iso"))]
    two = guest(disks=(("fast", 60), ("iso", 60), ("slow", 60)))
    why = "100 MiB left in pools fast, iso of one filesystem, of 120 MiB that it needs"
    assert against(Load(shared, TIGHT), two) == why
    assert against(Load(dataclasses.replace(shared, filesystems={}), TIGHT), two) is None
    [placed_two] = place([two], [shared, host("hyper2", disk_left_mib=dict.fromkeys(rooms, 70))], policy=TIGHT)
    assert placed_two.host == "hyper2"
    [filled] = with_guests([shared], [(each, shared.name) for each in guests])
    assert filled.disk_left_mib == {"fast": -20, "iso": -20, "slow": 100}


def test_what_a_host_has_left() -> None:
    here = Load(host(disk_left_mib={"fast": 100.0}, devices={"pci 1": 2}), Policy(cpu_overcommit=2.0))
    some = guest(disks=(("fast", 30),), devices=("pci 1",), apart=words("db"))

    def left() -> tuple[object, ...]:
        return (
            here.cpu_left,
            here.memory_left,
            here.disk_left("fast"),
            here.devices_left("pci 1"),
            "db" in here.apart,
        )

    before = left()
    assert before == (8.0, 1024.0, 100.0, 2, False)
    assert (here.disk_left("slow"), here.devices_left("usb 1")) == (None, None)
    assert Load(host(), TIGHT).devices_left("pci 1") is None
    here.put(some)
    assert left() == (6.0, 512.0, 70.0, 1, True)
    here.put(dataclasses.replace(some, name="web2"))
    assert left() == (4.0, 0.0, 40.0, 0, True)
    here.take(some)
    here.take(dataclasses.replace(some, name="web2"))
    assert left() == before and not here.batch
    assert "db" in Load(host(), TIGHT, apart=["db"]).apart


@pytest.mark.parametrize(
    ("used", "wish", "skew"),
    [
        # (share of memory - share of processors) squared, afterwards less before, times the memory
        ((0, 0), (1, 256), 0.0),
        ((0, 0), (1, 512), 1024 * 0.25**2),
        ((0, 0), (2, 256), 1024 * 0.25**2),
        ((0, 512), (1, 512), 1024 * (0.75**2 - 0.5**2)),
        ((2, 0), (0, 512), 1024 * (0.0 - 0.5**2)),
        ((1, 512), (0, 0), 0.0),
    ],
)
def test_how_far_a_guest_brings_memory_and_processors_apart(
    used: tuple[int, int], wish: tuple[int, int], skew: float
) -> None:
    here = plan_host_costs.Fleet({"a": Load(host("a", vcpus_used=used[0], memory_used_mib=used[1]), TIGHT)})
    [found] = plan_host_costs.skew(here, wish[1], wish[0], [0])
    assert found == pytest.approx(skew)
    assert plan_host_costs.skewed(here, wish[1], wish[0], [0]) == [
        found + 0.05 * plan_host_costs.evenly(here, wish[1], wish[0], [0])[0]
    ]
    then = abs((used[1] + wish[1]) / 1024 - (used[0] + wish[0]) / 4)
    assert plan_host_costs.skew_after(here, wish[1], wish[0], [0]) == [pytest.approx(then)]
