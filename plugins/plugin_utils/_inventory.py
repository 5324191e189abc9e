# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests as hosts of an inventory: which of two, their groups, variables and ways in. Pure."""

from __future__ import annotations

import ipaddress
import shlex
import typing as t
import urllib.parse

__all__ = ["GROUP", "STATE_GROUPS", "address", "chosen", "endpoint", "groups", "in_uri", "ssh_args", "unattended", "variables"]

GROUP = "guests"
STATE_GROUPS = ("guests_running", "guests_paused", "guests_shutdown")  # always there: plays name them

Facts = dict[str, t.Any]

_FIRST = ("running", "paused")
_PORTS = {"tls": 16514, "tcp": 16509, "": 16514}  # libvirt takes tls where a URI with a host names no transport


def chosen(answers: t.Mapping[str, t.Sequence[Facts]]) -> tuple[dict[str, tuple[str, Facts]], list[str]]:
    """Hypervisor and facts of every guest by name, and what is to be said about names that are there twice."""
    holders: dict[str, list[tuple[str, Facts]]] = {}
    for hypervisor in sorted(answers):
        for facts in answers[hypervisor]:
            holders.setdefault(facts["name"], []).append((hypervisor, facts))
    for found in holders.values():
        found.sort(key=lambda item: _FIRST.index(item[1]["state"]) if item[1]["state"] in _FIRST else len(_FIRST))
    names = sorted(holders)
    return {name: holders[name][0] for name in names}, [_twice(name, holders[name]) for name in names if holders[name][1:]]


def _twice(name: str, found: t.Sequence[tuple[str, Facts]]) -> str:
    running = [(hypervisor, facts) for hypervisor, facts in found if facts["state"] == "running"]
    shown = f"shown is the one on {found[0][0]}"
    if not running[1:]:
        where = " and ".join(f"{hypervisor} ({facts['state']})" for hypervisor, facts in found)
        return f"guest {name} is on {where}; {shown}"
    where = " and ".join(hypervisor for hypervisor, _facts in running)
    if len({facts["uuid"] for _hypervisor, facts in running}) == 1:
        return f"GUEST {name} RUNS TWICE, on {where}: two copies of one guest damage its disks; destroy the wrong one now ({shown})"
    return f"TWO GUESTS NAMED {name} RUN, on {where}: only one can be shown; rename the other ({shown})"


def variables(hypervisor: str, facts: Facts, prefer: t.Sequence[str]) -> dict[str, t.Any]:
    """Host variables of a guest. Without a known address `ansible_host` is absent: its name may resolve."""
    known = {f"virt_{key}": facts[key] for key in ("state", "uuid", "vcpus", "memory_mib", "tags", "macs", "addresses", "title")}
    best = address(facts["addresses"], prefer)
    return {"virt_hypervisor": hypervisor, **known, **({"ansible_host": best} if best else {})}


def groups(hypervisor: str, facts: Facts) -> list[str]:
    """Groups below `guests`, not yet in the letters Ansible allows."""
    return [f"on_{hypervisor}", f"guests_{facts['state']}", *(f"tag_{tag}" for tag in facts["tags"])]


def address(known: t.Iterable[str], prefer: t.Sequence[str]) -> str | None:
    """The first address of the first kind there is (`ipv4`, `ipv6` or a network), else any."""
    valid = [item for item in map(_ip, known) if item]
    for kind in prefer:
        for item in valid:
            if kind == f"ipv{item.version}" or ("/" in kind and item in ipaddress.ip_network(kind, strict=False)):
                return str(item)
    return str(valid[0]) if valid else None


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_interface(text).ip
    except ValueError:
        return None


def ssh_args(known_hosts: str, name: str) -> str:
    """Look for the guest's own name in that file, wherever it may have its address today; ask nobody."""
    literal = known_hosts.replace("%", "%%")  # ssh's own placeholders
    options = (f'UserKnownHostsFile="{literal}"', f'HostKeyAlias="{name}"', "StrictHostKeyChecking=yes")
    return " ".join(f"-o {shlex.quote(option)}" for option in options)


def in_uri(host: str) -> str:
    """A host name or address as a URI wants it."""
    return f"[{host}]" if ":" in host else host


def unattended(uri: str) -> str:
    """The URI with an ssh that asks for nothing: many of them share one terminal."""
    parts = urllib.parse.urlsplit(uri)
    if not parts.scheme.endswith("+ssh") or "no_tty=" in parts.query:
        return uri
    return parts._replace(query="&".join(filter(None, [parts.query, "no_tty=1"]))).geturl()


def endpoint(uri: str) -> tuple[str, int] | None:
    """Where that URI connects to by TCP; None for sockets of this machine, and for ssh, which may know a way of its own."""
    parts = urllib.parse.urlsplit(uri)
    transport = parts.scheme.partition("+")[2]
    if not parts.hostname or transport not in _PORTS:
        return None
    return parts.hostname, parts.port or _PORTS[transport]
