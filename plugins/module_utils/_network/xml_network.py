# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The XML of a virtual network, and facts of its host from XML."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._network.fields_network import NETWORK, mode_of
from ansible_collections.corral.virt.plugins.module_utils._network.model_network import (
    OWN,
    Neighbour,
    NetworkHost,
    RawNetworkHost,
    User,
)
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Found, Spec
from ansible_collections.corral.virt.plugins.module_utils._xml import row
from ansible_collections.corral.virt.plugins.module_utils._xml.interface_rows import normalise_vlan
from ansible_collections.corral.virt.plugins.module_utils._xml.overlay import Shape
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, make, parse, text

_SEVERAL = {
    "address", "forwarder", "host", "hostname", "interface", "ip",
    "portgroup", "range", "route", "srv", "tag", "txt",
}  # fmt: skip
SHAPE = Shape("network", several=frozenset(_SEVERAL))


def skeleton(spec: Spec) -> str:
    """The XML of a new network, in mode nat by default."""
    network = parse("<network/>")
    make(network, "name").text = spec.name
    if spec.uuid:
        make(network, "uuid").text = spec.uuid
    make(network, "forward", mode="nat")
    return text(network)


def finish(network: Element) -> None:
    """Remove values that libvirt repeats, and that would contradict an edit."""
    forward = network.find("forward")
    if forward is not None and mode_of(network) not in ("nat", "route"):
        forward.attrib.pop("dev", None)  # the first interface of a pool
    bridge = network.find("bridge")
    if bridge is not None and not bridge.attrib:
        network.remove(bridge)
    normalise_vlan(network)


def host(raw: RawNetworkHost, name: str, found: Found | None) -> NetworkHost:
    """Facts for the rules: other networks, and guests on this network or on the bridge that libvirt creates for it."""
    guests = functools.cache(raw.guests)

    def users() -> list[User]:
        known = map(parse, filter(None, (found.xml, found.live_xml))) if found else ()
        own = {bridge for bridge in map(_own_bridge, known) if bridge}
        return [
            User(guest, running)
            for guest, running, documents in guests()
            if any(_plugged(document, name, own) for document in documents)
        ]

    def strangers() -> dict[str, tuple[str, ...]]:
        of_guests = {
            target for _guest, _running, documents in guests() for xml in documents for target in _targets(xml)
        }
        return {bridge: tuple(_strangers(bridge, ports, of_guests)) for bridge, ports in raw.ports.items()}

    neighbours = [_neighbour(*network) for network in raw.networks]
    return NetworkHost(raw.bridges, tuple(neighbours), users, raw.version, strangers, raw.subnets, raw.ruleset)


def _targets(document: str) -> t.Iterator[str]:
    """Host devices of a guest's interfaces."""
    for target in parse(document).iterfind("devices/interface/target[@dev]"):
        yield target.get("dev")


def _strangers(bridge: str, ports: t.Iterable[str], of_guests: t.Container[str]) -> t.Iterator[str]:
    """Ports of no guest; libvirt's own device on old bridges is left out."""
    for port in ports:
        if port not in of_guests and port != f"{bridge}-nic":
            yield port


def _plugged(document: str, network: str, bridges: t.AbstractSet[str]) -> bool:
    """True if a guest uses the network by its name, or its bridge by a port or a macvtap device.

    libvirt shows the actual type of a running interface; its source keeps the network's name.
    """
    sources = parse(document).findall("devices/interface/source")
    return any(one.get("network") == network or bridges & {one.get("bridge"), one.get("dev")} for one in sources)


def _neighbour(name: str, active: bool, xml: str) -> Neighbour:
    root = parse(xml)
    addresses = row.read(root, {"ips": NETWORK["ips"]}).get("ips", ()) if mode_of(root) in OWN else ()
    subnets = tuple(f"{one['address']}/{one['prefix']}" for one in addresses if "prefix" in one)
    return Neighbour(name, active, _own_bridge(root), subnets)


def _own_bridge(root: Element) -> str | None:
    """The bridge that libvirt creates for a network; None for other modes."""
    return t.cast("str | None", NETWORK["bridge"].read(root)) if mode_of(root) in OWN else None
