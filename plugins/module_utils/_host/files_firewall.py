# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The active firewall of this host: reads its rules, and has one function for each change."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import glob
import os
import re
import socket
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._host.model_firewall import (
    DROP_IN,
    GUEST_ZONE,
    IPTABLES,
    Facts,
    Firewalld,
    Iptables,
    IptablesFamily,
    Nftables,
    Services,
    Ufw,
)
from ansible_collections.corral.virt.plugins.module_utils._system import configuration
from ansible_collections.corral.virt.plugins.module_utils._system.command import (
    active,
    answer,
    enabled,
    run,
)
from ansible_collections.corral.virt.plugins.module_utils._system.ruleset import ruleset

_INCLUDE = re.compile(r"""^[^#\n]*?\binclude\s+["']([^"'\n]+)["']""", re.MULTILINE)
_RULE_FILES = {
    4: ("/etc/iptables/rules.v4", "/etc/sysconfig/iptables"),
    6: ("/etc/iptables/rules.v6", "/etc/sysconfig/ip6tables"),
}


def addresses(name: str) -> tuple[str, ...]:
    """Addresses of a name from this host's resolver; empty if unknown."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(str(row[4][0]) for row in found)


def services() -> Services:
    """Which firewalls are active on this host, or start at boot."""
    return Services(
        firewalld=active("firewalld"),
        ufw="Status: active" in answer("ufw", "status"),
        nftables=active("nftables") or enabled("nftables"),
        iptables=enabled("netfilter-persistent") or enabled("iptables"),
    )


def read(manager: str, bridges: t.Sequence[str] = ()) -> Facts:
    """Facts of a firewall, with zones of the named bridges; raises Failed if it does not answer."""
    facts = _READERS[manager]()
    return _with_zones(facts, bridges) if isinstance(facts, Firewalld) and bridges else facts


def nftables(commands: t.Sequence[str]) -> None:
    """Change the running rules, all of them or none."""
    run("nft", "-f", "-", stdin="\n".join(commands))


def firewalld(zone: str, kind: str, rule: str, *, permanent: bool) -> None:
    """Add a port or a rich rule."""
    lasting = ("--permanent",) if permanent else ()
    run("firewall-cmd", *lasting, f"--zone={zone}", f"--add-{kind}={rule}")


def reload_firewalld() -> None:
    """Reload firewalld's configuration."""
    run("firewall-cmd", "--reload")


def move_to_zone(zone: str, device: str) -> None:
    """Put a network device into a zone, as libvirt does with a new bridge."""
    run("firewall-cmd", f"--zone={zone}", f"--change-interface={device}")


def ufw(rule: str) -> None:
    """Add a ufw rule."""
    run("ufw", *rule.split(" "))


def delete_ufw(rule: str) -> None:
    """Delete a ufw rule."""
    words = rule.split(" ")
    run("ufw", *(("route", "delete", *words[1:]) if words[0] == "route" else ("delete", *words)))


def iptables(
    tool: str,
    chain: str = "INPUT",
    at: int = 1,
    *,
    delete: t.Sequence[t.Sequence[str]],
    insert: t.Sequence[t.Sequence[str]],
) -> None:
    """Insert rules at a position of a chain, then delete others, so that access is never interrupted."""
    for rule in insert:
        run(tool, "-w", "-I", chain, *([str(at)] if at > 1 else []), *rule)
    for rule in delete:
        run(tool, "-w", "-D", chain, *rule)


def write(path: str, text: str, checked_by: str | None, within: tuple[str, str] | None = None) -> None:
    """Replace a file that a firewall loads at boot, once the program `checked_by` accepts it.

    `within`: the path of the nftables file that includes it, and its text with the new one in place.
    """
    check = functools.partial(_CHECKS[checked_by], text) if checked_by else None
    check = functools.partial(_check_included, *within) if within else check
    configuration.write(path, text, check=check)


def with_includes(path: str, folders: t.Sequence[str], seen: t.Sequence[str] = ()) -> str:
    """The text of an nftables file and of all files that it includes."""
    text = configuration.read(path)
    texts, seen = [text], (*seen, path)
    for name in _INCLUDE.findall(text):
        for one in _included(name, os.path.dirname(path), folders):
            if one not in seen:
                texts.append(with_includes(one, folders, seen))
    return "\n".join(texts)


def _included(name: str, here: str, folders: t.Sequence[str]) -> list[str]:
    """Files that an include statement names, with wildcards and folders as nft resolves them."""
    for folder in (here, *folders):
        found = sorted(filter(os.path.isfile, glob.glob(os.path.join(folder, name))))
        if found:
            return found
    return []


def _read_nftables() -> Nftables:
    unit = answer("systemctl", "show", "-p", "ExecStart", "nftables.service")
    match = re.search(r"-f (\S+)", unit)
    config = match.group(1) if match else "/etc/nftables.conf"
    folders = (*re.findall(r" -I (\S+)", unit), "/etc")
    return Nftables(
        ruleset=ruleset(),
        config=config,
        config_text=configuration.read(config),
        all_text=with_includes(config, folders, seen=(DROP_IN,)),  # which follows the others
        drop_in=configuration.read(DROP_IN),
    )


def _read_firewalld() -> Firewalld:
    route = re.search(r"\bdev (\S+)", answer("ip", "route", "show", "default"))
    query = f"--get-zone-of-interface={route.group(1)}" if route else ""
    zone = answer("firewall-cmd", query).strip() if query else ""
    zone = zone or run("firewall-cmd", "--get-default-zone").strip()
    return Firewalld(zone, _zone_rules(zone), _zone_rules(zone, "--permanent"))


def _with_zones(facts: Firewalld, patterns: t.Sequence[str]) -> Firewalld:
    bridges = [path.split("/")[4] for path in glob.glob("/sys/class/net/*/bridge")]
    named = [bridge for bridge in bridges if any(fnmatch.fnmatchcase(bridge, one) for one in patterns)]
    zones = {bridge: answer("firewall-cmd", f"--get-zone-of-interface={bridge}").strip() for bridge in named}
    known, stored = (
        GUEST_ZONE in run("firewall-cmd", *lasting, "--get-zones").split() for lasting in ((), ("--permanent",))
    )
    unsaved = _settings() - _settings("--permanent") if stored and not known else frozenset()
    return dataclasses.replace(
        facts, zones=zones if known or stored else {}, has_guest_zone=known or not stored, unsaved=unsaved
    )


def _settings(*lasting: str) -> frozenset[str]:
    """The settings of all zones and policies of firewalld, and its direct rules. It keeps interfaces itself."""
    shown = run("firewall-cmd", *lasting, "--list-all-zones")
    shown += "\n" + answer("firewall-cmd", *lasting, "--list-all-policies")  # not before firewalld 0.9
    name = key = ""
    found: set[str] = set()
    for line in shown.splitlines():
        if line.startswith("\t"):  # a rule, or a port that is forwarded
            found.add(f"{name}: {key} {line.strip()}")
        elif line.startswith(" "):
            key, _colon, values = line.strip().partition(":")
            found.update(f"{name}: {key} {value}" for value in values.split())
        else:
            name = line.partition(" ")[0] or name
    direct = answer("firewall-cmd", *lasting, "--direct", "--get-all-rules").splitlines()
    return frozenset((*(one for one in found if ": interfaces " not in one), *(f"direct: {one}" for one in direct)))


def _zone_rules(zone: str, *lasting: str) -> frozenset[str]:
    command = ("firewall-cmd", *lasting, f"--zone={zone}")
    rich, ports = run(*command, "--list-rich-rules"), run(*command, "--list-ports")
    return frozenset((*rich.splitlines(), *ports.split()))


def _read_ufw() -> Ufw:
    return Ufw(tuple(run("ufw", "show", "added").splitlines()))


def _read_iptables() -> Iptables:
    families = []
    for version, tool in IPTABLES.items():
        path = next(filter(os.path.exists, _RULE_FILES[version]), None)
        text = configuration.read(path) if path else ""
        running, forward = (tuple(run(tool, "-S", chain).splitlines()) for chain in ("INPUT", "FORWARD"))
        families.append(IptablesFamily(version, running, path, text, forward))
    return Iptables(tuple(families))


def _check_nftables(_text: str, path: str) -> None:
    run("nft", "-c", "-f", path)


def _check_included(config: str, text: str, _path: str) -> None:
    run("nft", "-I", os.path.dirname(config), "-c", "-f", "-", stdin=text)


def _check_iptables(text: str, _path: str) -> None:
    run("iptables-restore", "--test", stdin=text)


def _check_ip6tables(text: str, _path: str) -> None:
    run("ip6tables-restore", "--test", stdin=text)


_READERS: dict[str, t.Callable[[], Facts]] = {
    "nftables": _read_nftables,
    "firewalld": _read_firewalld,
    "ufw": _read_ufw,
    "iptables": _read_iptables,
}
_CHECKS: dict[str, t.Callable[[str, str], None]] = {
    "nft": _check_nftables,
    "iptables": _check_iptables,
    "ip6tables": _check_ip6tables,
}
