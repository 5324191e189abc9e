# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports as text: what `query`, `list` and `host_info` print. Pure."""

from __future__ import annotations

import typing as t

import yaml

from ansible_collections.corral.virt.plugins.plugin_utils._plain import printable

__all__ = ["KINDS", "text"]

Guests = t.Sequence[t.Mapping[str, t.Any]]


def text(kind: str, hosts: t.Mapping[str, t.Mapping[str, t.Any]], missing: t.Sequence[str], guest: str | None) -> str:
    """The report over all hosts, those that could not be asked among them."""
    blocks = {host: KINDS[kind](host, result, guest) for host, result in hosts.items()}
    blocks.update({host: ["(not reached: its guests are not shown)"] for host in missing})
    lines = []
    for host in sorted(blocks):
        if blocks[host] or not guest:
            lines += [host, *(f"  {printable(line)}" for line in blocks[host])]
    return "\n".join(lines)


def _query(host: str, result: t.Mapping[str, t.Any], guest: str | None) -> list[str]:
    """The text that Salt Virt's users know."""
    lines = []
    for item in _chosen(result["domains"], guest):
        lines += [
            item["name"],
            f"  CPU: {item['vcpus']['current']}",
            f"  Memory: {item['memory']['current_mib'] * 1024}",
            f"  State: {item['state']}",
            *(f"  Graphics: {display['type']} - {host}:{display.get('port', -1)}" for display in item["graphics"]),
        ]
        for disk in item["disks"]:
            lines += [
                f"  Disk - {disk['target']}:",
                f"    Size: {_size(disk.get('capacity_bytes'))}",
                f"    File: {disk.get('source') or disk.get('volume') or '-'}",
                f"    File Format: {disk.get('format', 'raw')}",
            ]
        for nic in item["interfaces"]:
            lines += [
                f"  Nic - {nic['mac']}:",
                f"    Source: {nic.get('bridge') or nic.get('network') or '-'}",
                f"    Type: {nic['type']}",
            ]
    return lines


def _list(_host: str, result: t.Mapping[str, t.Any], guest: str | None) -> list[str]:
    """Names by state."""
    states: dict[str, list[str]] = {}
    for item in _chosen(result["domains"], guest):
        states.setdefault(item["state"], []).append(item["name"])
    return [line for state in sorted(states) for line in (state, *(f"  {name}" for name in sorted(states[state])))]


def _host_info(_host: str, result: t.Mapping[str, t.Any], _guest: str | None) -> list[str]:
    """The figures of a hypervisor, as YAML."""
    info = result["host"]
    shown = {
        "cpus": f"{info['cpus']} ({info['vcpus_used']} vcpus in use)",
        "cpu_model": info["cpu_model"],
        "memory_mib": f"{info['memory_mib']} ({info['memory_free_mib']} free)",
        "virt_types": ", ".join(info["virt_types"]),
        "libvirt": info["libvirt_version"],
        "hypervisor": info["hypervisor_version"],
        "pools": {pool["name"]: f"{pool['path']} ({_size(pool['available_bytes'])} free)" for pool in info["pools"]},
        "bridges": ", ".join(info["bridges"] or []),
        "guests": len(info["guests"]),
        **({"maintenance": info["maintenance"]["reason"]} if info.get("maintenance") else {}),
    }
    return yaml.safe_dump(shown, sort_keys=False, default_flow_style=False).splitlines()


KINDS: dict[str, t.Callable[[str, t.Mapping[str, t.Any], str | None], list[str]]] = {
    "query": _query,
    "list": _list,
    "host_info": _host_info,
}


def _chosen(items: Guests, guest: str | None) -> Guests:
    return [item for item in items if guest in (None, "", item["name"])]


def _size(size_bytes: int | None) -> str:
    """`2.0G`, as qemu-img's users know it."""
    if size_bytes is None:
        return "unknown"
    size = float(size_bytes)
    for unit in "BKMGT":
        if size < 1024 or unit == "T":
            return f"{size:.1f}{unit}"
        size /= 1024
    return ""
