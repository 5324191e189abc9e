# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The address of each guest, where several may claim the same one. Pure."""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._inventory.inventory_guests import (
    ADDRESSES,
    Facts,
    Guests,
    in_uri,
    ip,
    is_active,
)

# Ways to a guest that need no address of its own on the controller's network: its hypervisor, or its agent. Pure.

AGENT_CONNECTION = "community.libvirt.libvirt_qemu"


def jump(user: str, address: str, port: str) -> str:
    """ssh arguments for a jump through the hypervisor."""
    place = (f"{user}@" if user else "") + in_uri(address) + (f":{port}" if port else "")
    return f"-o {shlex.quote(f'ProxyJump={place}')}"


def control_path(hypervisor: str, uuid: str) -> str:
    """ssh's control path for one guest, in the syntax of Ansible's option.

    Ansible's own path depends on address, port and user, which are the same for guests behind several hypervisors: a
    command for one of them would run in the other.
    """
    place = hashlib.sha256(f"{hypervisor} {uuid}".encode()).hexdigest()[:16]
    return f"%(directory)s/{place}-%%p-%%r"


def agent(name: str, uri: str) -> dict[str, t.Any]:
    """Variables for the connection plugin that runs commands by the guest agent; `name` is libvirt's."""
    return {"ansible_connection": AGENT_CONNECTION, "ansible_libvirt_uri": uri, "ansible_host": name}


_TOLD = 3  # addresses in one warning


def reached_at(
    guests: Guests, foreign: t.Mapping[str, str], prefer: t.Sequence[str], *, through: bool = False
) -> tuple[dict[str, str], list[str]]:
    """The address of every guest that has an unambiguous one, and warnings about the others.

    `foreign` maps addresses to hosts that are no guests. With connections `through` the hypervisors, each of them may
    have a guest with the same address.
    """
    claims: dict[tuple[str, str], list[str]] = {}
    for name, (hypervisor, facts) in guests.items():
        for address in _usable(facts["addresses"]):
            claims.setdefault((hypervisor if through else "", address), []).append(name)
    owner: dict[tuple[str, str], str] = {}
    taken, disputed, older = list[str](), list[str](), list[str]()
    for (network, address), names in claims.items():
        running = [name for name in names if is_active(guests[name][1])]
        if address in foreign:
            taken.append(f"{address}, claimed by {_places(guests, names)}, belongs to {foreign[address]}")
            continue
        believed = _worthiest(address, {name: guests[name][1] for name in running or names})
        if len(believed) > 1:
            disputed.append(f"{address} is claimed by {_places(guests, running or names)}")
            continue
        owner[network, address] = believed[0]
        beaten = [name for name in running if name != believed[0]]
        if beaten:
            older.append(f"{address} of {_places(guests, beaten)} now belongs to {believed[0]}")
    found = {}
    for name, (hypervisor, facts) in guests.items():
        network = hypervisor if through else ""
        own = [address for address in _usable(facts["addresses"]) if owner.get((network, address)) == name]
        best = _preferred(own, prefer)
        if best:
            found[name] = best
    not_used = "not used as ansible_host; to reach these guests set it in host_vars"
    warnings = [f"{_some(taken)}; {not_used}"] if taken else []
    warnings += [f"{_some(disputed)}; {not_used}"] if disputed else []
    warnings += [f"{_some(older)}; look for these guests again: ansible-playbook corral.virt.query"] if older else []
    return found, warnings


def _worthiest(address: str, claimants: t.Mapping[str, Facts]) -> list[str]:
    """Guests with the best claim to an address: the best witness, among equals the latest.

    More than one if that is ambiguous.
    """
    worth = {name: _witness_worth(address, facts) for name, facts in claimants.items()}
    best = max(worth.values())
    return [name for name in worth if worth[name] == best]


def _witness_worth(address: str, facts: Facts) -> tuple[int, ...]:
    """The worth of the witness for that address, as `hypervisors.facts` tells it."""
    return next((tuple(worth) for text, worth in facts.get("worth", {}).items() if str(ip(text)) == address), ())


def _places(guests: Guests, names: t.Sequence[str]) -> str:
    more = f" and {len(names) - _TOLD} more" if names[_TOLD:] else ""
    return " and ".join(f"{name} on {guests[name][0]}" for name in names[:_TOLD]) + more


def _some(addresses: t.Sequence[str]) -> str:
    return "; ".join(addresses[:_TOLD]) + (
        f"; and {len(addresses) - _TOLD} more such addresses" if addresses[_TOLD:] else ""
    )


def _usable(known: t.Iterable[str]) -> list[str]:
    """Addresses that can belong to a guest, in one spelling."""
    return list(dict.fromkeys(filter(None, map(_guest_address, known))))


@functools.lru_cache(maxsize=ADDRESSES)
def _guest_address(text: str) -> str | None:
    """The canonical spelling of an address that can belong to a guest; None for any other."""
    address = ip(text)
    return None if address is None or _is_special(address) else str(address)


def _is_special(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    kinds = ("is_loopback", "is_multicast", "is_unspecified", "is_link_local", "is_reserved")
    return any(getattr(address, kind) for kind in kinds)


def _preferred(usable: t.Sequence[str], prefer: t.Sequence[str]) -> str | None:
    """The first address of the first preferred kind (`ipv4`, `ipv6` or a network), else the first; None without any."""
    valid = [address for address in map(ip, usable) if address]
    for kind in prefer:
        for item in valid:
            if kind == f"ipv{item.version}" or ("/" in kind and item in ipaddress.ip_network(kind, strict=False)):
                return str(item)
    return str(valid[0]) if valid else None
