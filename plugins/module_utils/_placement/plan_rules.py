# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules that refuse a host for a guest, and why no host takes it. Each returns a reason or None. Pure.

A reason is a pair: its kind, by which refusals are grouped, and its text.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.output import some_of
from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import Guest
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_host_load import Bundle, Load, Loads

_FEW = 8  # hosts whose reasons are told one by one
_NAMED = 3

_ASKED = "cannot take it"

Reason = tuple[str, str]


# Fields that guests and hosts both have; a field that a host does not report (None) refuses no guest.
_OFFERED = (
    ("bridges", "has no bridge"),
    ("pools", "has no active storage pool"),
    ("thin_pools", "has no usable thin pool"),
    ("networks", "has no active network"),
    ("machines", "does not provide machine type"),
    ("cpu_models", "does not provide CPU model"),
    ("platform", "does not provide guests with"),
    ("groups", "is not in the group"),
)


def _offers(load: Load, guest: Guest) -> Reason | None:
    for field, words in _OFFERED:
        wanted: frozenset[str] = getattr(guest, field)
        if wanted:
            offered: frozenset[str] | None = getattr(load.host, field)
            if offered is not None and not wanted <= offered:
                reason = f"{words} {', '.join(sorted(wanted - offered))}"
                return reason, reason
    return None


def _memory(load: Load, guest: Guest) -> Reason | None:
    if guest.memory_mib > load.memory_left:
        return "lacks memory", f"{mib(load.memory_left)} of memory left"
    return None


def _vcpus(load: Load, guest: Guest) -> Reason | None:
    if guest.vcpus > load.cpu_left:
        return "lacks vcpus", f"{max(0, int(load.cpu_left))} vcpus left"
    return None


def _disk(load: Load, guest: Guest) -> Reason | None:
    """Refuses a host without room for all disks: those in pools of one filesystem share its room."""
    needs: dict[str, dict[str, int]] = {}
    for pool, needed in guest.disks:
        needs.setdefault(load.host.filesystem(pool), {})[pool] = needed
    for pools in needs.values():
        needed = sum(pools.values())
        left = min((left for pool in pools if (left := load.disk_left(pool)) is not None), default=None)
        if left is not None and needed > left:
            names, kind = ", ".join(pools), "thin pool" if "/" in next(iter(pools)) else "pool"
            where = f"{kind}s {names} of one filesystem" if len(pools) > 1 else f"{kind} {names}"
            return f"lacks room in {where}", f"{mib(left)} left in {where}, of {mib(needed)} that it needs"
    return None


def _devices(load: Load, guest: Guest) -> Reason | None:
    for device in guest.devices if load.host.devices is not None else ():
        left = load.devices_left(device)
        if left is None:
            reason = f"has no device {device}"
            return reason, reason
        if left < guest.devices.count(device):
            return f"has device {device} in use", f"device {device} is in use"
    return None


def _versions(load: Load, guest: Guest) -> Reason | None:
    for program, oldest in guest.versions:
        found = load.host.versions.get(program)
        if found is not None and _numbers(found) < _numbers(oldest):
            return f"has {program} older than {oldest}", f"has {program} {found}, and it requires {oldest}"
    return None


def _numbers(version: str) -> list[int]:
    """A version as comparable numbers: `9.0.0` equals `9`, and `6.1.0-18-amd64` is newer than `6.1`."""
    numbers = [int(digits) for digits in re.findall(r"\d+", version)]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers


def _migrates(load: Load, guest: Guest) -> Reason | None:
    """Refuses hosts outside a running guest's migration group."""
    if guest.runs_within in (None, load.host.migration_group):
        return None
    reason = f"is not in migration group {guest.runs_within}" if guest.runs_within else "is in a migration group"
    return reason, f"{reason}, and the guest runs"


def _member(load: Load, guest: Guest) -> Reason | None:
    """Refuses hosts on which the cluster that runs a guest would not see it."""
    if not guest.members or load.host.name in guest.members:
        return None
    reason = "is no member of the cluster that runs it"
    return reason, f"{reason} (members: {', '.join(sorted(guest.members))})"


def _asked(load: Load, guest: Guest) -> Reason | None:
    """Refuses hosts that have answered that they cannot take the guest."""
    why = dict(guest.refused).get(load.host.name)
    return None if why is None else (_ASKED, why)


def _apart(load: Load, guest: Guest) -> Reason | None:
    if guest.apart.isdisjoint(load.apart):
        return None
    word = min(guest.apart.intersection(load.apart))
    reason = f"has a guest of group {word}, whose guests stay apart"
    return reason, reason


def _together(load: Load, guest: Guest) -> Reason | None:
    """Refuses a host without the others of a `together` group; if there are none, one that cannot have all of them."""
    for word in sorted(guest.together):
        there = load.neighbours.together.get(word)
        if there and load.host.name not in there:
            reason = f"guests of group {word} stay together on {' and '.join(sorted(there))}"
            return reason, reason
        bundle = load.neighbours.bundles.get(word)
        if not there and bundle and (found := _against_all(load, bundle)):
            kind, reason = found
            return f"cannot have all of group {word} ({kind})", f"cannot have all of group {word}, which {reason}"
    return None


def _against_all(load: Load, bundle: Bundle) -> Reason | None:
    """Why the host cannot have all guests of a bundle, none of which is placed yet."""
    need = f"needs {bundle.guest.vcpus} vcpus and {mib(bundle.guest.memory_mib)}"
    if bundle.conflict:
        return bundle.conflict, f"{need}: {bundle.conflict}"
    if bundle.guest.host not in (None, load.host.name):
        return "another host is requested", f"{need}: one requests {bundle.guest.host}"
    names = (namesake(load, one) for one in bundle.members)
    found = next((("has another guest of a name", why) for why in names if why), None) or lack(load, bundle.guest)
    return found and (found[0], f"{need}: {found[1]}")


Rule = t.Callable[[Load, Guest], "Reason | None"]
# What a host refuses whoever is put on it, and the fields of a guest that those rules look at.
FIXED: tuple[Rule, ...] = (_offers, _versions, _migrates, _member)
FIXED_FIELDS = (*(field for field, _words in _OFFERED), "versions", "runs_within", "members", "host")
# What few guests ask for, by the field that asks.
_OF_FEW: tuple[tuple[str, Rule], ...] = (
    ("refused", _asked),
    ("devices", _devices),
    ("disks", _disk),
    ("apart", _apart),
    ("together", _together),
)
RULES: tuple[Rule, ...] = (*FIXED, _asked, _devices, _memory, _vcpus, _disk, _apart, _together)


def of_few(guest: Guest) -> list[Rule]:
    """The further rules that apply to this guest, beside memory, vCPUs and fixed rules."""
    return [rule for field, rule in _OF_FEW if getattr(guest, field)]


def against(load: Load, guest: Guest) -> str | None:
    """The text of the reason against the guest on that host; None if it can go there."""
    found = first_reason(load, guest)
    return found and found[1]


def first_reason(load: Load, guest: Guest) -> Reason | None:
    """The first reason against the guest on that host; None if it can go there."""
    host = load.host
    if host.maintenance is not None:
        return "is in maintenance", f"is in maintenance: {host.maintenance}"
    if why := namesake(load, guest):
        return "has another guest of that name", why
    return lack(load, guest)


def namesake(load: Load, guest: Guest) -> str | None:
    """The reason if another guest has its name on that host; else None."""
    there = load.host.guests.get(guest.name) if guest.uuid else None
    if there and there.uuid != guest.uuid:
        return f"has another guest named {guest.name} (UUID {there.uuid}); rename one of them (virsh domrename)"
    return None


def lack(load: Load, guest: Guest) -> Reason | None:
    """The first reason against any guest with these needs; None if there is none."""
    for rule in RULES:
        if found := rule(load, guest):
            return found
    return None


def dislikes(load: Load, guest: Guest) -> int:
    """The number of preferences that the host violates: preferred hosts, and separate failure domains."""
    host = load.host
    elsewhere = guest.prefer and not (host.name in guest.prefer or guest.prefer & (host.groups or frozenset()))
    beside = any(load.neighbours.apart.get((word, host.domain)) for word in guest.apart)
    return bool(elsewhere) + beside


def refusal(guest: Guest, loads: Loads) -> str:
    """Why no host takes the guest: by host if there are few, else by kind of reason."""
    reasons = {
        name: ("another host is requested", f"the guest requests {guest.host}")
        if guest.host not in (None, name)
        else t.cast("tuple[str, str]", first_reason(load, guest))
        for name, load in sorted(loads.items())
    }
    if reasons and all(kind == _ASKED for kind, _why in reasons.values()):
        return "; ".join(why for _kind, why in reasons.values())
    need = f"it needs {guest.vcpus} vcpus and {mib(guest.memory_mib)}, and no hypervisor fits"
    if len(reasons) <= _FEW:
        return f"{need}: {'; '.join(f'{name}: {why}' for name, (_kind, why) in reasons.items()) or 'there is none'}"
    kinds: dict[str, list[str]] = {}
    for name, (kind, _why) in reasons.items():
        kinds.setdefault(kind, []).append(name)
    groups = [_group(kind, names, loads) for kind, names in sorted(kinds.items(), key=lambda each: -len(each[1]))]
    return f"{need}, of {len(reasons)}: {'; '.join(groups)}"


def _group(kind: str, names: t.Sequence[str], loads: Loads) -> str:
    """A group of refusals, such as `96 hosts: lacks memory (most left: 5.4 GiB on h000)`."""
    some = some_of(names, _NAMED)
    if kind == "lacks memory":
        name = max(names, key=lambda each: (loads[each].memory_left, each))
        return f"{some}: {kind} (most left: {mib(loads[name].memory_left)} on {name})"
    if kind == "lacks vcpus":
        name = max(names, key=lambda each: (loads[each].cpu_left, each))
        return f"{some}: {kind} (most left: {max(0, int(loads[name].cpu_left))} on {name})"
    return f"{some}: {kind}"


def mib(amount: float) -> str:
    """A size in MiB as a readable text."""
    return units.bytes_text(max(0, int(amount)) * 1024**2)
