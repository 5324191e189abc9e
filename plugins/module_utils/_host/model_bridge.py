# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's bridge: the requested one, and the host's links and their configuration."""

from __future__ import annotations

import dataclasses
import typing as t

STATE = "/run/corral-bridge"  # of a switch: private to root, and gone after a boot
RESULT = f"{STATE}/result.json"
TRIAL_INTERFACES = f"{STATE}/interfaces"
UNIT = "corral-bridge"
SYSCTL = "/etc/sysctl.d/80-corral-bridge.conf"
UDEV = "/etc/udev/rules.d/80-corral-bridge.rules"

Command = tuple[str, ...]
APART = ("systemd-run", "--quiet", "--scope")  # the command, and a DHCP client that it starts, outlive the service


@dataclasses.dataclass(frozen=True)
class BridgeSpec:
    """The requested bridge. Without a port: the link that leads to this host."""

    name: str
    port: str | None = None
    address: str | None = None  # by which the controller reaches the host
    timeout_s: int = 60
    filter_guests: bool = False
    vlan: int | None = None  # of the port
    vlan_filtering: bool = False
    switch_off_stp: bool = False  # of an existing bridge


@dataclasses.dataclass(frozen=True)
class Vlan:
    """A VLAN of a link, to be made. The addresses of that link stay on their holder: the link or its bridge."""

    name: str
    id: int
    parent: str
    holder: str


def rolled_back(result: t.Mapping[str, t.Any]) -> str:
    """The result of a switch that was rolled back, and what differs on the host."""
    differs = "; ".join(map(str, result.get("differs") or ()))
    if not differs:
        return f"it was rolled back and the host is as before: {result.get('why')}"
    return f"it was rolled back: {result.get('why')}; the host is not as before: {differs}"


@dataclasses.dataclass(frozen=True)
class Trial:
    """The last switch since the boot; its result is None until it ends."""

    bridge: str
    running: bool
    result: t.Mapping[str, t.Any] | None = None


@dataclasses.dataclass(frozen=True)
class BridgeFacts:
    """Links as `ip -d -j link` prints them, by name, and other facts that a bridge depends on."""

    host: str
    links: t.Mapping[str, t.Mapping[str, t.Any]]
    default_routes: tuple[str, ...] = ()  # links, IPv4 first
    addresses: t.Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    wireless: frozenset[str] = frozenset()
    filtering: tuple[str, ...] = ()  # keys of sysctl below net.bridge that are on
    files: t.Mapping[str, str] = dataclasses.field(default_factory=dict)  # SYSCTL and UDEV
    systemd_sysctl: str = ""  # path of that program
    trial: Trial | None = None


@dataclasses.dataclass(frozen=True)
class PortOwner:
    """Programs that may configure a link."""

    networkmanager: bool = False  # made a connection with it
    netplan: bool = False  # wrote the profile of that connection
    network_file: str = ""  # of systemd-networkd, which runs
    ifupdown: bool = False  # has a stanza for it


@dataclasses.dataclass(frozen=True)
class Ifupdown:
    """The interfaces file and all that it sources, in order, by path."""

    files: t.Mapping[str, str]
    disable_ipv6: str = "0"  # of the port
    has_brctl: bool = True
    has_vlan: bool = True  # the package
    addrgenmode: str = "eui64"  # of the port: where its link-local address comes from


@dataclasses.dataclass(frozen=True)
class Networkd:
    """The port's .network file with its drop-ins, and its identity for a DHCP server."""

    path: str
    text: str
    iaid: int | None = None


@dataclasses.dataclass(frozen=True)
class Netplan:
    """netplan's files, parsed."""

    documents: t.Mapping[str, t.Mapping[str, t.Any]]


@dataclasses.dataclass(frozen=True)
class Profile:
    """A profile of NetworkManager, and the text of its keyfile; empty if it is not in one."""

    uuid: str
    device: str  # where it is active
    path: str
    text: str = dataclasses.field(default="", repr=False)  # may hold passwords


@dataclasses.dataclass(frozen=True)
class NmProfiles:
    """All profiles, which of them is active on the port, and the port's identity for a DHCP server."""

    profiles: tuple[Profile, ...]
    active: str  # its UUID
    metric: int | None = None  # of the port's routes
    client_id: str = ""
    duid: str = ""
    iaid: str = ""
    ifenslave: bool = False  # whether that package's hook sees what NetworkManager does


Config = t.Union[Ifupdown, Networkd, Netplan, NmProfiles]


@dataclasses.dataclass(frozen=True)
class Document:
    """A YAML file below a comment line."""

    head: str
    content: t.Mapping[str, object] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class NetworkChange:
    """How a host's network switches to a bridge, how that is made permanent, and how it is rolled back.

    `trial` are files that a reboot forgets, `lasting` those that replace them.
    """

    bridge: str
    port: str
    manager: str
    trial: t.Mapping[str, str | Document] = dataclasses.field(repr=False)
    lasting: t.Mapping[str, str | Document] = dataclasses.field(repr=False)
    up: tuple[Command, ...]
    undo: tuple[Command, ...]
    down: tuple[Command, ...] = ()
    up_again: tuple[Command, ...] = ()  # after `undo`; each may wait for a DHCP server
    undo_in_trial: tuple[Command, ...] = ()  # while the trial's files are still there
    reload: tuple[Command, ...] = ()  # after they were replaced
    patience: tuple[Command, ...] = ()  # so that who asks for a lease goes on, and leaves the link what it has
    holder: str = ""  # of the addresses, if they stay where they are; else they move from the port to the bridge
    packages: tuple[str, ...] = ()  # that it needs and the host lacks
