# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ethernet frames at a guest's interface: the address that a frame shows, and ARP requests to the guest. Pure.

A guest writes its frames, so nothing in them is trusted: a frame with a wrong length, type or checksum is ignored.
"""

from __future__ import annotations

import ipaddress
import struct

from ansible_collections.corral.virt.plugins.module_utils._domain.model_address import AddressClaim, host_address

SNAP_BYTES = 640  # of a frame: a DHCP answer with its options up to the type of message
_ARP, _IPV4, _IPV6 = 0x0806, 0x0800, 0x86DD
_ARP_HEAD = struct.pack("!HHBB", 1, _IPV4, 6, 4)  # Ethernet and IPv4
_UDP, _ICMPV6, _FRAGMENT = 17, 58, 0x3FFF
_FRESH = (64, 128, 255)  # hops left of a packet that nobody has forwarded
_SOLICIT, _ADVERTISE = 135, 136  # of neighbours (RFC 4861)
_BOOTP_BYTES, _COOKIE, _KIND, _ACK, _PAD, _END = 236, b"\x63\x82\x53\x63", 53, b"\x05", 0, 255


def claim(frame: bytes, mac: str, *, outgoing: bool) -> AddressClaim | None:
    """The address that a frame shows for the guest with that MAC; `outgoing`: it goes to the guest."""
    own = bytes.fromhex(mac.replace(":", ""))
    kind, body = int.from_bytes(frame[12:14], "big"), frame[14:]
    if outgoing:
        found = _granted(body, own) if kind == _IPV4 else None
        return _claim(mac, found, "dhcp")
    if frame[6:12] != own:
        return None  # of another machine, behind the guest or played by it
    readers = {_ARP: lambda: _arp(body, own), _IPV4: lambda: _sender4(body), _IPV6: lambda: _sender6(body)}
    return _claim(mac, readers[kind]() if kind in readers else None, "packets")


def question(address: str, *, mac: str, sender: str, sender_mac: str) -> bytes:
    """An ARP request for an address, from the host to one MAC address.

    A guest that has the address answers.
    """
    own, peer = (bytes.fromhex(text.replace(":", "")) for text in (sender_mac, mac))
    asked, asker = (ipaddress.IPv4Address(text).packed for text in (address, sender))
    # Never from 0.0.0.0: to a guest that is about to take the address, that would say that another one has it (RFC
    # 5227).
    return peer + own + struct.pack("!H", _ARP) + _ARP_HEAD + struct.pack("!H", 1) + own + asker + bytes(6) + asked


def _claim(mac: str, packed: bytes | None, source: str) -> AddressClaim | None:
    address = host_address(ipaddress.ip_address(packed)) if packed else None
    return AddressClaim(mac, str(address), source) if address else None


def _arp(body: bytes, own: bytes) -> bytes | None:
    """The sender's address in an ARP packet; 0.0.0.0 in a probe. None if it is invalid."""
    if len(body) < 28 or body[:6] != _ARP_HEAD or body[6:8] not in (b"\0\1", b"\0\2") or body[8:14] != own:
        return None
    return body[14:18]


def _ipv4(body: bytes) -> tuple[int, int, bytes] | None:
    """Hops, protocol and payload of an unfragmented packet; None if invalid."""
    if len(body) < 20 or body[0] >> 4 != 4:
        return None
    head = (body[0] & 15) * 4
    fragment = int.from_bytes(body[6:8], "big") & _FRAGMENT
    if head < 20 or len(body) < head or fragment:
        return None
    return body[8], body[9], body[head:]


def _sender4(body: bytes) -> bytes | None:
    """The source address of a packet that the guest itself made: a router sends others' packets, too."""
    packet = _ipv4(body)
    return body[12:16] if packet and packet[0] in _FRESH else None


def _sender6(body: bytes) -> bytes | None:
    if len(body) < 40 or body[0] >> 4 != 6 or body[7] not in _FRESH:
        return None
    sender, payload = body[8:24], body[40:]
    neighbour = body[6] == _ICMPV6 and body[7] == 255 and len(payload) >= 24
    if neighbour and (payload[0] == _ADVERTISE or (payload[0] == _SOLICIT and not any(sender))):
        return payload[8:24]  # what it has, or is about to take
    return sender


def _granted(body: bytes, own: bytes) -> bytes | None:
    """The address in a DHCP server's acknowledgement (RFC 2131) to that MAC."""
    packet = _ipv4(body)
    if packet is None or packet[1] != _UDP:
        return None
    ports, bootp = packet[2][:4], packet[2][8:]
    if ports != struct.pack("!HH", 67, 68) or bootp[:3] != b"\2\1\6" or bootp[28:34] != own:
        return None
    if bootp[_BOOTP_BYTES : _BOOTP_BYTES + 4] != _COOKIE or _option(bootp[_BOOTP_BYTES + 4 :], _KIND) != _ACK:
        return None
    return bootp[16:20]


def _option(options: bytes, wanted: int) -> bytes | None:
    at = 0
    while at + 1 < len(options) and options[at] != _END:
        if options[at] == _PAD:
            at += 1
            continue
        size = options[at + 1]
        value = options[at + 2 : at + 2 + size]
        if options[at] == wanted:
            return value if len(value) == size else None
        at += 2 + size
    return None
