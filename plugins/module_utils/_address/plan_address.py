# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which claimed addresses are believed, which are recorded, and what to ask guests. Pure."""

from __future__ import annotations

import dataclasses
import ipaddress
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._address import plan_ethernet
from ansible_collections.corral.virt.plugins.module_utils._address.plan_address_steps import WaitForAddress
from ansible_collections.corral.virt.plugins.module_utils._domain.model_address import (
    SOURCES,
    Address,
    AddressClaim,
    AddressedGuest,
    HostLinks,
    Interface,
    Nic,
    Sighting,
    host_address,
)

_SWEPT = 1024  # addresses of a network that a guest is asked about one by one


@dataclasses.dataclass(frozen=True)
class AddressVerdict:
    """By guest UUID: believed claims, best first, and the reasons against others.

    Also recorded entries that belong to another guest now.
    """

    believed: t.Mapping[str, tuple[AddressClaim, ...]]
    refused: t.Mapping[str, tuple[str, ...]]
    lost: t.Mapping[str, t.Mapping[Sighting, str]]  # and that guest's name


def judge(guests: t.Sequence[AddressedGuest], links: HostLinks, *, settled: bool) -> AddressVerdict:
    """The verdict on the claims of all guests of one host, so that no guest takes another's address.

    Before things have `settled`, a guest that has not answered may still do so.
    """
    believed: dict[str, tuple[AddressClaim, ...]] = {}
    refused: dict[str, tuple[str, ...]] = {}
    lost: dict[str, dict[Sighting, str]] = {}
    for guest in guests:
        why = {claim: _why_not(claim, guest, guests, links, settled=settled) for claim in _best(guest)}
        believed[guest.uuid] = tuple(claim for claim, reason in why.items() if not reason)
        refused[guest.uuid] = tuple(
            f"{claim.address} ({claim.source}): {reason}" for claim, reason in why.items() if reason
        )
        for claim in believed[guest.uuid]:
            for other in guests:
                for entry in other.seen if other.uuid != guest.uuid else ():
                    if entry.address == claim.address:
                        lost.setdefault(other.uuid, {})[entry] = guest.name
    return AddressVerdict(believed, refused, lost)


def recorded(
    guest: AddressedGuest,
    believed: t.Sequence[AddressClaim],
    lost: t.Container[Sighting],
    *,
    now_s: int,
    named: bool = False,
) -> tuple[Sighting, ...]:
    """The record of a running guest: one address per interface and family. Without new claims it stays as it is.

    A guest that is not ours gets no record unless the user has `named` it.
    """
    if not (guest.managed or named):
        return guest.seen
    record = []
    for mac in sorted(guest.macs):
        for version in (4, 6):
            old = [one for one in guest.seen if one.mac == mac and _version(one.address) == version and one not in lost]
            new = [
                claim
                for claim in believed
                if claim.mac == mac
                and _version(claim.address) == version
                and claim.address not in _spellings(guest.assigned)
            ]
            record += _entry(old[:1], new, now_s)
    return tuple(record)


def addresses(guest: AddressedGuest, believed: t.Sequence[AddressClaim]) -> list[str]:
    """The believed addresses of a guest: IPv4 before IPv6, recorded ones before others."""
    known = {entry.address for entry in guest.seen}
    order = sorted(believed, key=lambda claim: (_version(claim.address), claim.address not in known, -claim.rank))
    return list(dict.fromkeys(claim.address for claim in order))


def questions(
    guests: t.Sequence[AddressedGuest], links: HostLinks, sought: t.Collection[str]
) -> t.Iterator[tuple[str, bytes]]:
    """ARP requests by device: whether guests still have recorded addresses, and which ones `sought` guests have."""
    for guest in guests:
        for nic in guest.nics if guest.running else ():
            wanted = [entry.address for entry in guest.seen if entry.mac == nic.mac]
            sender_mac = links.macs.get(nic.bridge)
            if not nic.device or not sender_mac:
                continue
            for interface in _networks(nic, links, 4):
                network = interface.network
                inside = [address for address in wanted if ipaddress.ip_address(address) in network]
                if guest.uuid in sought and network.num_addresses <= _SWEPT:
                    inside += map(str, network.hosts())
                sender = str(interface.ip)
                for address in dict.fromkeys(inside):
                    if address != sender:
                        yield (
                            nic.device,
                            plan_ethernet.question(address, mac=nic.mac, sender=sender, sender_mac=sender_mac),
                        )


def neighbours(guests: t.Collection[AddressedGuest], links: HostLinks) -> t.Iterator[tuple[str, AddressClaim]]:
    """Claims from the host's neighbour table, by UUID: a live neighbour on the bridge of an interface."""
    for (device, address), mac in links.neighbours.items():
        if (device, address) not in links.live:
            continue
        for guest in guests:
            if any((nic.mac, nic.bridge) == (mac, device) for nic in guest.nics):
                yield guest.uuid, AddressClaim(mac, address, "arp")


def _best(guest: AddressedGuest) -> list[AddressClaim]:
    """The best claim of each address of each interface.

    Claims from other MAC addresses are ignored.
    """
    best: dict[tuple[str, str], AddressClaim] = {}
    for claim in guest.claims if guest.running else ():
        if claim.mac in guest.macs and claim.outranks(best.get((claim.mac, claim.address))):
            best[claim.mac, claim.address] = claim
    return sorted(best.values(), key=lambda claim: -claim.rank)


def _why_not(
    claim: AddressClaim, guest: AddressedGuest, guests: t.Sequence[AddressedGuest], links: HostLinks, *, settled: bool
) -> str:
    """Why a claim is not believed; empty if it is."""
    address = host_address(claim.address)
    if address is None:
        return "it is not a host address"
    nic = next(nic for nic in guest.nics if nic.mac == claim.mac)
    reasons = [_of_the_host(address, nic, links)]
    if claim.address not in _spellings(guest.assigned):
        reasons += [_of_no_network(address, nic, links), _of_a_neighbour(claim, guest, nic, links)]
        reasons += [_of_another(claim, guest, other, settled=settled) for other in guests if other.uuid != guest.uuid]
    return next(filter(None, reasons), "")


def _of_the_host(address: Address, nic: Nic, links: HostLinks) -> str:
    if any(address == interface.ip for interfaces in links.addresses.values() for interface in interfaces):
        return "it is this hypervisor's own address"
    return f"it is the router of {nic.bridge or 'this network'}" if str(address) in links.routers else ""


def _of_no_network(address: Address, nic: Nic, links: HostLinks) -> str:
    """Why an address is outside the bridge's networks; without a host address there, only other networks count."""
    here = [interface.network for interface in _networks(nic, links, address.version)]
    if here and not any(address in network for network in here):
        return f"{nic.bridge} has {', '.join(map(str, here))}"
    ends = [
        end
        for one in here
        if one.prefixlen < one.max_prefixlen - 1
        for end in (one.network_address, one.broadcast_address)
    ]
    if address.version == 4 and address in ends:
        return "it is not a host address"
    for device, interfaces in links.addresses.items() if not here else ():
        if any(address in interface.network for interface in interfaces):
            return f"it is in the network of {device}"
    return ""


def _of_a_neighbour(claim: AddressClaim, guest: AddressedGuest, nic: Nic, links: HostLinks) -> str:
    """Why a guest's own claim loses to another live machine in the network."""
    there = (nic.bridge, claim.address)
    if claim.rank > 1 or there not in links.live or links.neighbours[there] in guest.macs:
        return ""
    return f"{links.neighbours[there]} answers for it"


def _of_another(claim: AddressClaim, guest: AddressedGuest, other: AddressedGuest, *, settled: bool) -> str:
    if claim.address in _spellings(other.assigned):
        return f"it is assigned to {other.name}"
    if not other.running:
        return ""
    there = [one for one in _best(other) if one.address == claim.address]
    records = [entry for entry in other.seen if entry.address == claim.address]
    mine = [entry for entry in guest.seen if entry.address == claim.address]
    if records:
        return _held(claim, other, records[0], answers=bool(there), settled=settled)
    if there and not mine and there[0].rank >= claim.rank:
        return f"{other.name} also claims it"
    return ""


def _held(claim: AddressClaim, other: AddressedGuest, entry: Sighting, *, answers: bool, settled: bool) -> str:
    """Why a claim loses to another guest's record; empty if that guest has left, or with a better source."""
    family = _version(entry.address)
    elsewhere = not answers and any(one.mac == entry.mac and _version(one.address) == family for one in other.claims)
    if claim.rank > entry.rank or elsewhere:
        return ""
    if answers or not settled:
        return f"{other.name} uses it"
    return (
        ""
        if claim.rank == entry.rank
        else f"{other.name} was seen at it, and its DHCP server has not reported otherwise"
    )


def _entry(old: list[Sighting], new: list[AddressClaim], now_s: int) -> list[Sighting]:
    if not new:
        return old
    for entry in old:
        for claim in new:
            if claim.address == entry.address:
                return [dataclasses.replace(entry, source=claim.source) if claim.rank > entry.rank else entry]
    best = min(new, key=lambda claim: (-claim.rank, int(ipaddress.ip_address(claim.address))))
    return [Sighting(best.mac, best.address, best.source, now_s)]


def _networks(nic: Nic, links: HostLinks, version: int) -> list[Interface]:
    """The host's addresses, with their networks, on the interface's bridge."""
    found = links.addresses.get(nic.bridge, ())
    return [one for one in found if one.version == version and not one.ip.is_link_local]


def _version(address: str) -> int:
    return 6 if ":" in address else 4


def _spellings(addresses: t.Iterable[str]) -> set[str]:
    return {str(host_address(text)) for text in addresses}


_IPV6_ALONE_S = 5.0  # after which IPv4 is no longer waited for


@dataclasses.dataclass(frozen=True)
class AddressOutcome:
    """The result for one guest. `record` is what to record; None: no change."""

    name: str
    addresses: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    lost: t.Mapping[Sighting, str] = dataclasses.field(default_factory=dict)
    before: tuple[Sighting, ...] = ()  # what is on record
    record: tuple[Sighting, ...] | None = None
    tried: tuple[str, ...] = ()


def is_waited_for(
    guest: AddressedGuest | None, believed: t.Sequence[AddressClaim], *, over: bool, believed_s: float
) -> bool:
    """True if a guest may still get an address: it runs, has an interface, and no IPv4 address yet.

    `over`: True after its time; `believed_s`: seconds since its first address was believed.
    """
    if over or guest is None or not guest.running or not guest.nics:
        return False
    return believed_s < _IPV6_ALONE_S and not any("." in claim.address for claim in believed)


def tried(guest: AddressedGuest, search: WaitForAddress, *, agent: bool, packets: bool) -> tuple[str, ...]:
    """Sources that were queried for a guest, in words; `agent` and `packets`: True if available."""
    if not guest.nics:
        return ("nothing, as it has no network interface",)
    devices = ", ".join(nic.device for nic in guest.nics if nic.device)
    words = {
        "lease": "libvirt's DHCP leases",
        "arp": "the host's neighbour table",
        "packets": f"packets at {devices}" if packets and devices else "",
        "agent": "its agent" if agent else "",
    }
    return tuple(words[source] for source in SOURCES if search.asks(source) and words[source])


def outcomes(
    guests: t.Iterable[AddressedGuest],
    verdict: AddressVerdict,
    asked: t.Mapping[str, tuple[str, ...]],
    *,
    now_s: int,
    named: bool,
) -> dict[str, AddressOutcome]:
    """Outcomes by UUID: of guests that were `asked` for (with the tried sources), and of those that lost an address."""
    found = {}
    for guest in guests:
        believed, lost = verdict.believed[guest.uuid], verdict.lost.get(guest.uuid, {})
        if guest.uuid not in asked and not lost:
            continue
        kept = recorded(guest, believed, lost, now_s=now_s, named=named) if guest.running else guest.seen
        entries = tuple(entry for entry in kept if entry not in lost)
        found[guest.uuid] = AddressOutcome(
            guest.name,
            tuple(addresses(guest, believed)),
            verdict.refused[guest.uuid],
            lost,
            guest.seen,
            entries if entries != guest.seen else None,
            asked.get(guest.uuid, ()),
        )
    return found


def notes(found: t.Mapping[str, AddressOutcome], taker: str | None = None) -> list[str]:
    """Notes on recorded addresses that belong to another guest now, or only to `taker`."""
    lost = [(entry, outcome.name, name) for outcome in found.values() for entry, name in outcome.lost.items()]
    return [
        f"{entry.address}, recorded for {before}, now belongs to {now}"
        for entry, before, now in lost
        if taker in (None, now)
    ]
