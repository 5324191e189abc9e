# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Wait for a guest by libvirt's events, with one deadline; never by sleeping and asking again."""

from __future__ import annotations

import contextlib
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import Timeout
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, libvirt, said

__all__ = ["address", "addresses", "removal", "until_off"]

_ADDRESS_POLL_S = 1.0  # libvirt has no event for a lease or an ARP entry
_SOURCES = {"lease": "LEASE", "arp": "ARP", "agent": "AGENT"}


def until_off(connection: Connection, domain: t.Any, *, timeout_s: int) -> bool:
    """Whether the guest powered off within the time."""
    off = (libvirt.VIR_DOMAIN_EVENT_STOPPED, libvirt.VIR_DOMAIN_EVENT_CRASHED)
    with _events(connection, domain, "LIFECYCLE", lambda event: event in off) as happened:
        # The guest may have gone before the event was asked for.
        return happened(timeout_s, lambda: not domain.isActive())


@contextlib.contextmanager
def removal(connection: Connection, domain: t.Any) -> t.Iterator[t.Callable[[int], bool]]:
    """Inside, ask for a device's removal; then call what is given with seconds: whether the guest let go of it."""
    with _events(connection, domain, "DEVICE_REMOVED", lambda _alias: True) as happened:
        yield lambda timeout_s: happened(timeout_s, lambda: False)


@contextlib.contextmanager
def _events(
    connection: Connection, domain: t.Any, kind: str, counts: t.Callable[[t.Any], bool]
) -> t.Iterator[t.Callable[[int, t.Callable[[], bool]], bool]]:
    """Watch for one kind of event; gives a function that waits for it (or for a condition) with a deadline."""
    seen: list[object] = []

    def on_event(_connection: object, _domain: object, what: object, *_rest: object) -> None:
        if counts(what):
            seen.append(what)

    def on_timer(_timer: int, _opaque: object) -> None:
        """Only wakes the loop, so that the deadline is looked at."""

    def wait_for(timeout_s: int, already: t.Callable[[], bool]) -> bool:
        deadline = time.monotonic() + timeout_s
        while not seen and not already() and time.monotonic() < deadline:
            libvirt.virEventRunDefaultImpl()
        return bool(seen) or already()

    with said("watch guest", domain.name()):
        callback = connection.domainEventRegisterAny(domain, getattr(libvirt, f"VIR_DOMAIN_EVENT_ID_{kind}"), on_event, None)
    timer = libvirt.virEventAddTimeout(500, on_timer, None)
    try:
        yield wait_for
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
