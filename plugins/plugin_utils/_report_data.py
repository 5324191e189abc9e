# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `query`, `list` and `host_info` tell, as data of a stable shape: the guide of commands says it. Pure.

Fields are added without a word; one that goes, or comes to mean something else, needs another `VERSION`.
"""

from __future__ import annotations

import math
import typing as t

__all__ = ["KINDS", "VERSION", "data", "unreadable"]

VERSION = 1

Told = t.Mapping[str, t.Any]
Guests = t.Collection[str] | None


def data(kind: str, hosts: t.Mapping[str, Told], missing: t.Sequence[str], guests: Guests) -> dict[str, t.Any]:
    """The report over all hosts, those that could not be asked, or whose answer is none, among them.

    Only these `guests`, where given.
    """
    found = {host: _host(kind, result, guests) for host, result in hosts.items()}
    found.update(dict.fromkeys(missing))
    shown = [
        (host, answer) for host, answer in sorted(found.items()) if answer is None or not guests or answer["guests"]
    ]
    return {
        "version": VERSION,
        "kind": kind,
        "hosts": [{"name": host, "reached": answer is not None, **(answer or {})} for host, answer in shown],
    }


def unreadable(kind: str, hosts: t.Mapping[str, Told], guests: Guests) -> list[str]:
    """Hosts whose answer is none."""
    return [host for host, result in hosts.items() if kind in KINDS and _host(kind, result, guests) is None]


def _host(kind: str, result: Told, guests: Guests) -> dict[str, t.Any] | None:
    """What a host answered; None where that is no answer: a host may be anybody's."""
    try:
        return KINDS[kind](result, guests)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _query(result: Told, guests: Guests) -> dict[str, t.Any]:
    host = result.get("host") or {}
    return {
        "cpus": _number(host.get("cpus")),
        "cpu_percent": _number(host.get("cpu_percent")),
        "memory_mib": _number(host.get("memory_mib")),
        "memory_used_mib": _number(host.get("memory_used_mib")),
        "guests": [_guest(item) for item in _chosen(result, guests)],
    }


def _guest(item: Told) -> dict[str, t.Any]:
    return {
        "name": str(item["name"]),
        "uuid": str(item["uuid"]),
        "state": str(item["state"]),
        "vcpus": _number(item["vcpus"]["current"]),
        "cpu_percent": _number(item.get("cpu_percent")),
        "memory_mib": _number(item["memory"]["current_mib"]),
        "memory_maximum_mib": _number(item["memory"].get("maximum_mib")),
        "autostart": bool(item.get("autostart")),
        "disks": [_disk(disk) for disk in item["disks"]],
        "interfaces": [_interface(nic) for nic in item["interfaces"]],
        "graphics": [
            {"type": _text(display.get("type")), "commands": _texts(display.get("connect"))}
            for display in item["graphics"]
        ],
        "console": _text(item.get("console_command")),
        "addresses": _texts(item.get("addresses")),
        "tags": _texts(item.get("tags")),
    }


def _disk(disk: Told) -> dict[str, t.Any]:
    return {
        "target": _text(disk.get("target")),
        "file": _text(disk.get("source") or disk.get("volume")),
        "format": str(disk.get("format") or "raw"),
        "size_bytes": _number(disk.get("capacity_bytes")),
    }


def _interface(nic: Told) -> dict[str, t.Any]:
    return {
        "mac": _text(nic.get("mac")),
        "type": _text(nic.get("type")),
        "source": _text(nic.get("bridge") or nic.get("network")),
    }


def _list(result: Told, guests: Guests) -> dict[str, t.Any]:
    return {"guests": [{"name": str(item["name"]), "state": str(item["state"])} for item in _chosen(result, guests)]}


_FIGURES = (
    "cpus",
    "sockets",
    "cores",
    "threads",
    "cpu_mhz",
    "vcpus_used",
    "memory_mib",
    "memory_used_mib",
    "memory_free_mib",
)


def _host_info(result: Told, _guests: Guests) -> dict[str, t.Any]:
    info = result["host"]
    return {
        **{figure: _number(info[figure]) for figure in _FIGURES},
        "cpu_model": _text(info.get("cpu_model")),
        "virt_types": _texts(info.get("virt_types")),
        "libvirt": _text(info.get("libvirt_version")),
        "hypervisor": _text(info.get("hypervisor_version")),
        "pools": [_pool(pool) for pool in info["pools"]],
        "bridges": _texts(info.get("bridges")),
        "guests": len(info["guests"]),
        "maintenance": _text((info.get("maintenance") or {}).get("reason")),
    }


def _pool(pool: Told) -> dict[str, t.Any]:
    sizes = {size: _number(pool.get(size)) for size in ("capacity_bytes", "available_bytes")}
    return {"name": str(pool["name"]), "path": _text(pool.get("path")), **sizes}


KINDS: dict[str, t.Callable[[Told, Guests], dict[str, t.Any]]] = {
    "query": _query,
    "list": _list,
    "host_info": _host_info,
}


def _chosen(result: Told, guests: Guests) -> list[Told]:
    return sorted(
        (item for item in result["domains"] if not guests or item["name"] in guests), key=lambda item: str(item["name"])
    )


def _number(value: object) -> int | float | None:
    """Raises ValueError for what is none: JSON has no infinity."""
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value)
    ):
        raise ValueError(value)
    return value


def _text(value: object) -> str | None:
    return None if value in (None, "") else str(value)


def _texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, (list, tuple)) else []
