# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host must have before a guest can start. Standard library only, so that little code travels."""

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

from ansible_collections.corral.virt.plugins.module_utils._domain import xml_host_devices
from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import (
    Offer,
    Prerequisites,
    Qcow2,
    Uplink,
)

# What guests of a network are plugged into. With the standard library alone, as little travels to start guests.

_LIBVIRTS = ("", "nat", "route", "open")  # modes of networks whose bridge libvirt makes


def uplink(network: str) -> Uplink:
    """The uplink of an active network; empty if Open vSwitch connects guests, or libvirt gives them host devices."""
    root = ElementTree.fromstring(network)  # noqa: S314 (libvirt wrote it)
    forward, bridge = root.find("forward"), root.find("bridge")
    mode = "" if forward is None else forward.get("mode", "nat")
    switched = any(one.get("type") == "openvswitch" for one in root.iter("virtualport"))
    if switched or mode == "hostdev" or root.find("forward/pf") is not None:
        return Uplink()
    if bridge is not None:
        return Uplink(bridge.get("name", ""), is_own=mode in _LIBVIRTS)
    interfaces = tuple(one.get("dev", "") for one in root.iterfind("forward/interface"))
    return Uplink() if mode in _LIBVIRTS else Uplink(interfaces=interfaces)


Element = ElementTree.Element

_PLUGGED = ("bridge", "direct")  # into a network device of the host
_FILTERED = ("bridge", "network", "ethernet")  # libvirt ignores or refuses filters of others
_FILTERS = "devices/interface[@type='{}']/filterref"
_SHARED = "devices/filesystem/source"
# Places of paths that must be there: the element, and the attribute; "" for its text.
_FILES = (
    *((f"os/{one}", "") for one in ("kernel", "initrd", "shim", "dtb", "loader", "acpi/table")),
    ("sysinfo[@type='fwcfg']/entry", "file"),
    ("devices/*/rom", "file"),
    ("devices/emulator", ""),
    *((_SHARED, one) for one in ("dir", "file", "dev")),
    ("devices/filesystem/binary", "path"),
)
_SPECIAL = (  # sockets that somebody else listens on, and devices
    (_SHARED, "socket"),
    *((f"devices/{one}/source[@mode='connect']", "path") for one in ("serial", "parallel", "console", "channel")),
    *((f"devices/{one}[@type='dev']/source", "path") for one in ("serial", "parallel", "console", "channel")),
    ("devices/interface[@type='vhostuser']/source[@mode='client']", "path"),
    ("devices/shmem/server", "path"),
    ("devices/tpm/backend/device", "path"),
    ("devices/tpm/backend[@type='external']/source", "path"),
    ("devices/rng/backend[@model='random']", ""),
    ("devices/input/source", "evdev"),
    ("devices/input[@type='evdev']/source", "dev"),
    ("devices/graphics/gl", "rendernode"),
    ("devices/video/model/acceleration", "rendernode"),
)
_MADE = (  # by QEMU and libvirt, in a directory that must be there
    ("devices/*/log", "file"),
    *((f"devices/{one}[@type='file']/source", "path") for one in ("serial", "parallel", "console", "channel")),
    *((f"devices/{one}/source[@mode='bind']", "path") for one in ("serial", "parallel", "console", "channel")),
    ("devices/interface[@type='vhostuser']/source[@mode='server']", "path"),
    ("devices/graphics/listen[@type='socket']", "socket"),
    ("devices/graphics", "socket"),
    ("devices/audio[@type='file']", "path"),
)
_OWN = ("/var/lib/libvirt/qemu/", "/run/libvirt/", "/var/run/libvirt/", "/run/user/", "/var/log/libvirt/")  # libvirt's


def prerequisites(xml: str, *, restored: bool = False, disks: bool = True) -> Prerequisites:
    """The prerequisites of a guest, or of one device. Not the file of an NVDIMM: QEMU creates a missing one.

    `restored`: True if it resumes from a saved state, with which more devices may be missing. `disks`: True to include
    files and volumes of its disks, which move with it.
    """
    root = _domain(xml)
    _drop(root, ("optional", "requisite") if restored else ("optional",))
    secrets = _named(one.get("uuid") or one.get("usage") for one in root.iterfind("devices//secret"))
    secrets |= _named(one.get("secret") for one in root.iterfind("devices/tpm/backend/encryption"))
    layers = [layer for disk in root.iter("disk") for layer in _layers(disk) if disks]
    sources = [one for layer in layers for one in layer.findall("source")]
    nics = [(nic, _kind(nic), one) for nic in root.iter("interface") for one in nic.findall("source")]
    special, booted = _paths(root, _SPECIAL), _paths(root, _FILES)
    files = [one.get("file") or one.get("dev") for one in sources]
    files += [one.get("file") or one.get("dev") for one in root.iterfind(".//dataStore/source") if disks]
    return Prerequisites(
        networks=_named(one.get("network") for _nic, kind, one in nics if kind == "network"),
        plugged=_named(one.get("network") for nic, kind, one in nics if kind == "network" and not _is_switched(nic)),
        filters=_named(one.get("filter") for kind in _FILTERED for one in root.iterfind(_FILTERS.format(kind))),
        links=_named(one.get("bridge") or one.get("dev") for _nic, kind, one in nics if kind in _PLUGGED),
        lower=_named(one.get("dev") for _nic, kind, one in nics if kind == "direct"),
        switches=_named(one.get("bridge") for nic, _kind, one in nics if _is_switched(nic)),
        devices=_devices(root),
        files=booted | special | _named(files),
        media=frozenset(
            one for drive in root.iterfind("devices/disk[@device='cdrom']") for one in _medium(drive) if disks
        ),
        special=special,
        contents=_paths(root, [(_SHARED, "dir")]),
        loaders=_paths(root, [("os/loader", "")]),
        directories=_directories(root),
        volumes=frozenset((one.get("pool", ""), one.get("volume", "")) for one in sources if one.get("pool")),
        images=frozenset(image for layer in layers for image in _images(layer)),
        templates={one.get("template", ""): _variables(one) for one in root.iterfind("os/nvram[@template]")},
        secrets=secrets,
        helpers=frozenset({"virtiofsd"} if any(map(_starts_virtiofsd, root.iterfind("devices/filesystem"))) else ()),
        offers=frozenset(_offers(root)),
        restored=restored,
    )


def _paths(root: Element, places: t.Iterable[tuple[str, str]]) -> frozenset[str]:
    """Absolute paths in these places."""
    found = (
        (one.get(attribute) if attribute else one.text) for place, attribute in places for one in root.iterfind(place)
    )
    return frozenset(path for path in (str(one or "").strip() for one in found) if path.startswith("/"))


def _directories(root: Element) -> frozenset[str]:
    """Directories where files are created, without those that libvirt creates itself."""
    made = (path for path in _paths(root, _MADE) if not path.startswith(_OWN))
    return frozenset(path.rpartition("/")[0] or "/" for path in made)


def _starts_virtiofsd(shared: Element) -> bool:
    """True if libvirt starts virtiofsd, and chooses the program."""
    virtiofs = shared.find("driver[@type='virtiofs']") is not None
    return virtiofs and shared.find("binary[@path]") is None and shared.find("source[@socket]") is None


def _offers(root: Element) -> t.Iterator[Offer]:
    """Offers that the guest needs; firmware only if libvirt looks for it at each start: a newer one stores what it
    found.
    """
    kind, system = root.find("os/type"), root.find("os")
    if kind is None or system is None:
        return
    of = (root.get("type", ""), kind.get("arch", ""), kind.get("machine", ""))
    if system.get("firmware") and not system.findtext("loader"):
        yield Offer(system.get("firmware", ""), *of)
    if root.find("devices/tpm/backend[@type='emulator']") is not None:
        yield Offer("swtpm", *of)


def _domain(xml: str) -> Element:
    """The guest, or a guest with only this device."""
    root = ElementTree.fromstring(xml)  # noqa: S314 (libvirt wrote it)
    if root.tag == "domain":
        return root
    domain = Element("domain")
    ElementTree.SubElement(domain, "devices").append(root)
    return domain


def _drop(root: Element, policies: t.Collection[str]) -> None:
    """Remove the devices without which the guest starts as well."""
    for devices in root.iterfind("devices"):
        for device in list(devices):
            source = device.find("source")
            if source is not None and source.get("startupPolicy") in policies:
                devices.remove(device)


def _named(names: t.Iterable[str | None]) -> frozenset[str]:
    return frozenset(filter(None, names))


def _layers(disk: Element) -> t.Iterator[Element]:
    """A disk, and its backing files in the definition."""
    layer: Element | None = disk
    while layer is not None:
        yield layer
        layer = layer.find("backingStore")


def _medium(drive: Element) -> t.Iterator[str | tuple[str, str]]:
    for source in drive.findall("source"):
        if source.get("pool"):
            yield source.get("pool", ""), source.get("volume", "")
        elif place := source.get("file") or source.get("dev"):
            yield place


def _images(layer: Element) -> t.Iterator[Qcow2]:
    """The qcow2 images of a disk or backing file; libvirt reads file names only from such a header."""
    described = layer.find("driver[@type='qcow2']") is not None or layer.find("format[@type='qcow2']") is not None
    for source in layer.findall("source") if described else ():
        volume = (source.get("pool", ""), source.get("volume", ""))
        place = source.get("file") or (volume if all(volume) else None)
        if place and source.find("dataStore") is None:
            yield Qcow2(place, layer.find("backingStore") is not None)


def _devices(root: Element) -> frozenset[str]:
    """The host devices; empty if a number is invalid, or in a form that only libvirt reads."""
    try:
        return frozenset(xml_host_devices.devices(root))
    except ValueError:
        return frozenset()


def _kind(nic: Element) -> str | None:
    """The type of an interface; None for a bridge of Open vSwitch, which the kernel does not know."""
    kind = nic.get("type")
    return None if _is_switched(nic) and kind == "bridge" else kind


def _is_switched(nic: Element) -> bool:
    """True if Open vSwitch connects the interface."""
    return nic.find("virtualport[@type='openvswitch']") is not None


def _variables(nvram: Element) -> str:
    """The path of a guest's UEFI variables; libvirt creates missing ones from a template."""
    source = nvram.find("source")
    return ((nvram.text or "").strip() if source is None else source.get("file")) or ""
