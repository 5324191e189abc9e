# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The addresses of a virtual network: subnets, what DHCP gives away of them, routes."""

from __future__ import annotations

import ipaddress
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.item import Item
from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml import row
from ansible_collections.corral.virt.plugins.module_utils._xml.link import same_mac
from ansible_collections.corral.virt.plugins.module_utils._xml.row import ANY, Items, Row, silent_is
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element

__all__ = ["ADDRESSES", "IP", "ROUTES"]


def _checked(value: t.Any) -> str:
    try:
        return str(value and ipaddress.ip_address(str(value)))
    except ValueError as error:
        raise ValueError("must be an IP address") from error


def _spelt_ip(raw: str) -> str:
    """Others write 2001:DB8:0::1 where we write 2001:db8::1."""
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
    """The length of a network's prefix, which others write as a netmask."""

    def read(self, element: Element) -> t.Any:
        """A number; a text where the netmask is none."""
        netmask = element.get("netmask")
        if netmask is None:
            return super().read(element)
        try:
            return ipaddress.ip_network(f"0.0.0.0/{netmask}").prefixlen
        except ValueError:
            return netmask

    def write(self, element: Element, value: t.Any) -> None:
        """In its own place."""
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
