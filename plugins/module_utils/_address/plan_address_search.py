# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide how long to wait for a guest's address, and what a search has found. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._address.plan_address import (
    AddressVerdict,
    addresses,
    recorded,
)
from ansible_collections.corral.virt.plugins.module_utils._address.plan_address_steps import WaitForAddress
from ansible_collections.corral.virt.plugins.module_utils._domain.model_address import (
    SOURCES,
    AddressClaim,
    AddressedGuest,
    Sighting,
)

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
