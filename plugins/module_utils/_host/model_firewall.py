# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports that a host's firewall admits: the requested ones, and the state of each kind of firewall."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shlex
import typing as t

MARK = "corral.virt"  # begins the comment of each rule of ours
DROP_IN = "/etc/corral-virt/firewall.nft"
EVERYBODY = "any"
GUEST_PORTS = {"tcp": ("53",), "udp": ("53", "67", "547")}  # DNS, DHCP and DHCPv6 of libvirt's networks
GUEST_ZONE = "libvirt"  # of firewalld: it admits them, and libvirt puts its bridges there
IPTABLES = {4: "iptables", 6: "ip6tables"}  # by IP version
_OURS = re.compile(rf"{re.escape(MARK)}(?: nobody| [0-9a-f]{{8}})?")


@dataclasses.dataclass(frozen=True)
class FirewallSpec:
    """Ports by protocol, and admitted sources by IP version, both as firewalls print them."""

    ports: t.Mapping[str, tuple[str, ...]]
    sources: t.Mapping[int, tuple[str, ...]]
    everybody: bool = False
    bridges: tuple[str, ...] = ()  # of libvirt's networks, whose guests use DHCP and DNS here; `virbr*` is all of these
    purge: bool = True  # whether rules of ours that are no longer wanted are removed

    @property
    def comment(self) -> str:
        """The comment of our rules, by which they are found again; it changes with what they admit."""
        if not (self.admits(4) or self.admits(6) or self.bridges):
            return f"{MARK} nobody"  # else it would be that of everybody
        words = json.dumps([self.ports, self.sources, *([self.bridges] if self.bridges else [])], sort_keys=True)
        return f"{MARK} {hashlib.sha256(words.encode()).hexdigest()[:8]}"

    @property
    def text(self) -> str:
        """The ports as text."""
        words = [f"{port}/{name}" for name in sorted(self.ports) for port in self.ports[name]]
        guests = [f"DHCP and DNS for {', '.join(self.bridges)}"] if self.bridges else []
        return ", ".join([*([" ".join(words)] if words else []), *guests]) or "no port"

    def admits(self, version: int) -> bool:
        """True if any source of that IP version may reach the ports."""
        return self.everybody or bool(self.sources[version])


@dataclasses.dataclass(frozen=True)
class Services:
    """Which firewalls the host starts."""

    firewalld: bool = False
    ufw: bool = False
    nftables: bool = False
    iptables: bool = False


@dataclasses.dataclass(frozen=True)
class Nftables:
    """The ruleset as `nft -j list ruleset` prints it, and the files that are loaded at boot."""

    ruleset: t.Sequence[t.Mapping[str, t.Any]]
    config: str  # path
    config_text: str = ""
    all_text: str = ""  # of the configuration and all that it includes
    drop_in: str = ""  # content of DROP_IN


@dataclasses.dataclass(frozen=True)
class Firewalld:
    """The zone of new connections, and its ports and rich rules."""

    zone: str
    running: frozenset[str] = frozenset()
    permanent: frozenset[str] = frozenset()
    zones: t.Mapping[str, str] = dataclasses.field(default_factory=dict)  # of bridges; empty in none
    has_guest_zone: bool = True  # whether the running firewalld knows it, and not only its files
    unsaved: frozenset[str] = frozenset()  # settings that only the running firewalld has; read if it lacks that zone


@dataclasses.dataclass(frozen=True)
class Ufw:
    """Rules as lines of `ufw show added`."""

    added: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class IptablesFamily:
    """iptables or ip6tables: lines of `-S INPUT` and `-S FORWARD`, and the file, if any, that is loaded at boot."""

    version: int
    running: tuple[str, ...] = ()
    path: str | None = None
    text: str = ""
    forward: tuple[str, ...] = ()

    @property
    def tool(self) -> str:
        """The name of the program."""
        return IPTABLES[self.version]


@dataclasses.dataclass(frozen=True)
class Iptables:
    """The state of both IP versions."""

    families: tuple[IptablesFamily, ...]


Facts = t.Union[Nftables, Firewalld, Ufw, Iptables]


def is_ours(comment: str) -> bool:
    """True if a comment is exactly one of ours."""
    return _OURS.fullmatch(comment) is not None


def comment_in(rule: str, option: str) -> str:
    """The value of an option such as `--comment` in a printed rule; empty if there is none."""
    try:
        words = shlex.split(rule)
    except ValueError:  # no firewall prints it
        return ""
    return words[words.index(option) + 1] if option in words[:-1] else ""
