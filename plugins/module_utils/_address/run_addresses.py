# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the addresses of running guests, many at once, and record them."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._address import (
    files_packets,
    libvirt_ip_addresses,
    plan_address,
    plan_address_steps,
    plan_ethernet,
)
from ansible_collections.corral.virt.plugins.module_utils._address.libvirt_agents import Agents
from ansible_collections.corral.virt.plugins.module_utils._address.plan_address import AddressOutcome
from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, Unsupported
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_system
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query, xml_summary
from ansible_collections.corral.virt.plugins.module_utils._domain.model_address import (
    AddressClaim,
    AddressedGuest,
    HostLinks,
    Sighting,
)
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition, states
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import explained
from ansible_collections.corral.virt.plugins.module_utils._libvirt.model_state import ACTIVE
from ansible_collections.corral.virt.plugins.module_utils._network import files_neighbours
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import Patience

_DRAIN_S, _LOOK_S, _ASK_S = 0.2, 1.0, 5.0  # between readings of packets, looks at all else, and questions to guests
_WATCH_S = 5.0  # between looks at what guests do
_SETTLED_S = 2.0  # by then a guest has answered that can


Searches = t.Mapping[str, plan_address_steps.WaitForAddress]  # by the guests' UUIDs


def refresh(
    connection: t.Any, names: t.Collection[str] | None, timeout_s: int, gate: Gate, *, boots: bool = False
) -> dict[str, t.Any]:
    """Find and record addresses of running guests, all or those of these names; returns the module's result."""
    searches = {
        item.UUIDString(): plan_address_steps.WaitForAddress(item.name(), "any", timeout_s, boots=boots)
        for item in _running(connection, names)
    }
    outcomes = find(connection, searches, named=names is not None) if searches else {}
    todo = changes(outcomes)
    gate.run(list(todo), lambda step: do(connection, {step: todo[step]}))
    found = sorted(((outcomes[uuid], uuid) for uuid in searches), key=lambda item: item[0].name)
    return {
        "changed": bool(todo),
        "diff": _diff(outcomes[uuid] for uuid in todo.values()),
        "guests": [
            {"name": one.name, "uuid": uuid, "addresses": list(one.addresses), "refused": list(one.refused)}
            for one, uuid in found
        ],
        "steps": list(map(str, todo)),
        "notes": plan_address.notes(outcomes),
    }


def _diff(outcomes: t.Iterable[AddressOutcome]) -> dict[str, dict[str, list[str]]]:
    """Each changed guest's recorded addresses, with their sources."""
    changed = [(one.name, one.before, one.record or ()) for one in outcomes]
    return {
        "before": {name: [f"{entry.address} ({entry.source})" for entry in before] for name, before, _after in changed},
        "after": {name: [f"{entry.address} ({entry.source})" for entry in after] for name, _before, after in changed},
    }


def _running(connection: t.Any, names: t.Collection[str] | None) -> list[t.Any]:
    """Running guests: all, or those of these names."""
    found = [item for item, state in states.of_all(connection) if state == "running"]
    return [item for item in found if names is None or item.name() in names]


def leased(connection: t.Any, names: t.Collection[str] | None) -> dict[str, t.Any]:
    """The result for a read-only user: libvirt's DHCP leases of running guests; nothing is recorded."""
    found = []
    for item in _running(connection, names):
        with contextlib.suppress(NotFound), explained("read guest", item.name()):
            _report, root = xml_summary.read(item.XMLDesc())
            known = libvirt_ip_addresses.addresses(item, "lease", xml_summary.macs(root))
            found.append({"name": item.name(), "uuid": item.UUIDString(), "addresses": known, "refused": []})
    return {"changed": False, "guests": sorted(found, key=lambda one: str(one["name"])), "steps": [], "notes": []}


def changes(outcomes: t.Mapping[str, AddressOutcome]) -> dict[plan_address_steps.RecordAddresses, str]:
    """The steps that record addresses, each with its guest's UUID."""
    return {
        plan_address_steps.RecordAddresses(
            outcome.name,
            tuple(entry.address for entry in outcome.record),
            xml_summary.sightings(map(str, outcome.record)),
        ): uuid
        for uuid, outcome in outcomes.items()
        if outcome.record is not None
    }


def do(connection: t.Any, todo: t.Mapping[plan_address_steps.RecordAddresses, str]) -> None:
    """Record addresses with each guest, found by its UUID; missing guests are skipped."""
    for step, uuid in todo.items():
        with contextlib.suppress(NotFound):  # it is gone since
            definition.set_everywhere(libvirt_query.by_uuid(connection, uuid), step.xml, "corral-seen")


def find(connection: t.Any, searches: Searches, *, named: bool) -> dict[str, AddressOutcome]:
    """Outcomes by UUID: of each search, and of other guests that lost a recorded address to one of them.

    The wait for a guest ends when it has an address, or is off.
    """
    here = is_system(connection.getURI())
    with contextlib.ExitStack() as stack:
        listener = None
        if here and any(search.asks("packets") for search in searches.values()):
            with contextlib.suppress(Unsupported):
                listener = stack.enter_context(files_packets.listening(bytes_each=plan_ethernet.SNAP_BYTES))
        agents = stack.enter_context(contextlib.closing(Agents(connection.getURI())))
        return _Search(connection, searches, listener, agents, here=here, named=named).run()


class _Search:
    """The state of one search."""

    def __init__(
        self,
        connection: t.Any,
        searches: Searches,
        listener: files_packets.Listener | None,
        agents: Agents,
        *,
        here: bool,
        named: bool,
    ) -> None:
        self.connection, self.listener, self.agents, self.here, self.named = connection, listener, agents, here, named
        self.searches = searches
        self.links = HostLinks()
        self.guests: dict[str, AddressedGuest] = {}
        self.connected: set[str] = set()  # guests whose agents are there
        self.claims: dict[str, dict[tuple[str, str], AddressClaim]] = {}
        self.begun_s = time.monotonic()
        self.patience = {uuid: Patience(search.timeout_s) for uuid, search in searches.items() if search.boots}
        self.since: dict[str, float] = {}  # when a guest's first address was believed

    def run(self) -> dict[str, AddressOutcome]:
        """Search until every guest has an address, is off, or has used its time."""
        looked_s = asked_s = watched_s = -_WATCH_S
        while True:
            now_s = time.monotonic()
            if now_s - looked_s >= _LOOK_S:
                self._read()
                self._ask_libvirt()
                looked_s = now_s
            if now_s - watched_s >= _WATCH_S:
                self._watch(now_s)
                watched_s = now_s
            self._hear()
            verdict = plan_address.judge(self._heard(), self.links, settled=now_s - self.begun_s >= _SETTLED_S)
            missing = {uuid for uuid in self.searches if self._waits(uuid, verdict, now_s)}
            if not missing:
                return plan_address.outcomes(
                    self._heard(), verdict, self._tried(), now_s=int(time.time()), named=self.named
                )
            if self.listener and now_s - asked_s >= _ASK_S:
                unseen = {uuid for uuid in missing if self._counts(uuid, "packets") and not self.claims.get(uuid)}
                self.listener.put(plan_address.questions(list(self.guests.values()), self.links, unseen))
                asked_s = now_s
            time.sleep(_DRAIN_S)

    def _counts(self, uuid: str, source: str) -> bool:
        """True if a source counts for a guest; for guests that are not searched, all sources do."""
        return uuid not in self.searches or self.searches[uuid].asks(source)

    def _waits(self, uuid: str, verdict: plan_address.AddressVerdict, now_s: float) -> bool:
        believed = verdict.believed.get(uuid, ())
        if believed:
            self.since.setdefault(uuid, now_s)
        return plan_address.is_waited_for(
            self.guests.get(uuid),
            believed,
            over=self._is_over(uuid, now_s - self.begun_s),
            believed_s=now_s - self.since.get(uuid, now_s),
        )

    def _is_over(self, uuid: str, elapsed_s: float) -> bool:
        """True if a guest's time is over; a booting guest's depends on its activity."""
        patience = self.patience.get(uuid)
        return patience.is_over(elapsed_s) if patience else elapsed_s >= self.searches[uuid].timeout_s

    def _read(self) -> None:
        """Read the guests of the host: all at first, later only searched ones, whose agents come and go."""
        if self.here:
            self.links = files_neighbours.links()
        for item, state in states.of_all(self.connection):
            uuid = item.UUIDString()
            if uuid in self.guests and uuid not in self.searches:
                continue
            with contextlib.suppress(NotFound), explained("read guest", item.name()):
                _report, root = xml_summary.read(item.XMLDesc())
                kept = xml_summary.recorded(root)
                seen = tuple(entry for entry in map(Sighting.parse, kept["seen"]) if entry)
                self.guests[uuid] = AddressedGuest(
                    uuid,
                    item.name(),
                    state in ACTIVE,
                    xml_summary.nics(root),
                    tuple(kept["addresses"]),
                    seen,
                    managed=xml_summary.is_managed(root),
                )
                (self.connected.add if xml_summary.has_agent(root) else self.connected.discard)(uuid)
        if self.listener:
            self.listener.follow([nic for guest in self.guests.values() if guest.running for nic in guest.nics])

    def _watch(self, now_s: float) -> None:
        """Observe searched guests: one that boots slowly on a busy host has more time."""
        items = []
        for uuid in self.patience:
            with contextlib.suppress(NotFound):
                items.append(libvirt_query.by_uuid(self.connection, uuid))
        for uuid, doing in (states.doing(self.connection, items) if items else {}).items():
            self.patience[uuid].sees(now_s - self.begun_s, doing)

    def _ask_libvirt(self) -> None:
        """Collect claims from leases, the neighbour table, and agents."""
        for uuid, search in self.searches.items():
            guest = self.guests.get(uuid)
            if guest is None or not guest.running:
                continue
            with contextlib.suppress(NotFound):
                item = libvirt_query.by_uuid(self.connection, uuid)
                for source in ("lease", *(() if self.here else ("arp",))):
                    if search.asks(source):
                        self._claim(uuid, libvirt_ip_addresses.claims(item, source))
            if search.asks("agent") and uuid in self.connected:
                self.agents.ask(uuid)
        for uuid, claim in plan_address.neighbours(self.guests.values(), self.links):
            if self._counts(uuid, "arp"):
                self._claim(uuid, [claim])
        for uuid, claims in self.agents.answers().items():
            self._claim(uuid, claims)

    def _hear(self) -> None:
        """Collect claims from packets, also of guests that are not searched."""
        by_nic = {nic: uuid for uuid, guest in self.guests.items() for nic in guest.nics}
        for nic, data, outgoing in self.listener.heard() if self.listener else ():
            claim = plan_ethernet.claim(data, nic.mac, outgoing=outgoing)
            if claim and nic in by_nic and self._counts(by_nic[nic], "packets"):
                self._claim(by_nic[nic], [claim])

    def _claim(self, uuid: str, claims: t.Iterable[AddressClaim]) -> None:
        known = self.claims.setdefault(uuid, {})
        for claim in claims:
            if claim.outranks(known.get((claim.mac, claim.address))):
                known[claim.mac, claim.address] = claim

    def _heard(self) -> list[AddressedGuest]:
        return [
            dataclasses.replace(guest, claims=tuple(self.claims.get(uuid, {}).values()))
            for uuid, guest in self.guests.items()
        ]

    def _tried(self) -> dict[str, tuple[str, ...]]:
        """The sources that were queried for each searched guest."""
        found = {uuid: guest for uuid, guest in self.guests.items() if uuid in self.searches}
        return {
            uuid: plan_address.tried(
                guest, self.searches[uuid], agent=uuid in self.connected, packets=self.listener is not None
            )
            for uuid, guest in found.items()
        }
