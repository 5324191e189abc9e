# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the few values of libvirt's XML that doers need.

Standard library only: they ask before a host has lxml.
"""

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

from ansible_collections.corral.virt.plugins.module_utils._xml.names import AGENT_CHANNEL, sealed

_AGENT = f"devices/channel/target[@name='{AGENT_CHANNEL}']"


class Brief(t.NamedTuple):
    """What shows why a running guest does not do what it was asked for."""

    acpi: bool
    agent: str | None  # connected or disconnected; None: it has no channel for one
    networks: frozenset[str]
    consoles: tuple[str, ...]  # files that its serial ports are written to


def guest(xml: str) -> Brief:
    """The facts of a running guest's XML."""
    live = _parsed(xml)
    channel = live.find(_AGENT)
    kept = [item.get("file") for item in live.iterfind("devices/serial/log")]
    kept += [item.get("path") for item in live.iterfind("devices/serial[@type='file']/source")]
    return Brief(
        acpi=live.find("features/acpi") is not None,
        agent=None if channel is None else channel.get("state", "disconnected"),
        networks=frozenset(
            item.get("network", "") for item in live.iterfind("devices/interface[@type='network']/source")
        ),
        consoles=tuple(filter(None, kept)),
    )


def targets(xml: str) -> list[str]:
    """The targets of a guest's disks, as block jobs name them."""
    return [each.get("dev", "") for each in _parsed(xml).iterfind("devices/disk/target")]


def writable(xml: str) -> list[str]:
    """Files and block devices of a guest's writable disks."""
    disks = [disk for disk in _parsed(xml).iterfind("devices/disk") if disk.find("readonly") is None]
    sources = [source for disk in disks if (source := disk.find("source")) is not None]
    return [path for source in sources if (path := source.get("file") or source.get("dev"))]


def alias(device: str) -> str:
    """The alias of a running guest's device, as libvirt's events name it; empty if it has none."""
    found = _parsed(device).find("alias")
    return "" if found is None else found.get("name", "")


def directory(pool: str) -> str | None:
    """The directory of a storage pool's volumes."""
    return _parsed(pool).findtext("target/path")


def pool_source(pool: str) -> tuple[str, list[str]]:
    """The type of a storage pool, and its servers."""
    root = _parsed(pool)
    return str(root.get("type")), [each.get("name", "") for each in root.iterfind("source/host")]


def tags(record: str | None) -> list[str]:
    """The tags in our element of a guest's metadata."""
    found = _parsed(record).iter() if record else ()
    return [item.text or "" for item in found if item.tag.rpartition("}")[2] == "tag"]


def moving(record: str | None, uuid: str) -> bool:
    """True if our element of the guest's metadata says that the guest with this UUID is being migrated."""
    found = _parsed(record).iter() if record else ()
    return any(item.tag.rpartition("}")[2] == "moving" and item.get("seal") in (None, sealed(uuid)) for item in found)


def security_models(capabilities: str) -> list[str]:
    """The security models of a host: apparmor, selinux, dac."""
    return [model.text or "" for model in _parsed(capabilities).iterfind("host/secmodel/model")]


def offers(capabilities: str, what: str) -> bool:
    """True if guests of this type and machine can have firmware that libvirt chooses (efi, bios), or swtpm."""
    place = "devices/tpm/enum[@name='backendModel']" if what == "swtpm" else "os/enum[@name='firmware']"
    found = _parsed(capabilities).find(place)
    wanted = "emulator" if what == "swtpm" else what
    return found is None or wanted in [value.text for value in found]  # an old libvirt does not say


def references(nwfilter: str) -> list[str]:
    """The filters that a network filter refers to."""
    return [one.get("filter", "") for one in _parsed(nwfilter).iterfind("filterref")]


def names(document: str, path: str) -> bool:
    """True if an attribute or a text of a document is a path, or something below it. Where a guest has its backups is
    noted in `repository`: it does not use that.
    """
    values = [
        value
        for one in _parsed(document).iter()
        for name, value in (("", one.text or ""), *one.attrib.items())
        if name != "repository"
    ]
    return any(f"{value}/".startswith(f"{path.rstrip('/')}/") for value in values)


def _parsed(xml: str) -> ElementTree.Element:
    return ElementTree.fromstring(xml)  # noqa: S314 (libvirt wrote it)
