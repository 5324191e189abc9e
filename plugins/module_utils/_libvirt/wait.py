# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Wait for a guest by libvirt's events, with one deadline; never by sleeping and asking again."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import Timeout
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, libvirt, said

__all__ = ["address", "addresses", "until_off"]

_ADDRESS_POLL_S = 1.0  # libvirt has no event for a lease or an ARP entry
_SOURCES = {"lease": "LEASE", "arp": "ARP", "agent": "AGENT"}


def until_off(connection: Connection, domain: t.Any, *, timeout_s: int) -> bool:
    """Whether the guest powered off within the time."""
    gone: list[int] = []

    def on_event(_connection: object, _domain: object, event: int, _detail: int, _opaque: object) -> None:
        if event in (libvirt.VIR_DOMAIN_EVENT_STOPPED, libvirt.VIR_DOMAIN_EVENT_CRASHED):
            gone.append(event)

    def on_timer(_timer: int, _opaque: object) -> None:
        """Only wakes the loop, so that the deadline is looked at."""

    with said("watch guest", domain.name()):
        callback = connection.domainEventRegisterAny(domain, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, on_event, None)
    timer = libvirt.virEventAddTimeout(500, on_timer, None)
    deadline = time.monotonic() + timeout_s
    try:
        # The guest may have gone before the event was asked for.
        while not gone and domain.isActive() and time.monotonic() < deadline:
            libvirt.virEventRunDefaultImpl()
        return bool(gone) or not domain.isActive()
    finally:
        libvirt.virEventRemoveTimeout(timer)
        connection.domainEventDeregisterAny(callback)


def addresses(domain: t.Any, source: str) -> list[str]:
    """IP addresses of a running guest as `lease`, `arp` or `agent` knows them; loopback and link-local left out."""
    try:
        known = domain.interfaceAddresses(getattr(libvirt, f"VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_{_SOURCES[source]}"))
    except libvirt.libvirtError:
        return []  # no agent, no lease file: this source knows nothing, which is an answer
    found = [entry["addr"] for nic in (known or {}).values() for entry in nic.get("addrs") or []]
    return [item for item in found if not item.startswith(("127.", "169.254.", "fe80:")) and item != "::1"]


def address(domain: t.Any, source: str, *, timeout_s: int) -> list[str]:
    """Wait for an address; raises Timeout, saying what is the matter. `any` asks lease, ARP and agent in turn."""
    sources = list(_SOURCES) if source == "any" else [source]
    deadline = time.monotonic() + timeout_s
    while True:
        for item in sources:
            found = addresses(domain, item)
            if found:
                return found
        if not domain.isActive():
            raise Timeout(f"{domain.name()} powered off while waiting for its address; look at its console")
        if time.monotonic() > deadline:
            raise Timeout(
                f"no address of {domain.name()} within {timeout_s} s (asked: {', '.join(sources)}); it may still boot, have no "
                f"network, or run no guest agent; see `virsh console {domain.name()}` or raise wait_timeout"
            )
        time.sleep(_ADDRESS_POLL_S)
