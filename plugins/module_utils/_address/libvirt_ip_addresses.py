# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of guests from libvirt."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain.model_address import AddressClaim, host_address
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import libvirt

LIBVIRT_SOURCES = ("lease", "arp", "agent")  # of addresses, best first, as a part of libvirt's constants


def addresses(domain: t.Any, source: str, macs: t.Container[str]) -> list[str]:
    """Addresses from `claims` on these interfaces; those inside the guest, such as on its bridges, are left out."""
    return [claim.address for claim in claims(domain, source) if claim.mac in macs]


def claims(domain: t.Any, source: str) -> list[AddressClaim]:
    """IP addresses of a running guest from libvirt's source `lease`, `arp` or `agent`.

    Only addresses that a host can have.
    """
    try:
        known = domain.interfaceAddresses(getattr(libvirt, f"VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_{source.upper()}"))
    except libvirt.libvirtError:
        return []  # no agent, no lease file: this source knows nothing, which is an answer
    found = []
    for nic in (known or {}).values():
        reported = (host_address(entry["addr"]) for entry in nic.get("addrs") or ())
        found += [AddressClaim(str(nic.get("hwaddr")).lower(), str(address), source) for address in reported if address]
    return found
