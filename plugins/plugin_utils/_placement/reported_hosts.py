# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts and guests for placement and balance, from the reports of `virt_host_info`."""

from __future__ import annotations

import collections
import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import (
    APART,
    HOST_GROUPS,
    TOGETHER,
    after_prefix,
    versions,
)
from ansible_collections.corral.virt.plugins.module_utils._placement import model_placement
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_thin_pool
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import ThinPool

Info = t.Mapping[str, t.Any]

_OF_A_THIN_POOL = ("name", "size_bytes", "virtual_bytes", "data_percent", "metadata_percent", "zeroes")
_VERSIONS = {"libvirt": "libvirt_version", "qemu": "hypervisor_version", "kernel": "kernel_version"}

# Kept in step with plugins/doc_fragments/controller.py.
OPTIONS: dict[str, t.Any] = {
    "hosts": {"type": "dict", "required": True},
    "cpu_overcommit": {"type": "float", "default": 4.0},
    "memory_overcommit": {"type": "float", "default": 1.0},
    "all_defined": {"type": "bool", "default": False},
    "rules": {
        "type": "dict",
        "default": {},
        "options": {
            "reserve": {"type": "raw"},
            "guest_overhead": {"type": "str"},
            "disk_overcommit": {"type": "float"},
            "failure_domains": {"type": "dict", "default": {}},
            "migration_groups": {"type": "dict", "default": {}},
            "require_n_plus": {"type": "int", "default": 0},
        },
    },
}


@dataclasses.dataclass(frozen=True)
class Counting:
    """How much of a host is reserved, what a guest needs beside its own memory, and the groups of hosts."""

    reserve_mib: t.Mapping[str, int] = dataclasses.field(default_factory=dict)  # by host; "" for all others
    overhead_mib: int = 0
    disk_overcommit: float | None = None
    domains: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    migration_groups: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    groups: t.Mapping[str, frozenset[str]] | None = None

    @classmethod
    def of(cls, rules: t.Mapping[str, t.Any], groups: t.Mapping[str, t.Sequence[str]] | None) -> Counting:
        """The counting of the option `rules` and the groups of the inventory; raises BadInput."""
        reserve = {} if rules.get("reserve") is None else rules["reserve"]
        sizes = reserve if isinstance(reserve, dict) else {"": reserve}
        overcommit = rules.get("disk_overcommit")
        if overcommit is not None and overcommit <= 0:
            raise BadInput("rules.disk_overcommit: must be above zero")
        if rules.get("require_n_plus", 0) < 0:
            raise BadInput("rules.require_n_plus: must not be below zero")
        known = [name for hosts in (groups or {}).values() for name in hosts]
        return cls(
            {name: _mib(size, f"rules.reserve of {name or 'all hosts'}") for name, size in sizes.items()},
            _mib(rules.get("guest_overhead") or 0, "rules.guest_overhead"),
            overcommit,
            _by_host(rules, "failure_domains"),
            _by_host(rules, "migration_groups"),
            {name: frozenset(group for group in groups if name in groups[group]) for name in set(known)}
            if groups
            else None,
        )

    def reserved(self, name: str, own_mib: int) -> int:
        """MiB of a host that no guest gets; `own_mib` unless the rules set it."""
        return self.reserve_mib.get(name, self.reserve_mib.get("", own_mib))

    def disk_left(self, pools: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, float]:
        """MiB left by pool; none if disks are not counted. Inactive pools and unknown capacities are left out."""
        if self.disk_overcommit is None:
            return {}
        return {
            pool["name"]: (pool["available_bytes"] + (self.disk_overcommit - 1) * pool["capacity_bytes"]) / 1024**2
            for pool in pools
            if pool["active"] and pool.get("capacity_bytes")
        }


def _thin_left(pools: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, float]:
    """MiB that new volumes may have, by thin pool, of those that take any: POOL/NAME."""
    found = {
        f"{pool['name']}/{thin['name']}": plan_thin_pool.left_bytes(
            ThinPool(group=pool["name"], **{field: thin[field] for field in _OF_A_THIN_POOL})
        )
        for pool in pools
        for thin in pool.get("thin_pools") or ()
    }
    return {name: left / 1024**2 for name, left in found.items() if left is not None}


def _thin_pools(pools: t.Sequence[t.Mapping[str, t.Any]] | None) -> frozenset[str] | None:
    """The thin pools that take new volumes; None if the host does not report all."""
    if pools is None or any(
        pool["active"] and pool.get("type") == "logical" and "thin_pools" not in pool for pool in pools
    ):
        return None
    return frozenset(_thin_left(pools))


def _by_host(rules: t.Mapping[str, t.Any], name: str) -> dict[str, str]:
    return {str(host): str(word) for host, word in (rules.get(name) or {}).items()}


def _mib(size: t.Any, what: str) -> int:
    return units.kib_of(size, what=what) // 1024 if size else 0


def policy(options: t.Mapping[str, t.Any], *others: str) -> model_placement.Policy:
    """The overcommit policy; raises BadInput if a factor, or one of the `others`, is not above zero."""
    given = {name: options[name] for name in (*others, "cpu_overcommit", "memory_overcommit")}
    low = [name for name, value in given.items() if value is not None and value <= 0]
    if low:
        raise BadInput(f"{', '.join(low)}: must be above zero")
    losses = (options.get("rules") or {}).get("require_n_plus", 0)
    return model_placement.Policy(options["cpu_overcommit"], options["memory_overcommit"], losses)


def usable(results: t.Mapping[str, t.Any]) -> dict[str, Info]:
    """Reports by host; hosts that were not reached are left out."""
    reported = {name: found.get("host") for name, found in sorted(results.items()) if isinstance(found, dict)}
    return {name: _with_members(info) for name, info in reported.items() if isinstance(info, dict)}


def _with_members(info: Info) -> Info:
    """The report with the members of the host's cluster in each guest that it runs."""
    if not info.get("members"):
        return info
    guests = [{**one, "members": info["members"] if one.get("resource") else []} for one in info["guests"]]
    return {**info, "guests": guests}


def unsettled(infos: t.Mapping[str, Info]) -> list[dict[str, t.Any]]:
    """Guests with a recorded migration, on any host: its source, its destination, and the guest's state."""
    names = {info["uuid"]: name for name, info in infos.items() if info.get("uuid")}
    found: dict[str, dict[str, t.Any]] = {}
    for name, info in infos.items():
        for its in info["guests"]:
            source = names.get(its.get("moving_from") or "")
            dest = its.get("moving") if name == source else name
            if its.get("moving") and source and dest in infos:
                described = {"name": its["name"], "source": source, "dest": dest, "state": its["state"]}
                found.setdefault(
                    its["uuid"],
                    {**described, "why": f"its migration from {source} to {dest} is in progress or was interrupted"},
                )
    return sorted(found.values(), key=lambda move: (move["source"], move["name"]))


def host(
    name: str,
    info: Info,
    *,
    started: t.Mapping[str, model_placement.Guest] | None = None,
    all_defined: bool = False,
    counting: Counting | None = None,
) -> model_placement.Host:
    """A hypervisor with the resources promised to guests that run, start with the host, or are `started` now."""
    counting = counting or Counting()
    held = _guests_with_memory(info, started or {}, all_defined, counting)
    alone = [found for found in info["guests"] if found["state"] in model_placement.ACTIVE]  # in the host's own figures
    more_vcpus = sum(guest.vcpus for guest in held) - sum(found["vcpus"] for found in alone)
    more_mib = sum(guest.memory_mib for guest in held) - sum(found["memory_mib"] for found in alone)
    return model_placement.Host(
        name=name,
        cpus=info["cpus"],
        memory_mib=info["memory_mib"] - counting.reserved(name, info["memory_reserved_mib"]),
        vcpus_used=info["vcpus_used"] + more_vcpus,
        memory_used_mib=info["memory_used_mib"] + more_mib,
        guests={found["name"]: _copy(found) for found in info["guests"]},
        residents=tuple(held),
        apart=frozenset().union(*map(_apart, info["guests"])),
        together=frozenset().union(*(after_prefix(found["tags"], TOGETHER) for found in info["guests"])),
        bridges=None if info["bridges"] is None else frozenset(info["bridges"]),
        networks=_names(info, "networks", lambda network: network.get("active", True)),
        pools=_names(info, "pools", lambda pool: pool["active"]),
        thin_pools=_thin_pools(info["pools"]),
        disk_left_mib={**counting.disk_left(info["pools"] or ()), **_thin_left(info["pools"] or ())},
        filesystems={pool["name"]: pool["filesystem"] for pool in info["pools"] or () if pool.get("filesystem")},
        machines=_offered(info.get("machines")),
        cpu_models=_offered((info.get("domain_capabilities") or {}).get("cpu_models")),
        platform=_platform(info.get("domain_capabilities") or {}),
        groups=None if counting.groups is None else counting.groups.get(name, frozenset()),
        devices=_free(info.get("devices"), held),
        versions={program: info[key] for program, key in _VERSIONS.items() if info.get(key)},
        migration_group=counting.migration_groups.get(name, ""),
        domain=counting.domains.get(name, ""),
        maintenance=(info.get("maintenance") or {}).get("reason"),
    )


def _guests_with_memory(
    info: Info, started: t.Mapping[str, model_placement.Guest], all_defined: bool, counting: Counting
) -> list[model_placement.Guest]:
    """Guests for which the host's memory is reserved."""
    held = []
    for found in info["guests"]:
        wanted = started.get(found["name"])
        if found["state"] in model_placement.ACTIVE or wanted or found.get("autostart") or all_defined:
            own = guest(found, counting)
            if wanted:
                vcpus, memory_mib = max(own.vcpus, wanted.vcpus), max(own.memory_mib, wanted.memory_mib)
                own = dataclasses.replace(own, vcpus=vcpus, memory_mib=memory_mib)
            held.append(own)
    return held


def _names(info: Info, key: str, usable: t.Callable[[t.Mapping[str, t.Any]], bool]) -> frozenset[str] | None:
    """Names of a host's usable objects; None if the host does not report them."""
    return None if info.get(key) is None else frozenset(item["name"] for item in info[key] if usable(item))


def _free(devices: t.Sequence[str] | None, held: t.Iterable[model_placement.Guest]) -> dict[str, int] | None:
    """The number of unused devices of each kind; 0 if all are in use. None if the host does not report them."""
    if devices is None:
        return None
    used = collections.Counter(device for guest in held for device in guest.devices)
    return {device: max(0, count - used[device]) for device, count in collections.Counter(devices).items()}


def _offered(names: t.Sequence[str] | None) -> frozenset[str] | None:
    return frozenset(names) if names else None


def _platform(capable: t.Mapping[str, t.Any]) -> frozenset[str] | None:
    """Platform capabilities of a host; None if it does not report them."""
    return frozenset(capable["platform"]) if "platform" in capable else None


def guest(found: Info, counting: Counting | None = None, *, host_name: str | None = None) -> model_placement.Guest:
    """An existing guest; with `host_name`, restricted to hosts that it can migrate to from there."""
    active = found["state"] in model_placement.ACTIVE
    within = counting.migration_groups.get(host_name, "") if counting and host_name and active else None
    return model_placement.Guest(
        name=found["name"],
        uuid=found["uuid"],
        vcpus=found["vcpus"],
        memory_mib=found["memory_mib"] + (counting.overhead_mib if counting else 0),
        apart=_apart(found),
        together=after_prefix(found["tags"], TOGETHER),
        bridges=frozenset(found["bridges"]),
        pools=frozenset(found["pools"]),
        networks=frozenset(found.get("networks") or ()),
        machines=frozenset([found["machine"]] if found.get("machine") else ()),
        platform=frozenset(found.get("platform") or ()),
        groups=after_prefix(found["tags"], HOST_GROUPS),
        devices=tuple(found.get("devices") or ()),
        versions=versions(found["tags"]),
        runs_within=within,
        members=frozenset(found.get("members") or ()),
    )


def _apart(found: Info) -> frozenset[str]:
    """The words by which an existing guest shares no host, from its tags and its `ha`."""
    return after_prefix(found["tags"], APART) | frozenset(found.get("apart") or ())


def _copy(found: Info) -> model_placement.GuestCopy:
    return model_placement.GuestCopy(found["state"], found["uuid"], found.get("moving"), found.get("moving_from"))
