# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What libvirt calls a network filter, and those that come with it."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import ObjectKind

__all__ = ["BUILT_IN", "NWFILTER_KIND", "PROTOCOLS"]

NWFILTER_KIND = ObjectKind("nwfilter")
# Files of libvirt's package, in /usr/share/libvirt/nwfilter.
BUILT_IN = frozenset({
    "allow-arp", "allow-dhcp", "allow-dhcp-server", "allow-dhcpv6", "allow-dhcpv6-server", "allow-incoming-ipv4",
    "allow-incoming-ipv6", "allow-ipv4", "allow-ipv6", "clean-traffic", "clean-traffic-gateway", "no-arp-ip-spoofing",
    "no-arp-mac-spoofing", "no-arp-spoofing", "no-ip-multicast", "no-ip-spoofing", "no-ipv6-multicast",
    "no-ipv6-spoofing", "no-mac-broadcast", "no-mac-spoofing", "no-other-l2-traffic", "no-other-rarp-traffic",
    "qemu-announce-self", "qemu-announce-self-rarp",
})  # fmt: skip
_BOTH = ("tcp", "udp", "udplite", "esp", "ah", "sctp", "all")
PROTOCOLS = (
    *("mac", "vlan", "stp", "arp", "rarp", "ip", "ipv6"),
    *(*_BOTH, "icmp", "igmp"),
    *(*(f"{protocol}-ipv6" for protocol in _BOTH), "icmpv6"),
)
