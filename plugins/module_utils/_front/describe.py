# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Describe a guest and a host as data, in the words of the options. Used by the info modules and the inventory."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._libvirt import figures, query, states
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import explained
from ansible_collections.corral.virt.plugins.module_utils._model.address import Sighting
from ansible_collections.corral.virt.plugins.module_utils._xml import (
    disk,
    domain,
    graphics,
    host_xml,
    interface,
    record,
)
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

__all__ = ["RESERVED_MIB", "describe_guest", "describe_guests", "describe_host"]

RESERVED_MIB = 512  # for the host itself; what placement may give away is less than what is there


def describe_guests(
    connection: t.Any, *, names: t.Collection[str] | None = None, addresses: str = "none"
) -> list[dict[str, t.Any]]:
    """Guests by name: one call for the figures of all, one document each. `names` limits them.

    Who goes meanwhile is left out.
    """
    found = []
    for item, statistics in figures.stats(connection):
        if names is None or item.name() in names:
            with contextlib.suppress(NotFound):
                found.append(describe_guest(item, statistics, addresses=addresses))
    return sorted(found, key=lambda guest: t.cast(str, guest["name"]))


def describe_guest(item: t.Any, statistics: t.Mapping[str, t.Any], *, addresses: str = "none") -> dict[str, t.Any]:
    """One guest: what runs where it runs, else its definition. `statistics` are libvirt's bulk statistics."""
    with explained("read guest", item.name()):
        xml = item.XMLDesc()
        root, fields, recorded = parse(xml), domain.read_fields(xml), record.read(xml)
        state = states.of(item)
        report = {
            "name": item.name(),
            "uuid": item.UUIDString(),
            "state": state,
            "persistent": bool(item.isPersistent()),
            "autostart": bool(item.isPersistent() and item.autostart()),
        }
    report.update(_hardware(root, fields, _block_sizes(statistics)))
    report.update(
        {
            "addresses": [*recorded.get("addresses", ()), *(_seen(recorded, root) if state == "running" else ())],
            "ssh_host_key": recorded.get("ssh_host_key"),
            "unfinished": bool(recorded.get("making")),
            "moving": recorded.get("moving"),
            "moving_from": recorded.get("moving_from") if recorded.get("moving") else None,
        }
    )
    if addresses != "none" and state == "running":
        macs = {nic.mac for nic in interface.nics(root)}
        sources = ("lease", "arp", "agent") if addresses == "any" else (addresses,)
        known = [found for source in sources for found in query.addresses(item, source, macs)]
        report["addresses"] = list(dict.fromkeys([*t.cast("list[str]", report["addresses"]), *known]))
    return report


def _hardware(
    root: t.Any, fields: t.Mapping[str, t.Any], sizes: t.Mapping[str, t.Mapping[str, t.Any]]
) -> dict[str, t.Any]:
    """What the guest's document says of it; `sizes` are those of its disks, by target."""
    return {
        "title": fields.get("title", ""),
        "description": fields.get("description", ""),
        "tags": list(fields.get("tags", ())),
        "virt_type": root.get("type"),
        "machine": fields.get("machine"),
        "firmware": fields.get("firmware", "bios"),
        "vcpus": {"current": fields.get("vcpus.current"), "maximum": fields.get("vcpus.maximum")},
        "memory": {
            "current_mib": fields.get("memory.current_kib", 0) // 1024,
            "maximum_mib": fields.get("memory.maximum_kib", 0) // 1024,
        },
        "disks": [{**item, **sizes.get(item.get("target", ""), {})} for item in disk.read_all(root)],
        "interfaces": interface.read_all(root),
        "graphics": graphics.read_all(root),
        "console": any(port.get("type") == "pty" for port in (*fields.get("serials", ()), *fields.get("consoles", ()))),
    }


def _seen(recorded: t.Mapping[str, t.Any], root: t.Any) -> list[str]:
    """Where it was seen, with the interfaces that it has now."""
    macs = {nic.mac for nic in interface.nics(root)}
    return [entry.address for entry in map(Sighting.parse, recorded.get("seen", ())) if entry and entry.mac in macs]


def describe_host(connection: t.Any, *, cpus: t.Sequence[str] = ()) -> dict[str, t.Any]:
    """A hypervisor: processors, memory (total, and free after what guests may use), capabilities, pools, guests.

    With `cpus` (the `host_model_xml` of other hosts) also the CPU that all of them can give their guests.
    """
    node = query.node(connection)
    capabilities = host_xml.host(query.capabilities(connection))
    found = describe_guests(connection)
    running = [guest for guest in found if guest["state"] in ("running", "paused")]
    used_mib = sum(guest["memory"]["maximum_mib"] for guest in running)
    bridges, networks = query.links(connection)
    found_networks = figures.networks(connection) if networks else []
    pools = [_without_xml(item, host_xml.pool(item["xml"])) for item in query.pools(connection)]
    kinds = capabilities["virt_types"].get(capabilities["arch"]) or []
    virt_type = "kvm" if "kvm" in kinds else "qemu"
    details = figures.domain_capabilities(connection, virt_type)
    capable = host_xml.domain_capabilities(details) if details else {}
    own = capable.get("host_model_xml")
    common = [*([own] if own else []), *cpus]
    baseline = figures.baseline(connection, virt_type, capabilities["arch"], common) if cpus else None
    return {
        **({"cpu_baseline": host_xml.cpu_model(baseline)} if baseline else {}),
        **node,
        "uuid": capabilities["uuid"],
        "arch": capabilities["arch"],
        "cpu_model": capabilities["cpu_model"],
        "cpu_vendor": capabilities["cpu_vendor"],
        "security_drivers": capabilities["security_drivers"],
        "virt_types": kinds,
        "machines": capabilities["machines"].get(capabilities["arch"]) or [],
        "domain_capabilities": capable,
        "memory_reserved_mib": RESERVED_MIB,
        "memory_used_mib": used_mib,
        "memory_free_mib": max(0, node["memory_mib"] - RESERVED_MIB - used_mib),
        "vcpus_used": sum(guest["vcpus"]["current"] for guest in running),
        "bridges": None if bridges is None else sorted(bridges),
        "networks": [_without_xml(item, host_xml.network(item["xml"])) for item in found_networks],
        "pools": pools,
        "guests": [_brief(guest, pools) for guest in found],
    }


def _without_xml(item: t.Mapping[str, t.Any], more: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {**{key: value for key, value in item.items() if key != "xml"}, **more}


def _brief(guest: t.Mapping[str, t.Any], pools: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, t.Any]:
    """What placement and balance decide by."""
    disks = [item for item in guest["disks"] if item.get("source")]
    directories = {item["source"].rpartition("/")[0] for item in disks}
    volumes = {item["volume"].partition("/")[0] for item in guest["disks"] if item.get("volume")}
    sizes = [
        item.get("allocation_bytes" if item.get("format", "raw") == "raw" else "physical_bytes", 0) for item in disks
    ]
    return {
        "name": guest["name"],
        "uuid": guest["uuid"],
        "state": guest["state"],
        "autostart": guest["autostart"],
        "vcpus": guest["vcpus"]["current"],
        "memory_mib": guest["memory"]["maximum_mib"],
        "disk_mib": sum(sizes) // (1024 * 1024),
        "bridges": sorted({nic["bridge"] for nic in guest["interfaces"] if nic.get("bridge")}),
        "pools": sorted({pool["name"] for pool in pools if pool["path"] in directories} | volumes),
        "tags": guest["tags"],
        "unfinished": guest["unfinished"],
        "moving": guest["moving"],
        "moving_from": guest["moving_from"],
    }


def _block_sizes(figures: t.Mapping[str, t.Any]) -> dict[str, dict[str, int]]:
    """Bytes by target, from libvirt's bulk statistics (block.N.capacity, block.N.physical)."""
    sizes = {}
    for index in range(figures.get("block.count", 0)):
        prefix = f"block.{index}."
        known = {"capacity": "capacity_bytes", "physical": "physical_bytes", "allocation": "allocation_bytes"}
        sizes[figures.get(prefix + "name", "")] = {
            name: figures[prefix + key] for key, name in known.items() if prefix + key in figures
        }
    return sizes
