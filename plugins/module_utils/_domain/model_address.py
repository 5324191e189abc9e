# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of guests: their sources, and the record of them."""

from __future__ import annotations

import dataclasses
import ipaddress
import typing as t

Address = t.Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
Interface = t.Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface]

SOURCES = ("lease", "arp", "packets", "agent")  # that can be asked, best first
# By what a claim was seen. libvirt's own DHCP server is believed before another one, and both before the guest itself.
RANKS = {"lease": 3, "dhcp": 2, "arp": 1, "packets": 1, "agent": 1}


def host_address(text: object) -> Address | None:
    """The address in its normal form; None for anything but an address that one host can have."""
    try:
        found = None if "%" in str(text) else ipaddress.ip_address(str(text))
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address):
        found = found.ipv4_mapped or found
    if found is None or any(
        (found.is_loopback, found.is_multicast, found.is_unspecified, found.is_link_local, found.is_reserved)
    ):
        return None
    return found


@dataclasses.dataclass(frozen=True)
class Nic:
    """A running guest's network interface: its MAC address, its device on the host, and that device's bridge."""

    mac: str
    device: str = ""
    bridge: str = ""


@dataclasses.dataclass(frozen=True)
class AddressClaim:
    """A claim that a MAC address has an IP address; `source` is a key of RANKS."""

    mac: str
    address: str
    source: str

    @property
    def rank(self) -> int:
        """How far the claim is trusted; higher is better."""
        return RANKS[self.source]

    def outranks(self, known: AddressClaim | None) -> bool:
        """True if this claim replaces the `known` one."""
        return known is None or known.rank < self.rank


@dataclasses.dataclass(frozen=True)
class Sighting(AddressClaim):
    """The record of an accepted address, and since when (seconds since 1970)."""

    since: int = 0

    def __str__(self) -> str:
        return f"{self.mac} {self.address} {self.source} {self.since}"

    @classmethod
    def parse(cls, text: str) -> Sighting | None:
        """The entry of a record; None for any other text."""
        words = text.split()
        if len(words) != 4 or words[2] not in RANKS or not words[3].isdecimal() or len(words[3]) > 12:
            return None
        address = host_address(words[1])
        return cls(words[0], str(address), words[2], int(words[3])) if address else None


@dataclasses.dataclass(frozen=True)
class AddressedGuest:
    """A guest's addresses. `assigned` are those of its seed; a guest that is not `running` has no claims."""

    uuid: str
    name: str
    running: bool = True
    nics: tuple[Nic, ...] = ()
    assigned: tuple[str, ...] = ()
    seen: tuple[Sighting, ...] = ()
    claims: tuple[AddressClaim, ...] = ()
    managed: bool = True  # whether the collection has recorded anything with it

    @property
    def macs(self) -> frozenset[str]:
        """The MAC addresses of its interfaces."""
        return frozenset(nic.mac for nic in self.nics)


class HostSubnet(t.NamedTuple):
    """A subnet that the host reaches over one of its devices."""

    device: str  # empty where a route rejects packets
    subnet: str
    is_connected: bool = True  # the host has an address in it; else a route


@dataclasses.dataclass(frozen=True)
class HostLinks:
    """A hypervisor's network: own addresses by device, MAC addresses, routers, neighbours by (device, address)."""

    addresses: t.Mapping[str, tuple[Interface, ...]] = dataclasses.field(default_factory=dict)
    macs: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    routers: frozenset[str] = frozenset()
    neighbours: t.Mapping[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    live: frozenset[tuple[str, str]] = frozenset()  # of the neighbours those that answered a moment ago
