"""Which claims are believed, what is recorded, and what guests are asked."""

from __future__ import annotations

import dataclasses
import ipaddress
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._address import plan_address, plan_ethernet
from ansible_collections.corral.virt.plugins.module_utils._domain.model_address import (
    AddressClaim,
    AddressedGuest,
    HostLinks,
    Nic,
    Sighting,
    host_address,
)

WEB, DB, DB2 = "52:54:00:00:00:01", "52:54:00:00:00:02", "52:54:00:00:00:03"
HERE = ipaddress.ip_interface("192.0.2.1/24")
LINKS = HostLinks(
    addresses={
        "br0": (HERE, ipaddress.ip_interface("fe80::1/64")),
        "eth1": (ipaddress.ip_interface("198.51.100.1/24"),),
    },
    macs={"br0": "02:00:00:00:00:01"},
    routers=frozenset({"192.0.2.254"}),
    neighbours={("br0", "192.0.2.9"): "02:00:00:00:00:99", ("br0", "192.0.2.10"): "02:00:00:00:00:98"},
    live=frozenset({("br0", "192.0.2.9")}),
)
X, Y = "192.0.2.7", "192.0.2.8"


def web(*claims: tuple[str, str], bridge: str = "br0", **more: t.Any) -> AddressedGuest:
    """The guest that claims these, each with its source."""
    made = tuple(AddressClaim(WEB, address, source) for address, source in claims)
    return AddressedGuest("1", "web1", nics=(Nic(WEB, "vnet0", bridge),), claims=made, **more)


def db(*claims: tuple[str, str], **more: t.Any) -> AddressedGuest:
    """Another one on the same bridge."""
    return AddressedGuest(
        "2", "db1", nics=(Nic(DB, "vnet1", "br0"),), claims=tuple(AddressClaim(DB, *claim) for claim in claims), **more
    )


def seen(mac: str, address: str, source: str = "packets", since: int = 100) -> tuple[Sighting, ...]:
    """A record of one address."""
    return (Sighting(mac, address, source, since),)


def believed(*guests: AddressedGuest, settled: bool = True, links: HostLinks = LINKS) -> dict[str, list[str]]:
    """Addresses by name of the guest."""
    verdict = plan_address.judge(guests, links, settled=settled)
    return {guest.name: [claim.address for claim in verdict.believed[guest.uuid]] for guest in guests}


@pytest.mark.parametrize("source", ["lease", "dhcp", "arp", "packets", "agent"])
def test_an_address_of_the_bridge_is_believed(source: str) -> None:
    assert believed(web((X, source))) == {"web1": [X]}


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        (("192.0.2.1", "lease"), "it is this hypervisor's own address"),
        (("198.51.100.1", "packets"), "it is this hypervisor's own address"),
        (("192.0.2.254", "dhcp"), "it is the router of br0"),
        (("203.0.113.7", "agent"), "br0 has 192.0.2.0/24"),
        (("198.51.100.7", "dhcp"), "br0 has 192.0.2.0/24"),
        (("192.0.2.0", "packets"), "it is not a host address"),
        (("192.0.2.255", "packets"), "it is not a host address"),
        (("127.0.0.1", "agent"), "it is not a host address"),
        (("fe80::7", "agent"), "it is not a host address"),
        (("192.0.2.9", "packets"), "02:00:00:00:00:99 answers for it"),
        (("192.0.2.9", "agent"), "02:00:00:00:00:99 answers for it"),
    ],
)
def test_what_no_guest_can_have_is_refused(claim: tuple[str, str], why: str) -> None:
    verdict = plan_address.judge([web(claim)], LINKS, settled=True)
    assert verdict.believed["1"] == ()
    assert verdict.refused["1"] == (f"{claim[0]} ({claim[1]}): {why}",)


def test_a_neighbour_that_answered_long_ago_or_a_dhcp_server_that_knows_better() -> None:
    assert believed(web(("192.0.2.10", "packets"))) == {"web1": ["192.0.2.10"]}
    assert believed(web(("192.0.2.9", "dhcp"))) == {"web1": ["192.0.2.9"]}
    own = dataclasses.replace(LINKS, neighbours={("br0", X): WEB}, live=frozenset({("br0", X)}))
    assert believed(web((X, "packets")), links=own) == {"web1": [X]}


def test_a_bridge_on_which_the_host_has_no_address() -> None:
    assert believed(web(("203.0.113.7", "packets"), bridge="br7")) == {"web1": ["203.0.113.7"]}
    assert believed(web(("198.51.100.7", "packets"), bridge="br7")) == {"web1": []}, "it is in the network of eth1"
    assert believed(web(("2001:db8::7", "packets"))) == {"web1": ["2001:db8::7"]}, "fe80::/64 is on every link"


def test_what_another_interface_says_is_not_the_guests() -> None:
    guest = dataclasses.replace(web(), claims=(AddressClaim(DB, X, "agent"),))
    assert believed(guest) == {"web1": []}
    assert believed(web((X, "packets"), running=False)) == {"web1": []}


@pytest.mark.parametrize(
    ("sources", "best"),
    [
        (("packets", "lease"), "lease"),
        (("lease", "packets"), "lease"),
        (("arp", "packets"), "arp"),  # as good as the other one
    ],
)
def test_an_address_that_several_tell_of_is_believed_once(sources: tuple[str, ...], best: str) -> None:
    verdict = plan_address.judge([web(*((X, source) for source in sources))], LINKS, settled=True)
    assert [claim.source for claim in verdict.believed["1"]] == [best]


def test_what_a_better_witness_tells_comes_first() -> None:
    guest = web((X, "packets"), (Y, "lease"))
    assert believed(guest) == {"web1": [Y, X]}
    assert plan_address.addresses(guest, guest.claims) == [Y, X]


def test_both_ends_of_an_ipv6_network_are_hosts() -> None:
    links = dataclasses.replace(LINKS, addresses={"br0": (ipaddress.ip_interface("2001:db8::1/64"),)})
    last = "2001:db8::ffff:ffff:ffff:ffff"
    assert believed(web((last, "packets")), links=links) == {"web1": [last]}


def test_what_the_operator_gave_needs_no_network() -> None:
    assert believed(web(("203.0.113.7", "packets"), assigned=("203.0.113.7",))) == {"web1": ["203.0.113.7"]}
    assert believed(web(("192.0.2.1", "packets"), assigned=("192.0.2.1",))) == {"web1": []}


@pytest.mark.parametrize(
    ("mine", "other", "settled", "expected"),
    [
        pytest.param("packets", db(assigned=(X,)), True, [], id="assigned to another one"),
        pytest.param("lease", db(assigned=(X,), running=False), True, [], id="assigned to one that is off"),
        pytest.param("packets", db((X, "packets")), True, [], id="both claim it"),
        pytest.param("dhcp", db((X, "packets")), True, [X], id="a DHCP server speaks for this one"),
        pytest.param("packets", db((X, "dhcp")), True, [], id="a DHCP server speaks for the other one"),
        pytest.param(
            "packets", db((X, "packets"), seen=seen(DB, X)), True, [], id="the other one is there, and was before"
        ),
        pytest.param("packets", db(seen=seen(DB, X)), False, [], id="the other one may yet answer"),
        pytest.param("packets", db(seen=seen(DB, X)), True, [X], id="the other one has not answered"),
        pytest.param("packets", db((Y, "packets"), seen=seen(DB, X)), False, [X], id="the other one is elsewhere"),
        pytest.param(
            "packets", db((Y, "packets"), seen=seen(DB, X, "dhcp")), False, [X], id="elsewhere, whoever said so before"
        ),
        pytest.param(
            "packets", db(("2001:db8::7", "packets"), seen=seen(DB, X)), False, [], id="another family is not elsewhere"
        ),
        pytest.param(
            "packets",
            dataclasses.replace(
                db(seen=seen(DB, X)),
                nics=(Nic(DB, "vnet1", "br0"), Nic(DB2, "vnet2", "br0")),
                claims=(AddressClaim(DB2, Y, "packets"),),
            ),
            False,
            [],
            id="another interface is not elsewhere",
        ),
        pytest.param("packets", db(seen=seen(DB, X, "dhcp")), True, [], id="silent, but a DHCP server gave it"),
        pytest.param("dhcp", db(seen=seen(DB, X, "dhcp")), True, [X], id="the DHCP server gave it to this one since"),
        pytest.param(
            "dhcp",
            db((X, "packets"), seen=seen(DB, X, "dhcp")),
            True,
            [],
            id="the other one had it from DHCP and is there",
        ),
        pytest.param(
            "lease", db((X, "packets"), seen=seen(DB, X, "dhcp")), True, [X], id="libvirt's own server is believed"
        ),
        pytest.param("packets", db(seen=seen(DB, X, "lease"), running=False), True, [X], id="the other one is off"),
        pytest.param("packets", db(seen=seen(DB, Y)), True, [X], id="the other one was elsewhere"),
    ],
)
def test_an_address_of_two(mine: str, other: AddressedGuest, settled: bool, expected: list[str]) -> None:
    assert believed(web((X, mine)), other, settled=settled)["web1"] == expected


def test_a_liar_does_not_displace_who_was_there_before() -> None:
    honest, liar = web((X, "packets"), seen=seen(WEB, X)), db((X, "packets"), (Y, "packets"))
    assert believed(honest, liar) == {"web1": [X], "db1": [Y]}
    verdict = plan_address.judge([honest, liar], LINKS, settled=True)
    assert verdict.refused["2"] == (f"{X} (packets): web1 uses it",)
    assert not verdict.lost


def test_who_has_lost_an_address_is_told() -> None:
    old = db(seen=(*seen(DB, X), *seen(DB, "2001:db8::8")))
    verdict = plan_address.judge([web((X, "packets")), old], LINKS, settled=True)
    assert verdict.lost == {"2": {old.seen[0]: "web1"}}
    assert plan_address.recorded(old, (), verdict.lost["2"], now_s=200) == old.seen[1:]


@pytest.mark.parametrize(
    ("before", "claims", "after"),
    [
        ((), [], []),
        ((), [(X, "packets")], [(X, "packets", 200)]),
        (seen(WEB, X), [], [(X, "packets", 100)]),
        (seen(WEB, X), [(X, "packets")], [(X, "packets", 100)]),
        (seen(WEB, X), [(Y, "packets")], [(Y, "packets", 200)]),
        (seen(WEB, X), [(Y, "dhcp"), (X, "packets")], [(X, "packets", 100)]),
        (seen(WEB, X), [(X, "dhcp")], [(X, "dhcp", 100)]),
        (seen(WEB, X), [(X, "arp")], [(X, "packets", 100)]),
        (seen(WEB, X, "dhcp"), [(X, "packets")], [(X, "dhcp", 100)]),
        ((), [(Y, "packets"), (X, "packets")], [(X, "packets", 200)]),
        ((), [(X, "packets"), (Y, "dhcp")], [(Y, "dhcp", 200)]),
        ((), [("2001:db8::7", "packets"), (X, "packets")], [(X, "packets", 200), ("2001:db8::7", "packets", 200)]),
        (seen(DB, Y), [(X, "packets")], [(X, "packets", 200)]),
    ],
)
def test_what_is_recorded(
    before: tuple[Sighting, ...], claims: list[tuple[str, str]], after: list[tuple[str, str, int]]
) -> None:
    """And recording it again changes nothing."""
    guest = web(*claims, seen=before)
    result = plan_address.recorded(guest, guest.claims, (), now_s=200)
    assert [(one.address, one.source, one.since) for one in result] == after
    assert plan_address.recorded(dataclasses.replace(guest, seen=result), guest.claims, (), now_s=300) == result


def test_with_a_guest_of_others_nothing_is_recorded_until_it_is_named() -> None:
    guest = web((X, "packets"), seen=seen(WEB, Y), managed=False)
    assert plan_address.recorded(guest, guest.claims, (), now_s=200) == guest.seen
    assert [one.address for one in plan_address.recorded(guest, guest.claims, (), now_s=200, named=True)] == [X]


def test_an_assigned_address_is_not_recorded_twice() -> None:
    guest = web((X, "packets"), assigned=(X,))
    assert plan_address.recorded(guest, guest.claims, (), now_s=200) == ()
    assert plan_address.addresses(guest, guest.claims) == [X]


def test_addresses_in_the_order_of_their_use() -> None:
    guest = web(("2001:db8::7", "lease"), (Y, "packets"), (X, "dhcp"), seen=seen(WEB, Y))
    assert plan_address.addresses(guest, guest.claims) == [Y, X, "2001:db8::7"]


def test_only_who_is_sought_is_asked_for_all_addresses() -> None:
    known = db(seen=(*seen(DB, Y), *seen(DB, "2001:db8::8"), *seen(DB, "203.0.113.1"), *seen(WEB, X)))
    assert [device for device, _frame in plan_address.questions([web(), known], LINKS, {"1"})] == ["vnet0"] * 253 + [
        "vnet1"
    ]
    assert not list(plan_address.questions([web(running=False)], LINKS, {"1"}))
    large = dataclasses.replace(LINKS, addresses={"br0": (ipaddress.ip_interface("10.0.0.1/16"),)})
    assert not list(plan_address.questions([web()], large, {"1"}))
    assert not list(plan_address.questions([web()], HostLinks(), {"1"}))


@pytest.mark.parametrize(
    ("hosts_address", "addresses"),
    [("192.0.2.1/29", 5), ("192.0.2.1/22", 1021), ("192.0.2.1/21", 0)],
)
def test_only_a_small_network_is_swept(hosts_address: str, addresses: int) -> None:
    links = dataclasses.replace(LINKS, addresses={"br0": (ipaddress.ip_interface(hosts_address),)})
    assert len(list(plan_address.questions([web()], links, {"1"}))) == addresses


@pytest.mark.parametrize("sought", [(), ("1",)])
def test_what_was_recorded_of_an_interface_is_asked_first(sought: tuple[str, ...]) -> None:
    guest = web(seen=(*seen(DB, X), *seen(WEB, Y)))
    asked = list(plan_address.questions([guest], LINKS, sought))
    assert asked[0] == ("vnet0", plan_ethernet.question(Y, mac=WEB, sender="192.0.2.1", sender_mac=LINKS.macs["br0"]))
    assert len(asked) == len(set(asked)) == (253 if sought else 1)


@pytest.mark.parametrize("silent", [Nic(WEB, "", "br0"), Nic(WEB, "vnet0", "br1")])
def test_an_interface_without_a_device_or_a_sender_keeps_no_other_from_being_asked(silent: Nic) -> None:
    links = dataclasses.replace(LINKS, addresses={"br0": (HERE,), "br1": (HERE,)})
    guest = dataclasses.replace(web(seen=seen(DB, Y)), nics=(silent, Nic(DB, "vnet1", "br0")))
    assert [device for device, _frame in plan_address.questions([guest], links, ())] == ["vnet1"]
    only = dataclasses.replace(guest, nics=(silent,))
    assert not list(plan_address.questions([only], links, {"1"}))


def test_records_are_read_as_they_are_written_or_not_at_all() -> None:
    (entry,) = seen(WEB, X, "dhcp", 1700000000)
    assert Sighting.parse(str(entry)) == entry
    for text in (
        "",
        "a b c",
        f"{WEB} 127.0.0.1 dhcp 1",
        f"{WEB} {X} told 1",
        f"{WEB} {X} dhcp -1",
        f"{WEB} {X} dhcp 1 2",
        f"{WEB} x dhcp 1",
    ):
        assert Sighting.parse(text) is None, text


@pytest.mark.parametrize(
    "text", ["", "x", "192.0.2.7/24", "fe80::1%eth0", "::ffff:127.0.0.1", "0.0.0.0", "::", "240.0.0.1", None, "1"]
)
def test_no_address_of_a_host(text: str | None) -> None:
    assert host_address(text) is None


def test_one_spelling() -> None:
    assert str(host_address("::ffff:192.0.2.7")) == X
    assert str(host_address("2001:DB8:0::7")) == "2001:db8::7"


def test_each_interface_has_its_own_record() -> None:
    both = dataclasses.replace(web((X, "packets")), nics=(Nic(WEB, "vnet0", "br0"), Nic(DB, "vnet1", "br0")))
    both = dataclasses.replace(both, claims=(*both.claims, AddressClaim(DB, Y, "packets")))
    result = plan_address.recorded(both, both.claims, (), now_s=200)
    assert [(one.mac, one.address) for one in result] == [(WEB, X), (DB, Y)]
    assert plan_address.recorded(dataclasses.replace(both, seen=result), (), (), now_s=300) == result, (
        "both silent: both stay"
    )
    twice = (*seen(WEB, X), *seen(WEB, Y))
    assert plan_address.recorded(web(seen=twice), (), (), now_s=300) == twice[:1], "a record has one address for each"


def test_both_ends_of_the_smallest_network_are_hosts() -> None:
    links = dataclasses.replace(LINKS, addresses={"br0": (ipaddress.ip_interface("192.0.2.6/31"),)})
    assert believed(web((X, "packets")), links=links) == {"web1": [X]}
    links = dataclasses.replace(LINKS, addresses={"br0": (ipaddress.ip_interface("192.0.2.6/30"),)})
    assert believed(web((X, "packets")), links=links) == {"web1": []}, "the broadcast address"


AT_X = ("br0", X)


@pytest.mark.parametrize(
    ("guests", "table", "live", "claims"),
    [
        ([web()], {AT_X: WEB}, [AT_X], [("1", WEB)]),
        ([web()], {AT_X: WEB}, [], []),  # it answered long ago
        ([web()], {AT_X: DB}, [AT_X], []),
        ([web(bridge="br1")], {AT_X: WEB}, [AT_X], []),  # another machine with that MAC address
        ([web(), db()], {AT_X: DB}, [AT_X], [("2", DB)]),
        ([web()], {("br1", X): WEB, AT_X: WEB}, [AT_X], [("1", WEB)]),
        ([web(), dataclasses.replace(web(), uuid="3")], {AT_X: WEB}, [AT_X], [("1", WEB), ("3", WEB)]),
        ([], {AT_X: WEB}, [AT_X], []),
    ],
)
def test_what_the_neighbour_table_tells(
    guests: list[AddressedGuest],
    table: dict[tuple[str, str], str],
    live: list[tuple[str, str]],
    claims: list[tuple[str, str]],
) -> None:
    links = HostLinks(neighbours=table, live=frozenset(live))
    assert [*plan_address.neighbours(guests, links)] == [(uuid, AddressClaim(mac, X, "arp")) for uuid, mac in claims]


@pytest.mark.parametrize(
    ("source", "known", "counts"),
    [
        ("agent", None, True),
        ("agent", "agent", False),
        ("lease", "agent", True),
        ("dhcp", "lease", False),
        ("packets", "arp", False),  # one's word is as good as the other's
    ],
)
def test_which_claim_of_an_address_counts(source: str, known: str | None, counts: bool) -> None:
    assert AddressClaim(WEB, X, source).outranks(AddressClaim(WEB, X, known) if known else None) is counts
