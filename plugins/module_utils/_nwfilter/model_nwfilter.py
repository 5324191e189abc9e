# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What libvirt calls a network filter, and those that come with it."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import ObjectKind

NWFILTER_KIND = ObjectKind("nwfilter")
# Files of libvirt's package, in /usr/share/libvirt/nwfilter.
BUILT_IN = frozenset({
    "allow-arp", "allow-dhcp", "allow-dhcp-server", "allow-dhcpv6", "allow-dhcpv6-server", "allow-incoming-ipv4",
    "allow-incoming-ipv6", "allow-ipv4", "allow-ipv6", "clean-traffic", "clean-traffic-gateway", "no-arp-ip-spoofing",
    "no-arp-mac-spoofing", "no-arp-spoofing", "no-ip-multicast", "no-ip-spoofing", "no-ipv6-multicast",
    "no-ipv6-spoofing", "no-mac-broadcast", "no-mac-spoofing", "no-other-l2-traffic", "no-other-rarp-traffic",
    "qemu-announce-self", "qemu-announce-self-rarp",
})  # fmt: skip


def _words(*texts: str) -> frozenset[str]:
    return frozenset({"match", "comment", *" ".join(texts).split()})


_PORTS = "srcportstart srcportend dstportstart dstportend"
_FRAME = "srcmacaddr srcmacmask dstmacaddr dstmacmask"
_MASKED = "srcipaddr srcipmask dstipaddr dstipmask"
_PACKET = f"srcmacaddr {_MASKED} srcipfrom srcipto dstipfrom dstipto dscp connlimit-above state ipset ipsetflags"
_ARP = f"{_FRAME} hwtype protocoltype opcode arpsrcmacaddr arpdstmacaddr arpsrcipaddr arpsrcipmask arpdstipaddr"
_SPANS = ("root-priority", "root-cost", "sender-priority", "port", "age", "max-age", "hello-time", "forward-delay")
_STP = ("srcmacaddr srcmacmask type flags root-address root-address-mask sender-address sender-address-mask", *_SPANS)
_BOTH = {
    "tcp": _words(_PACKET, _PORTS, "option flags"),
    **dict.fromkeys(("udp", "sctp"), _words(_PACKET, _PORTS)),
    **dict.fromkeys(("udplite", "esp", "ah", "all"), _words(_PACKET)),
}
# What a rule can match, by protocol (nwfilter_conf.c). libvirt drops others without a word: a wider rule.
MATCHES = {
    "mac": _words(_FRAME, "protocolid"),
    "vlan": _words(_FRAME, "vlanid encap-protocol"),
    "stp": _words(*_STP, *(f"{one}-hi" for one in _SPANS)),
    **dict.fromkeys(("arp", "rarp"), _words(_ARP, "arpdstipmask gratuitous")),
    "ip": _words(_FRAME, _MASKED, _PORTS, "protocol dscp"),
    "ipv6": _words(_FRAME, _MASKED, _PORTS, "protocol type typeend code codeend"),
    **_BOTH,
    **dict.fromkeys(("icmp", "icmpv6"), _words(_PACKET, "type code")),
    "igmp": _words(_PACKET),
    **{f"{protocol}-ipv6": words for protocol, words in _BOTH.items()},
}
