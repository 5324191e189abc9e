# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describe a hypervisor as data, for reports and placement."""

from __future__ import annotations

import re
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import defaults
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query, xml_host, xml_host_devices
from ansible_collections.corral.virt.plugins.module_utils._guest import run_summary
from ansible_collections.corral.virt.plugins.module_utils._libvirt import statistics
from ansible_collections.corral.virt.plugins.module_utils._storage import run_removed_disks, run_thin_pools
from ansible_collections.corral.virt.plugins.module_utils._system import command

_VALIDATED = re.compile(r" *(\w+): (.*\S) *: (PASS|WARN|FAIL|NOTE)(?: \((.*)\))?")


def validation() -> list[dict[str, str | None]] | None:
    """The checks of virt-host-validate on this host; None if the program is missing."""
    found = [_VALIDATED.fullmatch(line) for line in command.answer("virt-host-validate", "qemu").splitlines()]
    checks = [
        {"driver": match[1].lower(), "check": match[2], "result": match[3].lower(), "hint": match[4]}
        for match in found
        if match
    ]
    return checks or None


def with_cpu_use(connection: t.Any, host: t.Mapping[str, t.Any], seconds: float) -> dict[str, t.Any]:
    """The host with the number of processors that each guest keeps busy (`cpu_use`), measured for these seconds."""
    before, began = statistics.cpu_seconds(connection), time.monotonic()
    time.sleep(seconds)
    after, took = statistics.cpu_seconds(connection), time.monotonic() - began
    uses = {uuid: max(0.0, after[uuid] - before[uuid]) / took for uuid in before.keys() & after.keys()}
    guests = [
        {**guest, "cpu_use": uses.get(guest["uuid"], None if guest["state"] == "running" else 0.0)}
        for guest in host["guests"]
    ]
    return {**host, "guests": guests}


def describe_host(connection: t.Any, *, cpus: t.Sequence[str] = ()) -> dict[str, t.Any]:
    """A hypervisor: processors, memory (total, and free after what guests may use), capabilities, pools, guests.

    With `cpus` (`host_model_xml` of other hosts) also the CPU model that all of them support.
    """
    node = libvirt_query.node(connection)
    capabilities = xml_host.host(libvirt_query.capabilities(connection))
    found = run_summary.guests(connection, _more)
    used_mib = run_summary.memory_used_mib(found)
    bridges, networks = libvirt_query.links(connection)
    pools = _pools(connection, node["uri"])
    answering = run_removed_disks.directories(pool for pool in pools if pool["filesystem"])
    kinds = capabilities["virt_types"].get(capabilities["arch"]) or []
    virt_type = defaults.virt_type(kinds)
    machines = capabilities["machines"].get(capabilities["arch"]) or []
    capable = _capable(connection, virt_type, machines)
    own = [capable["host_model_xml"]] if capable.get("host_model_xml") else []
    baseline = statistics.baseline(connection, virt_type, capabilities["arch"], [*own, *cpus]) if cpus else None
    return {
        **({"cpu_baseline": xml_host.cpu_model(baseline)} if baseline else {}),
        **node,
        "uuid": capabilities["uuid"],
        "arch": capabilities["arch"],
        "cpu_model": capabilities["cpu_model"],
        "cpu_vendor": capabilities["cpu_vendor"],
        "security_drivers": capabilities["security_drivers"],
        "virt_types": kinds,
        "machines": machines,
        "domain_capabilities": capable,
        "memory_reserved_mib": defaults.RESERVED_MIB,
        "memory_used_mib": used_mib,
        "memory_free_mib": max(0, node["memory_mib"] - defaults.RESERVED_MIB - used_mib),
        "vcpus_used": sum(guest["vcpus"]["current"] for guest in run_summary.active(found)),
        "bridges": None if bridges is None else sorted(bridges),
        "devices": xml_host_devices.offered(statistics.devices(connection)),
        "networks": _networks(connection) if networks else [],
        "pools": pools,
        "removed_disks": run_removed_disks.describe(node["uri"], answering, capabilities["uuid"]),
        "guests": [_brief(guest, pools, capabilities["arch"]) for guest in found],
    }


def _more(root: t.Any) -> dict[str, t.Any]:
    return {**xml_host_devices.bound(root), "apart": run_summary.apart(root)}


def _capable(connection: t.Any, virt_type: str, machines: t.Sequence[str]) -> dict[str, t.Any]:
    """What new guests may have, from the domain capabilities; empty if libvirt cannot tell."""
    details = statistics.domain_capabilities(connection, virt_type, defaults.machine(machines) or None)
    return xml_host.domain_capabilities(details) if details else {}


def _networks(connection: t.Any) -> list[dict[str, t.Any]]:
    return [_without_xml(item, xml_host.network(item["xml"])) for item in statistics.networks(connection)]


def _pools(connection: t.Any, uri: str) -> list[dict[str, t.Any]]:
    """The storage pools, with the filesystem that a directory is on, if it answers, and thin pools of volume groups."""
    pools = [_pool(uri, item) for item in libvirt_query.pools(connection)]
    filesystems = run_removed_disks.filesystems(uri, run_removed_disks.directories(pools))
    return [{**pool, "filesystem": filesystems.get(pool["name"])} for pool in pools]


def _pool(uri: str, item: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    pool = _without_xml(item, xml_host.pool(item["xml"]))
    return {**pool, **run_thin_pools.told(uri, pool, xml_host.volume_group(item["xml"]) or pool["name"])}


def _without_xml(item: t.Mapping[str, t.Any], more: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {**{key: value for key, value in item.items() if key != "xml"}, **more}


def _brief(guest: t.Mapping[str, t.Any], pools: t.Sequence[t.Mapping[str, t.Any]], arch: str) -> dict[str, t.Any]:
    """The facts about a guest that placement and balancing use."""
    disks = [item for item in guest["disks"] if item.get("pool") or item.get("source", "").startswith("/")]
    directories = {item["source"].rpartition("/")[0] for item in disks if item.get("source")}
    paths = [pool["path"] for pool in pools]
    # Pools of devices share directories, such as /dev/disk/by-path: which of them has a disk is not known by its path.
    holding = {pool["name"] for pool in pools if pool["path"] in directories and paths.count(pool["path"]) == 1}
    named = {item["pool"] for item in disks if item.get("pool")}
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
        "networks": sorted({nic["network"] for nic in guest["interfaces"] if nic.get("network")}),
        "machine": guest["machine"] if guest["arch"] == arch else None,  # hosts tell those of their own architecture
        "devices": guest["devices"],
        "platform": guest["platform"] if guest["arch"] == arch else [],
        "pools": sorted(holding | named),
        "tags": guest["tags"],
        "apart": guest["apart"],
        "unfinished": guest["unfinished"],
        "seeded": guest["ssh_host_key"] is not None,
        "moving": guest["moving"],
        "moving_from": guest["moving_from"],
    }
