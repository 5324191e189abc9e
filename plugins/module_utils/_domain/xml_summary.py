# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What reports and placement read from a guest's XML: a part of its tables, with the same names.

Without the tables, which are most of what travels to a host; a test compares both on every example.
"""

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

from ansible_collections.corral.virt.plugins.module_utils._domain.model_address import Nic, Sighting
from ansible_collections.corral.virt.plugins.module_utils._xml.names import AGENT_CHANNEL, CORRAL, SEEN, sealed

_GUEST, _SEEN = f"metadata/{{{CORRAL}}}guest", f"metadata/{{{SEEN}}}guest"
_PORTS = {"port": "port", "tls_port": "tlsPort", "websocket": "websocket"}

_AGENT = f"devices/channel/target[@name='{AGENT_CHANNEL}'][@state='connected']"

Element = ElementTree.Element


def read(xml: str) -> tuple[dict[str, t.Any], Element]:
    """Tags, vCPUs, memory in MiB, disks, interfaces, displays, and whether a serial console opens; and the root."""
    root = ElementTree.fromstring(xml)  # noqa: S314 (libvirt wrote it)
    maximum, memory = _number(root, "vcpu"), _number(root, "memory")
    vcpu = root.find("vcpu")
    current = None if vcpu is None else vcpu.get("current")
    return {
        "tags": texts(root, f"{_GUEST}/{{{CORRAL}}}tag"),
        "vcpus": {"current": int(current) if current else maximum, "maximum": maximum},
        "memory": {
            "current_mib": (_number(root, "currentMemory") or memory or 0) // 1024,
            "maximum_mib": (memory or 0) // 1024,
        },
        "disks": [_disk(device) for device in root.iterfind("devices/disk")],
        "interfaces": [_interface(device) for device in root.iterfind("devices/interface")],
        "graphics": [_display(device) for device in root.iterfind("devices/graphics")],
        "console": any(root.find(f"devices/{port}[@type='pty']") is not None for port in ("serial", "console")),
    }, root


def oldest_s(snapshots: t.Iterable[str]) -> int | None:
    """When the oldest of snapshots was taken, in seconds since 1970; None without any."""
    roots = [ElementTree.fromstring(xml) for xml in snapshots]  # noqa: S314 (libvirt wrote it)
    return min((int(root.findtext("creationTime") or 0) for root in roots), default=None)


def recorded(root: Element) -> dict[str, t.Any]:
    """The record of a guest's place: addresses and key of its seed, addresses seen, unfinished disks, its migration."""
    moving = root.find(f"{_GUEST}/{{{CORRAL}}}moving")
    if moving is not None and moving.get("seal") not in (None, sealed(root.findtext("uuid") or "")):
        moving = None  # of the guest whose definition somebody copied
    return {
        "addresses": texts(root, f"{_GUEST}/{{{CORRAL}}}address"),
        "seen": texts(root, f"{_SEEN}/{{{SEEN}}}at"),
        "unfinished": root.find(f"{_GUEST}/{{{CORRAL}}}making") is not None,
        "ssh_host_key": root.findtext(f"{_GUEST}/{{{CORRAL}}}ssh-host-key"),
        "moving": None if moving is None else moving.text,
        "moving_from": None if moving is None else moving.get("from"),
    }


def has_agent(root: Element) -> bool:
    """True if the agent of a running guest is connected."""
    return root.find(_AGENT) is not None


def is_managed(root: Element) -> bool:
    """True if the collection has recorded anything with the guest, tags included."""
    return root.find(_GUEST) is not None or root.find(_SEEN) is not None


def nics(root: Element) -> tuple[Nic, ...]:
    """The interfaces as the host's network sees them.

    Only those of a running guest have a device, and only if they are on a bridge.
    """
    found = []
    for device in root.iterfind("devices/interface"):
        bridge, mac = _attribute(device, "source", "bridge") or "", _attribute(device, "mac", "address")
        if mac:
            found.append(Nic(mac.lower(), (_attribute(device, "target", "dev") or "") if bridge else "", bridge))
    return tuple(found)


def macs(root: Element) -> set[str]:
    """The MAC addresses of its interfaces."""
    return {nic.mac for nic in nics(root)}


def sighted(root: Element, seen: t.Iterable[str]) -> list[str]:
    """Addresses at which the guest was `seen` on interfaces that it still has."""
    known = macs(root)
    return [entry.address for entry in map(Sighting.parse, seen) if entry and entry.mac in known]


def sightings(entries: t.Iterable[str]) -> str:
    """The element of recorded addresses as libvirt's metadata call takes it; empty for none."""
    root = ElementTree.Element("guest")
    for entry in entries:
        ElementTree.SubElement(root, "at").text = entry
    return ElementTree.tostring(root, encoding="unicode") if len(root) else ""


def texts(root: Element, path: str) -> list[str]:
    """The texts of the elements at a path."""
    return [element.text or "" for element in root.iterfind(path)]


def _number(root: Element, path: str) -> int | None:
    text = root.findtext(path)
    return int(text) if text else None


def _attribute(device: Element, part: str, attribute: str) -> str | None:
    found = device.find(part)
    return None if found is None else found.get(attribute)


def _without_none(values: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {name: value for name, value in values.items() if value is not None}


def _disk(device: Element) -> dict[str, t.Any]:
    source = device.find("source")
    place = {} if source is None else source.attrib
    return _without_none(
        {
            "target": _attribute(device, "target", "dev"),
            "format": _attribute(device, "driver", "type"),
            "source": place.get("file") or place.get("dev") or place.get("name"),
            "pool": place.get("pool"),
            "volume": place.get("volume"),
        }
    )


def _interface(device: Element) -> dict[str, t.Any]:
    kind = device.get("type") or ""
    own = {kind: _attribute(device, "source", kind)} if kind in ("bridge", "network") else {}
    return _without_none({"mac": _attribute(device, "mac", "address"), "type": kind or None, **own})


def _display(device: Element) -> dict[str, t.Any]:
    ports = {name: device.get(attribute) for name, attribute in _PORTS.items()}
    listen = _attribute(device, "listen", "address")
    return _without_none(
        {
            "type": device.get("type"),
            **{name: int(port) if port else None for name, port in ports.items()},
            "listen": listen,
        }
    )
