"""Frames as kernels and DHCP servers make them, and as a hostile guest does."""

from __future__ import annotations

import ipaddress
import os
import struct
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._address import plan_ethernet
from ansible_collections.corral.virt.plugins.module_utils._domain.model_address import AddressClaim

MAC, OTHER = "52:54:00:00:00:01", "52:54:00:00:00:02"


def packed(mac: str) -> bytes:
    """A MAC address as it stands in a frame."""
    return bytes.fromhex(mac.replace(":", ""))


def ip(text: str) -> bytes:
    """An address as it stands in a packet."""
    return ipaddress.ip_address(text).packed


def ether(kind: int, body: bytes, *, sender: str = MAC) -> bytes:
    """A frame to everybody."""
    return b"\xff" * 6 + packed(sender) + struct.pack("!H", kind) + body


def arp(address: str, *, operation: int = 1, mac: str = MAC, head: bytes = b"\0\1\x08\0\6\4") -> bytes:
    """Somebody with that address asks for another one."""
    return head + struct.pack("!H", operation) + packed(mac) + ip(address) + bytes(6) + ip("192.0.2.1")


def ipv4(
    sender: str, payload: bytes = b"", *, protocol: int = 17, ttl: int = 64, fragment: int = 0, head: int = 0x45
) -> bytes:
    """A packet; its options are zeros."""
    rest = bytes(((head & 15) - 5) * 4) if head & 15 > 5 else b""
    return (
        struct.pack("!BBHHHBBH", head, 0, 0, 0, fragment, ttl, protocol, 0)
        + ip(sender)
        + ip("192.0.2.1")
        + rest
        + payload
    )


def ipv6(sender: str, payload: bytes = b"", *, protocol: int = 17, hops: int = 64) -> bytes:
    """A packet."""
    return struct.pack("!IHBB", 6 << 28, len(payload), protocol, hops) + ip(sender) + ip("2001:db8::1") + payload


def neighbour(kind: int, target: str) -> bytes:
    """A solicitation or advertisement of IPv6."""
    return struct.pack("!BBHI", kind, 0, 0, 0) + ip(target)


def granted(
    address: str, *, mac: str = MAC, kind: int = 5, ports: tuple[int, int] = (67, 68), options: bytes | None = None
) -> bytes:
    """What a DHCP server sends."""
    bootp = b"\2\1\6\0" + bytes(12) + ip(address) + bytes(8) + packed(mac) + bytes(202)
    assert len(bootp) == 236
    result = bytes([54, 4, 192, 0, 2, 1, 0, 53, 1, kind, 255]) if options is None else options
    return ipv4("192.0.2.1", struct.pack("!HHHH", *ports, 0, 0) + bootp + b"\x63\x82\x53\x63" + result)


SEEN = {
    "it asks": (ether(0x0806, arp("192.0.2.7")), "192.0.2.7"),
    "it answers": (ether(0x0806, arp("192.0.2.7", operation=2)), "192.0.2.7"),
    "it sends IPv4": (ether(0x0800, ipv4("192.0.2.7")), "192.0.2.7"),
    "it sends IPv4 as Windows does": (ether(0x0800, ipv4("192.0.2.7", ttl=128)), "192.0.2.7"),
    "with options": (ether(0x0800, ipv4("192.0.2.7", head=0x46)), "192.0.2.7"),
    "it sends IPv6": (ether(0x86DD, ipv6("2001:db8::7")), "2001:db8::7"),
    "it advertises": (
        ether(0x86DD, ipv6("fe80::1", neighbour(136, "2001:db8::7"), protocol=58, hops=255)),
        "2001:db8::7",
    ),
    "it advertises with its MAC": (
        ether(0x86DD, ipv6("fe80::1", neighbour(136, "2001:db8::7") + b"\2\1RT\0\0\0\1", protocol=58, hops=255)),
        "2001:db8::7",
    ),
    "what looks like an advertisement is UDP": (
        ether(0x86DD, ipv6("2001:db8::7", neighbour(136, "2001:db8::9"), hops=255)),
        "2001:db8::7",
    ),
    "what looks like an advertisement may come from afar": (
        ether(0x86DD, ipv6("2001:db8::7", neighbour(136, "2001:db8::9"), protocol=58)),
        "2001:db8::7",
    ),
    "it is about to take one": (
        ether(0x86DD, ipv6("::", neighbour(135, "2001:db8::7"), protocol=58, hops=255)),
        "2001:db8::7",
    ),
    "it looks for a neighbour": (
        ether(0x86DD, ipv6("2001:db8::7", neighbour(135, "2001:db8::9"), protocol=58, hops=255)),
        "2001:db8::7",
    ),
}


@pytest.mark.parametrize("case", SEEN)
def test_the_address_is_seen(case: str) -> None:
    data, address = SEEN[case]
    assert plan_ethernet.claim(data, MAC, outgoing=False) == AddressClaim(MAC, address, "packets")
    assert plan_ethernet.claim(data, MAC, outgoing=True) is None, "what others send says nothing of this guest"
    assert plan_ethernet.claim(data, OTHER, outgoing=False) is None


def test_a_dhcp_server_speaks_for_the_guest() -> None:
    data = ether(0x0800, granted("192.0.2.7"), sender=OTHER)
    assert plan_ethernet.claim(data, MAC, outgoing=True) == AddressClaim(MAC, "192.0.2.7", "dhcp")
    assert plan_ethernet.claim(data[: plan_ethernet.SNAP_BYTES], MAC, outgoing=True)


@pytest.mark.parametrize(
    "options",
    [
        b"\x35\1\5",
        b"\0\x35\1\5\xff",
        b"\x36\4\xc0\0\2\1\x33\4\0\0\x0e\x10\x35\1\5\xff",
        b"\x50\0\x35\1\5\xff",
    ],
    ids=["alone", "after padding", "after others", "after an empty one"],
)
def test_the_kind_of_a_dhcp_servers_answer_is_found(options: bytes) -> None:
    data = ether(0x0800, granted("192.0.2.7", options=options), sender=OTHER)
    assert plan_ethernet.claim(data, MAC, outgoing=True) == AddressClaim(MAC, "192.0.2.7", "dhcp")


@pytest.mark.parametrize(("padding", "address"), [(355, "192.0.2.7"), (356, None)])
def test_of_a_long_answer_640_bytes_are_read(padding: int, address: str | None) -> None:
    data = ether(0x0800, granted("192.0.2.7", options=bytes(padding) + b"\x35\1\5\xff"), sender=OTHER)
    assert len(data) == 640 + 1 + padding - 355
    found = plan_ethernet.claim(data[: plan_ethernet.SNAP_BYTES], MAC, outgoing=True)
    assert (found and found.address) == address


NOTHING: dict[str, tuple[bytes, bool]] = {
    "empty": (b"", False),
    "no body": (ether(0x0806, b""), False),
    "a probe, which is no claim": (ether(0x0806, arp("0.0.0.0")), False),
    "ARP for another MAC": (ether(0x0806, arp("192.0.2.7", mac=OTHER)), False),
    "ARP of no operation": (ether(0x0806, arp("192.0.2.7", operation=3)), False),
    "ARP of other sizes": (ether(0x0806, arp("192.0.2.7", head=b"\0\1\x08\0\6\x10")), False),
    "another machine behind it": (ether(0x0806, arp("192.0.2.7"), sender=OTHER), False),
    "it forwards": (ether(0x0800, ipv4("198.51.100.7", ttl=63)), False),
    "it forwards IPv6": (ether(0x86DD, ipv6("2001:db8::7", hops=63)), False),
    "no address yet": (ether(0x0800, ipv4("0.0.0.0")), False),
    "IPv6 in a frame of IPv4": (ether(0x0800, ipv6("2001:db8::7")), False),
    "a packet of version 6 in a frame of IPv4": (ether(0x0800, ipv4("192.0.2.7", head=0x65)), False),
    "a packet of version 4 in a frame of IPv6": (ether(0x86DD, b"\x40" + ipv6("2001:db8::7")[1:]), False),
    "it looks for a router, without an address": (ether(0x86DD, ipv6("::", neighbour(133, "2001:db8::7"), protocol=58, hops=255)), False),
    "a header of 16 bytes": (ether(0x0800, ipv4("192.0.2.7", head=0x44)), False),
    "a header longer than the packet": (ether(0x0800, ipv4("192.0.2.7")[:19]), False),
    "a header that ends outside": (ether(0x0800, b"\x4f" + ipv4("192.0.2.7")[1:]), False),
    "a fragment": (ether(0x0800, ipv4("192.0.2.7", fragment=0x2000)), False),
    "loopback": (ether(0x0800, ipv4("127.0.0.1")), False),
    "multicast": (ether(0x0806, arp("224.0.0.1")), False),
    "broadcast": (ether(0x0806, arp("255.255.255.255")), False),
    "link-local": (ether(0x0806, arp("169.254.1.1")), False),
    "IPv6 link-local": (ether(0x86DD, ipv6("fe80::7")), False),
    "IPv6 multicast": (ether(0x86DD, ipv6("ff02::1")), False),
    "mapped loopback": (ether(0x86DD, ipv6("::ffff:127.0.0.1")), False),
    "an advertisement without a target": (ether(0x86DD, ipv6("::", neighbour(136, "2001:db8::7")[:20], protocol=58, hops=255)), False),
    "a tagged frame": (ether(0x8100, b"\0\1\x08\6" + arp("192.0.2.7")), False),
    "its own word for a DHCP server's": (ether(0x0800, ipv4("0.0.0.0", granted("198.51.100.7")[20:])), False),
    "an offer": (ether(0x0800, granted("192.0.2.7", kind=2)), True),
    "a refusal": (ether(0x0800, granted("192.0.2.7", kind=6)), True),
    "to another guest": (ether(0x0800, granted("192.0.2.7", mac=OTHER)), True),
    "from no server": (ether(0x0800, granted("192.0.2.7", ports=(68, 67))), True),
    "over TCP": (ether(0x0800, ipv4("192.0.2.1", granted("192.0.2.7")[20:], protocol=6)), True),
    "only confirmed": (ether(0x0800, granted("0.0.0.0")), True),
    "cut off": (ether(0x0800, granted("192.0.2.7")[:100]), True),
    "no options": (ether(0x0800, granted("192.0.2.7", options=b"")), True),
    "an option that ends outside": (ether(0x0800, granted("192.0.2.7", options=b"\x35\xff\5")), True),
    "an option without a length": (ether(0x0800, granted("192.0.2.7", options=b"\x35")), True),
    "after the end, which has a length": (ether(0x0800, granted("192.0.2.7", options=b"\xff\0\x35\1\5")), True),
    "of no server but a client": (ether(0x0800, granted("192.0.2.7").replace(b"\2\1\6\0", b"\1\1\6\0")), True),
    "in a frame of IPv6": (ether(0x86DD, granted("192.0.2.7")), True),
    "after the end": (ether(0x0800, granted("192.0.2.7", options=b"\xff\x35\1\5")), True),
    "another protocol's magic": (ether(0x0800, granted("192.0.2.7").replace(b"\x63\x82\x53\x63", b"\0\0\0\0")), True),
}  # fmt: skip


@pytest.mark.parametrize("case", NOTHING)
def test_nothing_is_seen(case: str) -> None:
    data, outgoing = NOTHING[case]
    assert plan_ethernet.claim(data, MAC, outgoing=outgoing) is None


def test_no_frame_breaks_it() -> None:
    """Every frame above cut off at every byte, and with any byte changed; then noise."""
    known: list[tuple[bytes, bool]] = [*((data, False) for data, _address in SEEN.values()), *NOTHING.values()]
    known.append((ether(0x0800, granted("192.0.2.7")), True))
    for data, outgoing in known:
        for at in range(min(len(data), 80)):
            plan_ethernet.claim(data[:at], MAC, outgoing=outgoing)
            plan_ethernet.claim(data[:at] + b"\xff" + data[at + 1 :], MAC, outgoing=outgoing)
    for size in range(400):
        for outgoing in (False, True):
            for kind in (0x0806, 0x0800, 0x86DD):
                plan_ethernet.claim(ether(kind, os.urandom(size)), MAC, outgoing=outgoing)


def test_a_question_is_asked_in_the_hosts_own_name() -> None:
    """Not from 0.0.0.0, which would keep a guest from taking the address; and an answer to it is seen."""
    asked = plan_ethernet.question("192.0.2.7", mac=MAC, sender="192.0.2.1", sender_mac=OTHER)
    assert asked == packed(MAC) + packed(OTHER) + b"\x08\6" + b"\0\1\x08\0\6\4\0\1" + packed(OTHER) + ip(
        "192.0.2.1"
    ) + bytes(6) + ip("192.0.2.7")
    answer = (
        packed(OTHER)
        + packed(MAC)
        + b"\x08\6"
        + b"\0\1\x08\0\6\4\0\2"
        + packed(MAC)
        + ip("192.0.2.7")
        + packed(OTHER)
        + ip("192.0.2.1")
    )
    assert plan_ethernet.claim(answer, MAC, outgoing=False) == AddressClaim(MAC, "192.0.2.7", "packets")
    assert t.cast(AddressClaim, plan_ethernet.claim(asked, OTHER, outgoing=False)).address == "192.0.2.1"
