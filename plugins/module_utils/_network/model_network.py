# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host around a virtual network."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain.model_address import HostSubnet
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import ObjectKind

NETWORK_KIND = ObjectKind("network", persistence=True, activity=True, autostart=True)
OWN = ("nat", "route", "open", "isolated")  # libvirt makes the bridge
DIRECT = ("bridge", "private", "vepa", "passthrough")  # guests are on devices of the host


@dataclasses.dataclass(frozen=True)
class RawNetworkHost:
    """The raw facts of the host; guests are read only on demand, as most runs do not need them."""

    bridges: frozenset[str] | None  # None: cannot be known from here
    networks: tuple[tuple[str, bool, str], ...]  # others: name, whether it runs, document
    guests: t.Callable[[], t.Sequence[tuple[str, bool, tuple[str, ...]]]]  # name, whether it runs, documents
    version: int  # of libvirt, as libvirt counts
    ports: t.Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)  # by bridge, as far as is known
    subnets: t.Callable[[], t.Sequence[HostSubnet]] = tuple  # none where they cannot be known from here
    ruleset: t.Callable[[], t.Sequence[t.Mapping[str, t.Any]]] = tuple  # of nftables, likewise


@dataclasses.dataclass(frozen=True)
class Neighbour:
    """Another network of the host."""

    name: str
    active: bool
    bridge: str | None
    subnets: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class User:
    """A guest with an interface on the network."""

    name: str
    running: bool


@dataclasses.dataclass(frozen=True)
class NetworkHost:
    """The facts that the rules of networks use."""

    bridges: frozenset[str] | None = None
    neighbours: tuple[Neighbour, ...] = ()
    users: t.Callable[[], t.Sequence[User]] = tuple
    version: int = 0
    strangers: t.Callable[[], t.Mapping[str, tuple[str, ...]]] = dict  # ports of no guest, by bridge
    subnets: t.Callable[[], t.Sequence[HostSubnet]] = tuple
    ruleset: t.Callable[[], t.Sequence[t.Mapping[str, t.Any]]] = tuple
