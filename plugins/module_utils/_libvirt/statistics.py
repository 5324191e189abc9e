# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of a host that only reports use."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import (
    NotFound,
    NotOffered,
    Unsupported,
    VirtError,
)
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt


def domain_capabilities(connection: Connection, virt_type: str, machine: str | None = None) -> str | None:
    """XML of what libvirt supports for guests of that type and machine; None if the driver cannot say."""
    with contextlib.suppress(NotOffered), explained("read the domain capabilities of", connection.getURI()):
        return t.cast(str, connection.getDomainCapabilities(None, None, machine, virt_type))
    return None


def baseline(connection: Connection, virt_type: str, arch: str, cpus: t.Sequence[str]) -> str:
    """XML of the best CPU model that all these support; raises Failed if they have nothing in common."""
    with explained("find a common CPU model on", connection.getURI()):
        try:
            return t.cast(str, connection.baselineHypervisorCPU(None, arch, None, virt_type, list(cpus), 0))
        except (AttributeError, libvirt.libvirtError) as error:
            if getattr(error, "get_error_code", lambda: libvirt.VIR_ERR_NO_SUPPORT)() != libvirt.VIR_ERR_NO_SUPPORT:
                raise
            return t.cast(str, connection.baselineCPU(list(cpus), 0))  # libvirt before 4.4, and drivers without QEMU


def stats(connection: Connection) -> list[tuple[t.Any, dict[str, t.Any]]]:
    """State, vCPUs, memory and disks of all guests, in one call."""
    kinds = (
        libvirt.VIR_DOMAIN_STATS_STATE
        | libvirt.VIR_DOMAIN_STATS_VCPU
        | libvirt.VIR_DOMAIN_STATS_BALLOON
        | libvirt.VIR_DOMAIN_STATS_BLOCK
    )
    with explained("read the guests of", connection.getURI()):
        return t.cast("list[tuple[t.Any, dict[str, t.Any]]]", connection.getAllDomainStats(kinds, 0))


def stats_of_disks(connection: Connection, item: t.Any) -> dict[str, t.Any]:
    """Disk statistics of one guest, without waiting for a QEMU that does not answer."""
    flags = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
    with explained("read guest", item.name()):
        found = connection.domainListGetStats([item], libvirt.VIR_DOMAIN_STATS_BLOCK, flags)
    return t.cast("dict[str, t.Any]", found[0][1]) if found else {}


def snapshots(item: t.Any) -> tuple[int, list[str]]:
    """The number of a guest's snapshots, and XML of those that stand on no other: the oldest is among them.

    One question for a guest that has none. Raises NotFound.
    """
    with contextlib.suppress(Unsupported), explained("read the snapshots of guest", item.name()):
        count = item.snapshotNum()
        roots = item.listAllSnapshots(libvirt.VIR_DOMAIN_SNAPSHOT_LIST_ROOTS) if count else ()
        return count, [xml for one in roots for xml in _document(one)]
    return 0, []


def _document(snapshot: t.Any) -> t.Iterator[str]:
    """The XML of a snapshot; nothing if it was deleted meanwhile."""
    try:
        yield snapshot.getXMLDesc()
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN_SNAPSHOT:
            raise


def cpu_seconds(connection: Connection) -> dict[str, float]:
    """Processor time of all guests so far, by UUID; guests that the driver does not count are left out."""
    with explained("read the guests of", connection.getURI()):
        found = connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_CPU_TOTAL, 0)
    return {item.UUIDString(): figures["cpu.time"] / 1e9 for item, figures in found if "cpu.time" in figures}


def networks(connection: Connection) -> list[dict[str, t.Any]]:
    """libvirt's virtual networks."""
    with explained("read the networks of", connection.getURI()):
        return [
            {
                "name": item.name(),
                "active": bool(item.isActive()),
                "autostart": bool(item.autostart()),
                "xml": item.XMLDesc(),
            }
            for item in connection.listAllNetworks()
        ]


def devices(connection: Connection) -> list[tuple[str, str]] | None:
    """PCI, mediated and USB devices by name, with XML of USB devices, whose names tell nothing about them.

    None if libvirt cannot list them.
    """
    return _devices(connection, ("PCI_DEV", "MDEV", "USB_DEV"), lambda name: name.startswith("usb_"))


def block_devices(connection: Connection) -> list[str]:
    """XML of all disks of the host; empty if libvirt cannot list them."""
    return [xml for _name, xml in _devices(connection, ("STORAGE",), lambda _name: True) or ()]


def _devices(
    connection: Connection, kinds: t.Iterable[str], described: t.Callable[[str], bool]
) -> list[tuple[str, str]] | None:
    flags = sum(getattr(libvirt, f"VIR_CONNECT_LIST_NODE_DEVICES_CAP_{kind}") for kind in kinds)
    try:
        found = connection.listAllDevices(flags)
    except libvirt.libvirtError as error:
        if error.get_error_code() in (libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_SYSTEM_ERROR):
            return None  # the driver knows none, or their daemon is not installed
        with explained("list the devices of", connection.getURI()):
            raise
    listed = []
    for item in found:
        with contextlib.suppress(NotFound), explained("read device", item.name()):
            listed.append((item.name(), item.XMLDesc() if described(item.name()) else ""))
    return listed


def volumes(connection: Connection) -> list[tuple[str, list[dict[str, t.Any]]]]:
    """Names and sizes of the volumes of each active pool, as of libvirt's last refresh; without pools that libvirt does
    not list, such as one with more than 16,384 volumes.
    """
    found = []
    with explained("list the volumes of", connection.getURI()):
        pools = connection.listAllStoragePools(libvirt.VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE)
    for pool in pools:
        with contextlib.suppress(VirtError), explained("list the volumes of pool", pool.name()):
            found.append((pool.name(), [sizes for each in pool.listAllVolumes() for sizes in _sizes(each)]))
    return found


def _sizes(volume: t.Any) -> t.Iterator[dict[str, t.Any]]:
    """Name and sizes of a volume; nothing if it was deleted meanwhile, or has a name that is not UTF-8."""
    with contextlib.suppress(NotFound, UnicodeDecodeError), explained("read volume", name := volume.name()):
        _type, capacity, allocation = volume.info()
        yield {"name": name, "capacity_bytes": capacity, "allocation_bytes": allocation}
