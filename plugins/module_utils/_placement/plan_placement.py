# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose a hypervisor for each of many guests at once. Pure; milliseconds for thousands.

Big guests first (by their dominant share of the biggest host), each to the host where it costs least. Guests that exist
stay where they are, except on hosts to be left. Where a guest remains without a host, the batch is packed again by
other rules (`plan_packing`), and the packing that leaves fewest is taken.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.output import some_of
from ansible_collections.corral.virt.plugins.module_utils._placement import plan_host_loss, plan_packing
from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import (
    Guest,
    GuestCopy,
    Host,
    Placement,
    Policy,
)

_NAMED = 3  # hosts in a message
_Alias = tuple[str, str, GuestCopy]  # a host, and the name that a guest has there


def place(
    guests: t.Sequence[Guest],
    hosts: t.Sequence[Host],
    *,
    unreached: t.Collection[str] = (),
    excluded: t.Collection[str] = (),
    gone: t.Sequence[str] = (),
    policy: Policy | None = None,
    leave: t.Collection[str] = (),
) -> list[Placement]:
    """A placement for every guest, in the order given.

    Hosts that are `unreached`, or `excluded` from this run, may hold guests that were not seen; those that are
    `gone` hold none. Guests on hosts to `leave` are placed anew, inactive ones last.
    """
    unseen = _Unseen(sorted(unreached), sorted(excluded), gone)
    aliases = _names_by_uuid(hosts)
    fixed = {guest.name: _fixed_placement(guest, hosts, unseen, leave, aliases) for guest in guests}
    apart: dict[str, set[str]] = {}
    for guest in guests:
        there = fixed[guest.name]
        if there and there.host:
            apart.setdefault(there.host, set()).update(guest.apart)
    off = {name for host in hosts for name in host.guests} - {
        name for host in hosts for name, copy in host.guests.items() if copy.active
    }
    usable = [host for host in hosts if host.name not in leave and host.has_capacity]
    unplaced = [guest for guest in guests if fixed[guest.name] is None]
    policy = policy or Policy()
    placed = _placed(unplaced, usable, policy, apart=apart, last=off)
    return [fixed[guest.name] or placed[guest.name] for guest in guests]


def _placed(
    guests: t.Sequence[Guest],
    hosts: t.Sequence[Host],
    policy: Policy,
    *,
    apart: t.Mapping[str, t.Collection[str]],
    last: t.Collection[str],
) -> dict[str, Placement]:
    """Placements by guest. A guest that the loss of hosts would leave without one is refused.

    The room that it would have taken goes to the remaining guests.
    """
    placed = plan_packing.packed(guests, hosts, policy, apart=apart, last=last)
    open_guests = guests
    while policy.losses:
        going = [(guest, host) for guest in open_guests if (host := placed[guest.name].host)]
        going.sort(key=lambda item: (-item[0].memory_mib, -item[0].vcpus, item[0].name))
        refused = plan_host_loss.refusals(hosts, going, policy, policy.losses)
        for name, against in refused.items():
            placed[name] = Placement(name, None, f"require_n_plus is {policy.losses}, and with it {against}")
        open_guests = [one for one in open_guests if placed[one.name].host is None and one.name not in refused]
        if not refused or not open_guests:
            break
        hosts = plan_host_loss.with_guests(hosts, [item for item in going if item[0].name not in refused])
        placed.update(plan_packing.packed(open_guests, hosts, policy, apart=apart, last=last))
    return placed


@dataclasses.dataclass(frozen=True)
class _Unseen:
    """Hosts whose state is unknown."""

    unreached: t.Sequence[str]
    excluded: t.Sequence[str]
    gone: t.Sequence[str]  # declared dead before

    def __bool__(self) -> bool:
        return bool(self.unreached or self.excluded)

    def may_have(self, what: str) -> str:
        """The message that these hosts may have something, and why that is unknown."""
        silent = f"{some_of(self.unreached, _NAMED)} failed or could not be reached"
        hidden = f"this run leaves out {some_of(self.excluded, _NAMED)}"
        if not self.excluded:
            return f"{silent} and may have {what}"
        return f"{silent}, {hidden}, and each may have {what}" if self.unreached else f"{hidden}, which may have {what}"

    @property
    def remedy(self) -> str:
        """How to make their state known."""
        words = []
        if self.unreached:
            words.append(f"see the error of {some_of(self.unreached, _NAMED)} above")
            dead = ",".join([*self.gone, *self.unreached])
            words.append(f"where it is dead, remove it from the inventory, or: -e gone={dead} -e confirm={dead}")
        if self.excluded:
            words.append("run it for all hypervisors, without --limit")
        return "; ".join(words)


def _names_by_uuid(hosts: t.Sequence[Host]) -> dict[str, list[_Alias]]:
    """Every guest by its UUID, under each of its names."""
    found: dict[str, list[_Alias]] = {}
    for host in hosts:
        for name, copy in host.guests.items():
            if copy.uuid:
                found.setdefault(copy.uuid, []).append((host.name, name, copy))
    return found


def _fixed_placement(
    guest: Guest,
    hosts: t.Sequence[Host],
    unseen: _Unseen,
    leave: t.Collection[str],
    aliases: t.Mapping[str, t.Sequence[_Alias]],
) -> Placement | None:
    """The placement of a guest that exists, may exist on an unseen host, or names an unknown host; None for others."""
    copies = _copies(guest, hosts)
    running = [name for name, copy in copies.items() if copy.active]
    if len({copy.uuid for copy in copies.values()}) > 1:
        return Placement(guest.name, None, _different(copies, leave), deferred=True, unclear=True)
    if why := _under_another_name(guest, copies, aliases):
        return Placement(guest.name, None, why, deferred=True, unclear=True)
    if len(running) > 1 or any(copy.moving for copy in copies.values()):
        return _in_two_places(guest.name, copies, leave, {host.name for host in hosts})
    if copies and not running and unseen:
        # The copy here may be a remainder of one that runs there.
        why = f"{unseen.may_have('it running')}, and it is shut off on {' and '.join(copies)}; {unseen.remedy}"
        return Placement(guest.name, None, why, deferred=True)
    holders = running or [name for name in copies if name == guest.host] or list(copies)
    if len(holders) > 1:
        return Placement(guest.name, None, _off_twice(guest.name, copies, leave), deferred=True, unclear=True)
    if holders:
        host = holders[0]
        if host in leave:
            return None
        why = (
            "it is there"
            if guest.host in (None, host)
            else f"it is there; migrate it to {guest.host} with playbook migrate"
        )
        return Placement(guest.name, host, why, exists=True)
    names = sorted([*(host.name for host in hosts), *unseen.unreached, *unseen.excluded])
    if guest.host is not None and guest.host not in names:
        return Placement(guest.name, None, f"there is no hypervisor {guest.host}; choose one of {', '.join(names)}")
    if unseen:
        # Creating it here could create a second guest of this name.
        return Placement(guest.name, None, f"{unseen.may_have('it')}; {unseen.remedy}", deferred=True)
    return None


def _copies(guest: Guest, hosts: t.Sequence[Host]) -> dict[str, GuestCopy]:
    """The guest as each host has it; of different guests of its name, the one that its UUID or its host chooses."""
    copies = {host.name: host.guests[guest.name] for host in hosts if guest.name in host.guests}
    chosen = guest.uuid or (copies[guest.host].uuid if guest.host in copies else None)
    return {name: copy for name, copy in sorted(copies.items()) if chosen in (None, copy.uuid)}


def _different(copies: t.Mapping[str, GuestCopy], leave: t.Collection[str]) -> str:
    """Why none of several guests of one name is taken."""
    texts = [f"UUID {one.uuid} {_seen(one)} on {host}" for host, one in copies.items()]
    count = len({one.uuid for one in copies.values()})
    # What leaves a host has no options of its own that could choose.
    is_leaving = any(host in leave for host in copies)
    choose = "" if is_leaving else f"to choose one, set uuid, or host to {' or '.join(copies)}, or "
    return f"{count} guests have this name ({', '.join(texts)}); {choose}rename the others (virsh domrename)"


def _under_another_name(
    guest: Guest, copies: t.Mapping[str, GuestCopy], aliases: t.Mapping[str, t.Sequence[_Alias]]
) -> str:
    """Why a guest that runs under another name is not taken: two copies would write to the same disks.

    A new guest with the UUID of one that is off would be its second copy, too.
    """
    uuid = next((copy.uuid for copy in copies.values()), guest.uuid)
    others = [
        (host, name, copy)
        for host, name, copy in aliases.get(uuid or "", ())
        if name != guest.name and host not in copies and (copy.active or not copies)
    ]
    if not others:
        return ""
    if not copies:
        others_text = " and ".join(f"{name} on {host} ({_seen(copy)})" for host, name, copy in sorted(others))
        return f"its UUID {uuid} is that of {others_text}; rename that guest (virsh domrename), or set another uuid"
    here = " and ".join(f"{_seen(copy)} on {host}" for host, copy in copies.items())
    there = " and, ".join(f"as {name}, {_seen(copy)} on {host}" for host, name, copy in sorted(others))
    other = min(others)[1]
    return (
        f"it is {here} and, {there}: both have the UUID {uuid}; compare the copies and undefine the wrong one "
        f"(playbook purge -e guest={guest.name} or -e guest={other}, with --limit HOST)"
    )


def _seen(copy: GuestCopy) -> str:
    return copy.state if copy.active else "off"


def _off_twice(name: str, copies: t.Mapping[str, GuestCopy], leave: t.Collection[str]) -> str:
    """Why none of several copies of a guest is taken: an old one would write to old disks."""
    uuid = next(copy.uuid for copy in copies.values())
    # What leaves a host has no options of its own that could choose.
    choose = "" if any(host in leave for host in copies) else f", or set host to {' or '.join(copies)}"
    return (
        f"it is off on {' and '.join(copies)} with the same UUID {uuid}, and no migration of it is recorded; compare "
        f"the copies and undefine the wrong one (playbook purge -e guest={name} --limit HOST){choose}"
    )


def _in_two_places(
    name: str, copies: t.Mapping[str, GuestCopy], leave: t.Collection[str], hosts: t.Collection[str]
) -> Placement:
    """The placement of a guest with copies on several hosts: at most one runs during a migration, two are an error."""
    running = [where for where, copy in copies.items() if copy.state == "running"]
    names = " and ".join(running)
    if len(running) > 1:
        return Placement(
            name,
            None,
            f"it runs on {names} at once; nothing was touched: compare both copies, then destroy the wrong one",
        )
    source, dest = next(
        ((where, copy.moving) for where, copy in copies.items() if copy.moving and copy.moving != where), (None, None)
    )
    dest = dest or next((copy.moving for copy in copies.values() if copy.moving), None)
    if source in leave and dest in hosts and dest not in leave:
        return Placement(name, dest, f"it is being migrated to {dest}")
    if dest:
        remedy = f"run again when it is there, or finish it (playbook migrate -e guest={name} -e to={dest})"
        return Placement(name, None, f"it is being migrated to {dest}; {remedy}", deferred=True)
    copies_text = " and ".join(f"{copy.state} on {where}" for where, copy in copies.items())
    why = (
        f"it is {copies_text}, as during a migration; run again when it is on one host, or compare the copies if none "
        "is in progress"
    )
    return Placement(name, None, why, deferred=True, unclear=True)
