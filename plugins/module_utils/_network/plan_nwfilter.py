# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds network filters that would have no effect. Pure.

libvirt makes ebtables rules of some protocols and iptables rules of others. The kernel shows the packets of a bridge to
the latter only with br_netfilter and its settings; otherwise they match nothing. Source: libvirt,
nwfilter_ebiptables_driver.c.
"""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import NetworkFilter

_SAME = ("tcp", "udp", "udplite", "esp", "ah", "sctp", "all")
CALLS = {  # settings of the kernel, and the protocols whose rules need them
    "bridge-nf-call-iptables": frozenset({*_SAME, "icmp", "igmp"}),
    "bridge-nf-call-ip6tables": frozenset({*(f"{protocol}-ipv6" for protocol in _SAME), "icmpv6"}),
}


def problems(
    guest: str, wanted: t.Mapping[str, str], filters: t.Mapping[str, NetworkFilter], calls: t.Mapping[str, bool] | None
) -> list[str]:
    """Problems of interfaces' filters (interface -> filter). `calls` are the kernel's settings.

    None: unknown.
    """
    found = []
    for interface, name in wanted.items():
        place = f"filterref of interface {interface} of {guest}"
        if name not in filters:
            there = ", ".join(sorted(filters)) or "none"
            found.append(
                f"{place}: this host has no network filter {name}; define it (virsh nwfilter-define), or choose one "
                f"of: {there}"
            )
            continue
        protocols = frozenset[str]().union(*(filters[one].protocols for one in _reached(name, filters)))
        for call, kinds in CALLS.items():
            idle = sorted(protocols & kinds)
            if idle and calls is not None and not calls.get(call):
                found.append(
                    f"{place}: the rules of {name} for {', '.join(idle)} have no effect on this host, whose packet "
                    "filter does not see bridged packets; use a filter with rules for mac, arp, ip and ipv6 such as "
                    f"clean-traffic, or load br_netfilter and set net.bridge.{call}=1 (role bridge: "
                    "bridge_filter_guests: true)"
                )
    return found


def _reached(name: str, filters: t.Mapping[str, NetworkFilter]) -> set[str]:
    """The names of a filter and all filters that it refers to, directly or indirectly."""
    reached, waiting = set[str](), [name]
    while waiting:
        one = waiting.pop()
        if one not in reached and one in filters:
            reached.add(one)
            waiting += filters[one].references
    return reached
