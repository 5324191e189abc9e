# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of a virtual network's fields."""

from __future__ import annotations

import dataclasses
import ipaddress
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.list_item import Item
from ansible_collections.corral.virt.plugins.module_utils._network.model_network import DIRECT, NETWORK_KIND, OWN
from ansible_collections.corral.virt.plugins.module_utils._noun.fields_schema import Schema
from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml import row
from ansible_collections.corral.virt.plugins.module_utils._xml.interface_rows import (
    BANDWIDTH,
    VLAN,
    normalise_vlan,
    same_mac,
)
from ansible_collections.corral.virt.plugins.module_utils._xml.row import ANY, Items, Many, Row, silent_is
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, child, drop

# The addresses of a virtual network: subnets, what DHCP gives away of them, routes.


def _checked(value: t.Any) -> str:
    try:
        return str(value and ipaddress.ip_address(str(value)))
    except ValueError as error:
        raise ValueError("must be an IP address") from error


def _spelt_ip(raw: str) -> str:
    """The canonical spelling of an address, 2001:db8::1 for 2001:DB8:0::1; other text as it is."""
    try:
        return _checked(raw)
    except ValueError:
        return raw


IP = k.Kind({"type": "str"}, _checked, _spelt_ip, must="must be an IP address")
_PREFIX = k.integer(0, 128)
_DHCP_NAME = k.matching(r"[A-Za-z][A-Za-z0-9.-]{0,252}", "must be a host name")
_CLIENT_ID = k.matching(r"[0-9a-fA-F]{1,2}(:[0-9a-fA-F]{1,2}){1,129}", "must be a client identifier")
_SHORTEST_LEASE_S = 120


class Prefix(Row):
    """The length of a network's prefix, which libvirt also takes as a netmask."""

    def read(self, element: Element) -> t.Any:
        """The prefix length; the netmask's text if that is invalid."""
        netmask = element.get("netmask")
        if netmask is None:
            return super().read(element)
        try:
            return ipaddress.ip_network(f"0.0.0.0/{netmask}").prefixlen
        except ValueError:
            return netmask

    def write(self, element: Element, value: t.Any) -> None:
        """Set the prefix attribute, and remove the netmask."""
        element.attrib.pop("netmask", None)
        super().write(element, value)


def _new_range(element: Element, item: Item) -> None:
    start, _dash, end = item.name.partition("-")
    element.set("start", start)
    element.set("end", end)


def _new_address(element: Element, item: Item) -> None:
    element.set("family", "ipv6" if ":" in item.name else "ipv4")


def _new_route(element: Element, item: Item) -> None:
    address, _dash, prefix = item.name.partition("-")
    _new_address(element, item)
    element.set("address", address)
    element.set("prefix", prefix)


def _check_lease(_element: Element, values: row.Values) -> t.Iterator[str]:
    factor = {"seconds": 1, "hours": 3600}.get(values.get("lease.unit", ""), 60)
    if 0 < values.get("lease.expiry", 0) * factor < _SHORTEST_LEASE_S:
        yield "a lease must last at least two minutes; 0 means forever"


def _check_host(element: Element, values: row.Values) -> t.Iterator[str]:
    yield from _check_lease(element, values)
    if not {"mac", "id", "name"} & set(values):
        yield "it matches no client; set mac, id (IPv6) or name"


_LEASE = {
    "lease.expiry": Row("lease/@expiry", k.integer(0), since=(6, 3)),
    "lease.unit": Row(
        "lease/@unit",
        k.choice("seconds", "minutes", "hours"),
        same=silent_is("minutes"),
        valid_with={"lease.expiry": ANY},
    ),
}

_IP_ROWS: row.Table = {
    "address": Row("./@address", IP),
    "prefix": Prefix("./@prefix", _PREFIX),
    "local_ptr": Row("./@localPtr", k.YESNO, same=silent_is(False)),
    "tftp_root": Row("tftp/@root", k.PATH),
    "dhcp.ranges": Items(
        "dhcp/range",
        table=_LEASE,
        parts={"start": IP, "end": IP},
        name_of=lambda one: f"{_spelt_ip(one.get('start'))}-{_spelt_ip(one.get('end'))}",
        new=_new_range,
        check=_check_lease,
    ),
    "dhcp.hosts": Items(
        "dhcp/host",
        table={
            "ip": Row("./@ip", IP),
            "mac": Row("./@mac", k.MAC, same=same_mac),
            "id": Row("./@id", _CLIENT_ID),
            "name": Row("./@name", _DHCP_NAME),
            **_LEASE,
        },
        key="ip",
        check=_check_host,
        shown=("mac", "id", "name"),
    ),
    "dhcp.boot_file": Row("dhcp/bootp/@file", k.LINE),
    "dhcp.boot_server": Row("dhcp/bootp/@server", k.HOST, valid_with={"dhcp.boot_file": ANY}),
}
ADDRESSES = Items(
    "ip",
    table=_IP_ROWS,
    key="address",
    new=_new_address,
    needed=("prefix",),
    shown=("prefix",),
)


def _prefix_of(element: Element) -> t.Any:
    return _IP_ROWS["prefix"].read(element)


ROUTES = Items(
    "route",
    table={"gateway": Row("./@gateway", IP), "metric": Row("./@metric", k.integer(1))},
    parts={"address": IP, "prefix": _PREFIX},
    name_of=lambda one: f"{_spelt_ip(one.get('address'))}-{_prefix_of(one)}",
    new=_new_route,
    needed=("gateway",),
    shown=("gateway",),
)


def mode_of(root: Element) -> str:
    """The forward mode of a network; `isolated` without a forward element."""
    forward = root.find("forward")
    return "isolated" if forward is None else forward.get("mode") or "nat"


def _kind_of(mode: str) -> str:
    """The kind of a mode; a network keeps its forward element if the mode changes within a kind."""
    if mode in OWN:
        return "own"
    return "direct" if mode in DIRECT else mode


class Mode(Row):
    """The forward mode; an isolated network has no element for it."""

    def read(self, element: Element) -> t.Any:
        """The mode; never None."""
        return mode_of(element)

    def write(self, element: Element, value: t.Any) -> None:
        """Set the mode; elements of another kind of network are removed."""
        other = _kind_of(mode_of(element)) != _kind_of(value)
        drop(element.findall("forward") if other or value == "isolated" else ())
        for bridge in element.findall("bridge") if other else ():
            bridge.attrib.pop("name", None)
        if value != "isolated":
            child(element, "forward").set("mode", value)


class RoutedDevice(Row):
    """The one device that a routed network uses; libvirt has it in two places."""

    def read(self, element: Element) -> t.Any:
        """The device of a routed network; None for other modes."""
        return super().read(element) if mode_of(element) in ("nat", "route") else None

    def write(self, element: Element, value: t.Any) -> None:
        """Set the device in one place."""
        drop(element.findall("forward/interface"))
        super().write(element, value)


class Interfaces(Items):
    """The host devices that guests of a network share."""

    def elements(self, root: Element) -> list[Element]:
        """The interface elements of a pool; empty for a routed network, which repeats its device there."""
        return [] if mode_of(root) in OWN else super().elements(root)


_DNS_NAME = k.matching(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?", "must be a DNS name")
_SERVICE = k.matching(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}", "must be the name of a service")


def _new_service(element: Element, item: Item) -> None:
    service, _dash, protocol = item.name.rpartition("-")
    element.set("service", service)
    element.set("protocol", protocol)


_PORTGROUP: row.Table = {
    "name": Row("./@name", k.NAME),
    "default": Row("./@default", k.YESNO, same=silent_is(False)),
    "trust_guest_rx_filters": Row("./@trustGuestRxFilters", k.YESNO, same=silent_is(False)),
    "vlan": VLAN,
    "virtualport": Row("virtualport/@type", k.choice("openvswitch")),
    **BANDWIDTH,
}

_OWN: t.Mapping[str, t.Any] = {"mode": OWN}
_BRIDGED: t.Mapping[str, t.Any] = {"mode": (*OWN, "bridge")}
_DNS: t.Mapping[str, t.Any] = {"mode": OWN, "dns.enabled": (True, None)}
_NAT: t.Mapping[str, t.Any] = {"mode": ("nat",)}

NETWORK: row.Table = {
    "mode": Mode("forward/@mode", k.choice(*OWN, *DIRECT, "hostdev")),
    "device": RoutedDevice("forward/@dev", k.NIC, valid_with={"mode": ("nat", "route")}),
    "interfaces": Interfaces(
        "forward/interface",
        table={"device": Row("./@dev", k.NIC)},
        key="device",
        valid_with={"mode": (*DIRECT, "hostdev")},
    ),
    "pf": Row("forward/pf/@dev", k.NIC, valid_with={"mode": ("passthrough", "hostdev")}),
    "managed": Row("forward/@managed", k.YESNO, valid_with={"mode": ("hostdev",)}),
    "nat.address_start": Row("forward/nat/address/@start", IP, valid_with=_NAT),
    "nat.address_end": Row("forward/nat/address/@end", IP, valid_with=_NAT),
    "nat.port_start": Row("forward/nat/port/@start", k.integer(1, 65535), valid_with=_NAT),
    "nat.port_end": Row("forward/nat/port/@end", k.integer(1, 65535), valid_with=_NAT),
    "nat.ipv6": Row("forward/nat/@ipv6", k.YESNO, same=silent_is(False), valid_with=_NAT, since=(6, 5)),
    "bridge": Row("bridge/@name", k.NIC, valid_with=_BRIDGED),
    "stp": Row("bridge/@stp", k.ONOFF, valid_with=_OWN),
    "delay_s": Row("bridge/@delay", k.integer(), valid_with=_OWN),
    "zone": Row("bridge/@zone", k.WORD, valid_with=_OWN),
    "mac_table_manager": Row("bridge/@macTableManager", k.choice("kernel", "libvirt"), valid_with=_BRIDGED),
    "mac": Row("mac/@address", k.MAC, same=same_mac, valid_with=_OWN),
    "mtu": Row("mtu/@size", k.integer(68, 65535), valid_with=_OWN),
    "domain.name": Row("domain/@name", _DNS_NAME, valid_with=_OWN),
    "domain.local_only": Row("domain/@localOnly", k.YESNO, same=silent_is(False), valid_with={"domain.name": ANY}),
    "dns.enabled": Row("dns/@enable", k.YESNO, same=silent_is(True), valid_with=_OWN),
    "dns.forward_plain_names": Row("dns/@forwardPlainNames", k.YESNO, same=silent_is(True), valid_with=_DNS),
    "dns.forwarders": Items(
        "dns/forwarder",
        table={"address": Row("./@addr", IP), "domain": Row("./@domain", _DNS_NAME)},
        key="address",
        valid_with=_DNS,
        shown=("domain",),
    ),
    "dns.hosts": Items(
        "dns/host",
        table={"ip": Row("./@ip", IP), "hostnames": Many("hostname", _DNS_NAME)},
        key="ip",
        needed=("hostnames",),
        valid_with=_DNS,
        shown=("hostnames",),
    ),
    "dns.txts": Items(
        "dns/txt",
        table={"name": Row("./@name", _DNS_NAME), "value": Row("./@value", k.LINE)},
        needed=("value",),
        valid_with=_DNS,
        shown=("value",),
    ),
    "dns.srvs": Items(
        "dns/srv",
        table={
            "domain": Row("./@domain", _DNS_NAME),
            "target": Row("./@target", k.matching(r"[A-Za-z0-9_.-]{1,253}", "must be a DNS name")),
            **{
                what: Row(f"./@{what}", k.integer(0, 65535), valid_with={"target": ANY})
                for what in ("port", "priority", "weight")
            },
        },
        parts={"service": _SERVICE, "protocol": _SERVICE},
        name_of=lambda one: f"{one.get('service')}-{one.get('protocol')}",
        new=_new_service,
        valid_with=_DNS,
        shown=("target",),
    ),
    "ips": dataclasses.replace(ADDRESSES, valid_with=_OWN),
    "routes": dataclasses.replace(ROUTES, valid_with=_OWN),
    "portgroups": Items("portgroup", table=_PORTGROUP, normalise=normalise_vlan, shown=("vlan", "virtualport")),
    "vlan": VLAN,
    "virtualport": Row("virtualport/@type", k.choice("openvswitch"), valid_with={"mode": ("bridge",)}),
    "isolate_ports": Row("port/@isolated", k.YESNO, same=silent_is(False), valid_with=_BRIDGED, since=(6, 1)),
    "guest_ipv6": Row("./@ipv6", k.YESNO, same=silent_is(False), valid_with=_OWN),
    "trust_guest_rx_filters": Row("./@trustGuestRxFilters", k.YESNO, same=silent_is(False)),
    **BANDWIDTH,
}

NETWORK_SCHEMA = Schema(
    kind=NETWORK_KIND,
    table=NETWORK,
    states=("active", "present", "inactive", "absent"),
    extras=("uuid", "xml", "allow_restart", "force"),
)
