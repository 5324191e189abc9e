"""How long a guest's address is waited for, and what comes of a search."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._address import plan_address
from ansible_collections.corral.virt.plugins.module_utils._address.plan_address import AddressVerdict
from ansible_collections.corral.virt.plugins.module_utils._address.plan_address_steps import WaitForAddress
from ansible_collections.corral.virt.plugins.module_utils._domain.model_address import (
    AddressClaim,
    AddressedGuest,
    Nic,
    Sighting,
)

MAC = "52:54:00:00:00:01"
WEB = AddressedGuest("1", "web1", nics=(Nic(MAC, "vnet0", "br0"),))
IPV4, IPV6 = AddressClaim(MAC, "192.0.2.7", "lease"), AddressClaim(MAC, "2001:db8::7", "arp")
SEEN = Sighting(MAC, "192.0.2.7", "lease", 100)


@pytest.mark.parametrize(
    ("guest", "believed", "over", "believed_s", "waits"),
    [
        (WEB, [], False, 0, True),
        (WEB, [IPV4], False, 0, False),
        (WEB, [IPV6], False, 4.9, True),
        (WEB, [IPV6], False, 5, False),
        (WEB, [IPV6, IPV4], False, 0, False),
        (WEB, [], True, 0, False),
        (None, [], False, 0, False),
        (dataclasses.replace(WEB, running=False), [], False, 0, False),
        (dataclasses.replace(WEB, nics=()), [], False, 0, False),
    ],
)
def test_who_is_waited_for(
    guest: AddressedGuest | None, believed: list[AddressClaim], over: bool, believed_s: float, waits: bool
) -> None:
    assert plan_address.is_waited_for(guest, believed, over=over, believed_s=believed_s) is waits


TWO = dataclasses.replace(WEB, nics=(*WEB.nics, Nic(MAC, "vnet1", "br0")))
LEASES, NEIGHBOURS = "libvirt's DHCP leases", "the host's neighbour table"


@pytest.mark.parametrize(
    ("guest", "source", "agent", "packets", "expected"),
    [
        (WEB, "any", False, False, [LEASES, NEIGHBOURS]),
        (WEB, "any", True, True, [LEASES, NEIGHBOURS, "packets at vnet0", "its agent"]),
        (TWO, "packets", True, True, ["packets at vnet0, vnet1"]),
        (dataclasses.replace(WEB, nics=(Nic(MAC),)), "packets", False, True, []),
        (WEB, "agent", False, True, []),
        (WEB, "lease", True, True, [LEASES]),
        (WEB, "arp", True, True, [NEIGHBOURS]),
        (dataclasses.replace(WEB, nics=()), "any", True, True, ["nothing, as it has no network interface"]),
    ],
)
def test_what_was_tried(guest: AddressedGuest, source: str, agent: bool, packets: bool, expected: list[str]) -> None:
    assert list(plan_address.tried(guest, WaitForAddress("web1", source, 9), agent=agent, packets=packets)) == expected


def outcome(guest: AddressedGuest, asked: bool = True, **verdict: t.Any) -> plan_address.AddressOutcome | None:
    """Of that guest."""
    said = {"believed": {}, "refused": {}, "lost": {}, **verdict}
    said["believed"], said["refused"] = {"1": (), **said["believed"]}, {"1": (), **said["refused"]}
    wanted = {"1": ("a",)} if asked else {}
    return plan_address.outcomes([guest], AddressVerdict(**said), wanted, now_s=200, named=False).get("1")


def test_what_comes_of_a_search() -> None:
    """Only what differs is recorded; who is off keeps what is recorded, and who has lost an address loses it there."""
    known = dataclasses.replace(WEB, seen=(SEEN,))
    new = Sighting(MAC, "192.0.2.7", "lease", 200)
    common: dict[str, t.Any] = {"tried": ("a",)}
    lost = {SEEN: "db1"}
    cases: list[tuple[plan_address.AddressOutcome | None, plan_address.AddressOutcome | None]] = [
        (outcome(WEB), plan_address.AddressOutcome("web1", **common)),
        (outcome(WEB, asked=False), None),
        (
            outcome(WEB, believed={"1": (IPV4,)}),
            plan_address.AddressOutcome("web1", ("192.0.2.7",), record=(new,), **common),
        ),
        (outcome(WEB, refused={"1": ("no",)}), plan_address.AddressOutcome("web1", refused=("no",), **common)),
        (
            outcome(known, believed={"1": (IPV4,)}),
            plan_address.AddressOutcome("web1", ("192.0.2.7",), before=(SEEN,), **common),
        ),
        (
            outcome(dataclasses.replace(known, running=False)),
            plan_address.AddressOutcome("web1", before=(SEEN,), **common),
        ),
        (
            outcome(dataclasses.replace(WEB, running=False), believed={"1": (IPV4,)}),
            plan_address.AddressOutcome("web1", ("192.0.2.7",), **common),
        ),
        (
            outcome(known, asked=False, lost={"1": lost}),
            plan_address.AddressOutcome("web1", lost=lost, before=(SEEN,), record=()),
        ),
        (
            outcome(dataclasses.replace(known, running=False), lost={"1": lost}),
            plan_address.AddressOutcome("web1", lost=lost, before=(SEEN,), record=(), **common),
        ),
    ]
    assert [found for found, _expected in cases] == [expected for _found, expected in cases]


def test_who_is_not_asked_for_hides_nobody() -> None:
    said = AddressVerdict({"1": (), "2": ()}, refused={"1": (), "2": ()}, lost={})
    guests = [WEB, dataclasses.replace(WEB, uuid="2", name="db1")]
    assert list(plan_address.outcomes(guests, said, {"2": ()}, now_s=200, named=False)) == ["2"]


@pytest.mark.parametrize(("taker", "told"), [(None, True), ("db1", True), ("db2", False)])
def test_whose_an_address_is_now(taker: str | None, told: bool) -> None:
    found = {
        "1": plan_address.AddressOutcome("web1", lost={SEEN: "db1"}),
        "2": plan_address.AddressOutcome("db1"),
    }
    note = "192.0.2.7, recorded for web1, now belongs to db1"
    assert plan_address.notes(found, taker) == ([note] if told else [])
