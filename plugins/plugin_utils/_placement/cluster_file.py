# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster from a text: JSON of the playbook query, or the same by hand, as hosts for placement. Pure."""

from __future__ import annotations

import json
import typing as t

import yaml

from ansible_collections.corral.virt.plugins.module_utils._core.defaults import RESERVED_MIB
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import ACTIVE
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STATES = ("running", "paused", "shutdown", "crashed", "unknown")


def parsed(text: str, what: str) -> list[t.Mapping[str, t.Any]]:
    """The hosts of the text that were reached; raises BadInput with every problem."""
    try:
        found = json.loads(text) if text.lstrip().startswith("{") else yaml.load(text, _LOADER)  # noqa: S506 (a safe one)
    except (ValueError, yaml.YAMLError) as error:
        raise BadInput(f"{what}: is neither JSON nor YAML: {printable(str(error))}") from error
    hosts = found.get("hosts") if isinstance(found, dict) else None
    if not isinstance(hosts, list) or not hosts:
        raise BadInput(
            f"{what}: has no list hosts; write it with: ansible-playbook corral.virt.query -e format=json -e out={what}"
        )
    reached = [host for host in hosts if not isinstance(host, dict) or host.get("reached", True)]
    problems = [problem for index, host in enumerate(reached) for problem in _problems(host, f"{what}: hosts[{index}]")]
    names = [host["name"] for host in reached if isinstance(host, dict) and "name" in host]
    problems += [f"{what}: host {name} is given twice" for name in sorted({n for n in names if names.count(n) > 1})]
    if problems:
        raise BadInput(problems)
    return reached


def _problems(host: t.Any, where: str) -> t.Iterator[str]:
    if not isinstance(host, dict):
        yield f"{where} is not a dictionary"
        return
    yield from _wrong(host, {"name": str, "cpus": int, "memory_mib": int}, where)
    guests = host.get("guests", [])
    if not isinstance(guests, list):
        yield f"{where}.guests is not a list"
        return
    for index, guest in enumerate(guests):
        its = f"{where}.guests[{index}]"
        if not isinstance(guest, dict):
            yield f"{its} is not a dictionary"
            continue
        yield from _wrong(guest, {"name": str, "vcpus": int, "memory_mib": int}, its)
        if guest.get("state", "running") not in _STATES:
            yield f"{its}.state is {printable(str(guest['state']))}; it must be one of {', '.join(_STATES)}"


def _wrong(item: t.Mapping[str, t.Any], kinds: t.Mapping[str, type], where: str) -> t.Iterator[str]:
    for key, kind in kinds.items():
        value = item.get(key)
        if not isinstance(value, kind) or isinstance(value, bool) or value in ("", 0):
            yield f"{where}.{key} must be {'a text' if kind is str else 'a number above zero'}"


def infos(hosts: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, dict[str, t.Any]]:
    """The text's hosts as virt_host_info would report them, by host; missing values count as unknown."""
    return {host["name"]: _info(host) for host in hosts}


def _info(host: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    guests = [_guest(guest) for guest in host.get("guests", [])]
    active = [guest for guest in guests if guest["state"] in ACTIVE]
    reason = host.get("maintenance")
    return {
        "cpus": host["cpus"],
        "memory_mib": host["memory_mib"],
        "memory_reserved_mib": host.get("memory_reserved_mib", RESERVED_MIB),
        "memory_used_mib": sum(guest["memory_mib"] for guest in active),
        "vcpus_used": sum(guest["vcpus"] for guest in active),
        "bridges": host.get("bridges"),
        "domain_capabilities": {"platform": _texts(host["platform"])} if host.get("platform") is not None else {},
        "networks": None,
        "pools": None,
        "guests": guests,
        "maintenance": {"reason": str(reason)} if reason else None,
    }


def _guest(guest: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    nics = guest.get("interfaces") or []
    return {
        "name": guest["name"],
        "uuid": str(guest.get("uuid") or guest["name"]),
        "state": guest.get("state", "running"),
        "autostart": bool(guest.get("autostart")),
        "vcpus": guest["vcpus"],
        "memory_mib": guest.get("memory_maximum_mib") or guest["memory_mib"],
        "tags": _texts(guest.get("tags")),
        "bridges": [nic["source"] for nic in nics if nic.get("type") == "bridge" and nic.get("source")],
        "pools": [],
        "platform": _texts(guest.get("platform")),
    }


def _texts(given: t.Any) -> list[str]:
    return [str(one) for one in given or ()]


def groups(hosts: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, list[str]]:
    """The hosts of each group in the text."""
    found: dict[str, list[str]] = {}
    for host in hosts:
        for group in host.get("groups") or []:
            found.setdefault(str(group), []).append(host["name"])
    return found
