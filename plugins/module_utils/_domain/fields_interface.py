# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of a network interface. Identity: our alias `ua-<name>`, else the MAC address."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.list_item import Item
from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml import row
from ansible_collections.corral.virt.plugins.module_utils._xml.interface_rows import (
    BANDWIDTH,
    VLAN,
    normalise_vlan,
    same_mac,
)
from ansible_collections.corral.virt.plugins.module_utils._xml.row import ANY, Items, Mark, Row, silent_is
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, alias_name, drop, make


def forget_source(device: Element) -> None:
    """Remove the source of a device, which would contradict its new type."""
    for source in device.findall("source"):
        source.attrib.clear()
        drop(source)
    for place in device.findall("address") if device.tag == "hostdev" else ():
        device.remove(place)  # on a bus of the guest that the new type may not be on


class PlugRow(Row):
    """A field of the source that only some types of device have."""

    def read(self, element: Element) -> t.Any:
        """The value, if the device has such a type; else None."""
        return super().read(element) if element.get("type") in self.valid_with["type"] else None


class PciAddress(PlugRow):
    """`0000:06:00.0` for the four attributes of an address element."""

    _PARTS = (("domain", 4), ("bus", 2), ("slot", 2), ("function", 1))

    def read(self, element: Element) -> t.Any:
        """The PCI address as lspci prints it; None for a device of another type."""
        found = element.find(self.path)
        return None if element.get("type") not in self.valid_with["type"] or found is None else self.of(found)

    def of(self, found: Element) -> str | None:
        """The PCI address in an address element; None if it is incomplete."""
        if not found.get("bus"):
            return None
        try:
            domain, bus, slot, function = (
                format(int(found.get(name) or "0", 16), f"0{width}x") for name, width in self._PARTS
            )
        except ValueError:
            return None
        return f"{domain}:{bus}:{slot}.{function}"

    def write(self, element: Element, value: t.Any) -> None:
        """Replace the address element."""
        *way, last = self.path.split("/")
        for step in way:
            found = element.find(step)
            element = make(element, step) if found is None else found
        drop(element.findall(last))
        if value == "":
            return
        domain, bus, rest = value.split(":")
        slot, function = rest.split(".")
        values = {"domain": domain, "bus": bus, "slot": slot, "function": function}
        made = make(element, last, **{name: f"0x{digits}" for name, digits in values.items()})
        if element.tag == "source" and element.getparent().tag == "interface":
            made.set("type", "pci")


class Place(PciAddress):
    """The PCI address of the device in the guest, which names it there (enp1s0)."""

    def read(self, element: Element) -> t.Any:
        """The PCI address, for a device of any type."""
        found = element.find(self.path)
        return None if found is None or found.get("type") != "pci" else self.of(found)

    def write(self, element: Element, value: t.Any) -> None:
        """Write the address with type pci."""
        super().write(element, value)
        for made in element.findall(self.path):
            made.set("type", "pci")


_TARGET = k.matching(
    r"(?!(vnet|vif|macvtap|macvlan)\d)[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}",
    "must be the name of a network device, 15 characters at most, and not one that libvirt numbers itself (vnet0)",
)


def _forget_portgroup(interface: Element) -> None:
    """Port groups are of one network: libvirt takes an unknown one for none, and so leaves out its VLAN."""
    source = interface.find("source")
    if source is not None:
        source.attrib.pop("portgroup", None)


_BRIDGE, _NETWORK, _DIRECT, _HOSTDEV = ({"type": (kind,)} for kind in ("bridge", "network", "direct", "hostdev"))

_FILTER = k.matching(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", "must be the name of a network filter")
_EMULATED = {"type": ("bridge", "network", "direct", "user", "ethernet")}
_FILTERED = {"type": ("bridge", "network", "ethernet")}

INTERFACE: row.Table = {
    "type": Row(
        "./@type", k.choice("bridge", "network", "direct", "hostdev", "user", "ethernet"), on_change=forget_source
    ),
    "mac": Row("mac/@address", k.MAC, same=same_mac),
    "bridge": PlugRow("source/@bridge", k.NIC, valid_with=_BRIDGE, required_with=_BRIDGE),
    "network": PlugRow(
        "source/@network", k.NAME, valid_with=_NETWORK, required_with=_NETWORK, on_change=_forget_portgroup
    ),
    "portgroup": PlugRow("source/@portgroup", k.NAME, valid_with=_NETWORK),
    "device": PlugRow("source/@dev", k.NIC, valid_with=_DIRECT, required_with=_DIRECT),
    "mode": PlugRow("source/@mode", k.choice("vepa", "bridge", "private", "passthrough"), valid_with=_DIRECT),
    "address": PciAddress("source/address", k.PCI, valid_with=_HOSTDEV, required_with=_HOSTDEV),
    "managed": Row("./@managed", k.YESNO, same=silent_is(False), valid_with=_HOSTDEV),
    "model": Row(
        "model/@type",
        k.matching(r"[A-Za-z0-9_-]{1,64}", "must be a model such as virtio or e1000e"),
        same=lambda found, wanted: wanted in ("", found),  # libvirt always chooses one
    ),
    "driver": Row("driver/@name", k.choice("vhost", "qemu"), valid_with=_EMULATED),
    "queues": Row("driver/@queues", k.integer(1, 1024), same=silent_is(1)),
    "mtu": Row("mtu/@size", k.integer(68, 65535)),
    "vlan": VLAN,
    "virtualport": Row("virtualport/@type", k.choice("openvswitch")),
    "isolated": Row("port/@isolated", k.YESNO, since=(6, 1)),
    "link": Row("link/@state", k.choice("up", "down")),
    "filterref.name": Row("filterref/@filter", _FILTER, valid_with=_FILTERED),
    "filterref.parameters": Items(
        "filterref/parameter",
        table={
            "name": Row("./@name", k.matching(r"[A-Za-z0-9_]{1,64}", "must be letters, digits and '_'")),
            "value": Row("./@value", k.matching(r"[A-Za-z0-9_.:]{1,128}", "must be an address, number or word")),
        },
        needed=("value",),
        shown=("value",),
        valid_with={"filterref.name": ANY},
    ),
    "trust_guest_rx_filters": Row("./@trustGuestRxFilters", k.YESNO),
    "target": Row("target/@dev", _TARGET),
    "boot_order": Row("boot/@order", k.integer(1, 1000)),
    "guest_address": Place("address", k.PCI),
    "rom.bar": Row("rom/@bar", k.ONOFF),
    "rom.file": Row("rom/@file", k.PATH),
    **BANDWIDTH,
}


def _marks(device: Element) -> t.Iterator[Mark]:
    mac = device.find("mac")
    yield "mac", "" if mac is None else (mac.get("address") or "").lower()


def _sought(item: Item) -> tuple[Mark, ...]:
    return (("mac", item.fields.get("mac") or item.name),)


def name_of(device: Element) -> str:
    """The name we gave the interface, or its MAC address."""
    mac = device.find("mac")
    return alias_name(device) or ("" if mac is None else (mac.get("address") or "").lower())


def _new(device: Element, item: Item) -> None:
    device.set("type", item.fields.get("type") or "bridge")
    if ":" in item.name:  # a MAC address is identity enough, and no alias
        make(device, "mac", address=item.name)
    else:
        make(device, "alias", name=f"ua-{item.name}")
    if device.get("type") == "hostdev":
        device.set("managed", "yes")
    else:
        make(device, "model", type="virtio")


def _normalise(device: Element) -> None:
    """Remove empty elements, and mark several VLAN tags as a trunk."""
    source, filtered = device.find("source"), device.find("filterref")
    if filtered is not None and not filtered.get("filter"):
        device.remove(filtered)
    if source is not None and not source.attrib and not len(source):
        device.remove(source)
    normalise_vlan(device)


INTERFACES = Items(
    "devices/interface",
    table=INTERFACE,
    key_kind=k.matching(
        r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}|[0-9a-f][02468ace](:[0-9a-f]{2}){5}",
        "must be a name of letters, digits, '_' and '-', or a MAC address",
    ),
    name_of=name_of,
    marks=_marks,
    sought=_sought,
    new=_new,
    normalise=_normalise,
    shown=("type", "bridge", "network", "device", "address"),
)


def filters(root: Element) -> dict[str, str]:
    """The network filter of each interface that has one."""
    return {
        name_of(device): device.find("filterref").get("filter") for device in root.xpath("devices/interface[filterref]")
    }


def switched(root: Element) -> set[str]:
    """The interfaces on switches of Open vSwitch."""
    return {name_of(device) for device in root.xpath("devices/interface[virtualport/@type='openvswitch']")}


def read_all(root: Element) -> list[dict[str, t.Any]]:
    """Every interface with its fields; `name` only if we gave one."""
    found = []
    for device in root.findall("devices/interface"):
        values = row.read(device, INTERFACE)
        if alias_name(device):
            values["name"] = alias_name(device)
        found.append(values)
    return found
