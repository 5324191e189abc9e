# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Query a host and its guests: read-only, few calls, no policy."""

from __future__ import annotations

import contextlib
import os
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import version
from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, NotOffered, Unsupported
from ansible_collections.corral.virt.plugins.module_utils._core.uri import has_files_here
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._libvirt import states
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._xml.names import BACKUP_OF

T = t.TypeVar("T")


def of_all(connection: Connection, read: t.Callable[[t.Any], T]) -> list[T]:
    """The result of `read` for every guest's virDomain; guests that disappear meanwhile are left out."""
    with explained("list guests of", connection.getURI()):
        domains = connection.listAllDomains()
    answers = []
    for domain in domains:
        with contextlib.suppress(NotFound), explained("read guest", domain.name()):
            answers.append(read(domain))
    return answers


def lookup(connection: Connection, name: str) -> t.Any:
    """The virDomain with this name; raises NotFound."""
    with explained("find guest", name):
        return connection.lookupByName(name)


def by_uuid(connection: Connection, uuid: str) -> t.Any:
    """The virDomain with this UUID, whatever its name; raises NotFound."""
    with explained("find guest with UUID", uuid):
        return connection.lookupByUUIDString(uuid)


def find(connection: Connection, name: str) -> FoundGuest | None:
    """The guest with this name as libvirt has it, or None."""
    with contextlib.suppress(NotFound):
        return found(lookup(connection, name))
    return None


def find_by_uuid(connection: Connection, uuid: str) -> FoundGuest | None:
    """The guest with this UUID as libvirt has it, or None."""
    with contextlib.suppress(NotFound):
        return found(by_uuid(connection, uuid))
    return None


def found(domain: t.Any) -> FoundGuest:
    """Definition (secrets included, so that redefining loses none), live document and state of a guest."""
    with explained("read guest", domain.name()):
        active, persistent = bool(domain.isActive()), bool(domain.isPersistent())
        flags = libvirt.VIR_DOMAIN_XML_SECURE
        state, stopped_itself = states.seen(domain)
        return FoundGuest(
            name=domain.name(),
            uuid=domain.UUIDString(),
            state=state,
            persistent=persistent,
            autostart=bool(domain.autostart()) if persistent else False,
            xml=domain.XMLDesc(flags | libvirt.VIR_DOMAIN_XML_INACTIVE),
            live_xml=domain.XMLDesc(flags) if active else None,
            stopped_itself=stopped_itself,
        )


class Stored(t.NamedTuple):
    """A guest's stored definition, with secrets as `found` reads it."""

    xml: str
    active: bool
    persistent: bool


def stored(connection: Connection, uuid: str) -> Stored | None:
    """The stored definition of the guest with this UUID, or None."""
    with contextlib.suppress(NotFound):
        domain = by_uuid(connection, uuid)
        with explained("read guest", domain.name()):
            flags = libvirt.VIR_DOMAIN_XML_SECURE | libvirt.VIR_DOMAIN_XML_INACTIVE
            return Stored(domain.XMLDesc(flags), bool(domain.isActive()), bool(domain.isPersistent()))
    return None


def definition(domain: t.Any, *, secrets: bool = False) -> str:
    """The stored XML of a guest, on request with its `secrets`; the running XML of a transient one."""
    with explained("read guest", domain.name()):
        flags = libvirt.VIR_DOMAIN_XML_INACTIVE if domain.isPersistent() else 0
        return t.cast(str, domain.XMLDesc(flags | (libvirt.VIR_DOMAIN_XML_SECURE if secrets else 0)))


def saved_xml(domain: t.Any) -> str | None:
    """The definition in the managed save image of a guest that is off, which can have other disks than the stored one;
    None without an image.
    """
    with (
        contextlib.suppress(Unsupported),
        explained(
            "read the managed save image of guest",
            domain.name(),
            f"discard it with `{shlex.join(['virsh', 'managedsave-remove', domain.name()])}`",
        ),
    ):
        if not domain.isActive() and domain.hasManagedSaveImage():
            return t.cast(str, domain.managedSaveGetXMLDesc())
    return None


def snapshots(domain: t.Any, *, secrets: bool = False) -> list[tuple[str, str]]:
    """Name and XML of each snapshot, to which the guest can revert, on request with `secrets`; snapshots that disappear
    meanwhile are left out.
    """
    found, flags = [], libvirt.VIR_DOMAIN_SNAPSHOT_XML_SECURE if secrets else 0
    with contextlib.suppress(Unsupported), explained("read the snapshots of guest", domain.name()):
        for one in domain.listAllSnapshots():
            try:
                found.append((one.getName(), one.getXMLDesc(flags)))
            except libvirt.libvirtError as error:
                if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN_SNAPSHOT:
                    raise
    return found


def current_snapshot(domain: t.Any) -> str | None:
    """The name of the snapshot that the guest's disks stand on; None if there is none."""
    with contextlib.suppress(Unsupported), explained("read the current snapshot of guest", domain.name()):
        try:
            return t.cast(str, domain.snapshotCurrent().getName())
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN_SNAPSHOT:
                raise
    return None


def backup_xml(domain: t.Any) -> str | None:
    """The XML of a running guest's backup job, or None."""
    none = (libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_NO_DOMAIN_BACKUP)
    try:
        return t.cast(str, domain.backupGetXMLDesc()) if domain.isActive() else None
    except libvirt.libvirtError as error:
        if error.get_error_code() in none:
            return None
        raise


def managed_state(connection: Connection, uuid: str) -> tuple[str, ...]:
    """What libvirt stores beside a guest's definition; a kind that the driver does not support is left out."""
    domain = by_uuid(connection, uuid)
    questions = {
        "managed_save": domain.hasManagedSaveImage,
        "snapshots": domain.snapshotNum,
        "checkpoints": domain.listAllCheckpoints,
    }
    kept = []
    for kind, ask in questions.items():
        with contextlib.suppress(Unsupported), explained(f"find the {kind.replace('_', ' ')} of guest", domain.name()):
            if ask():
                kept.append(kind)
    return tuple(kept)


def backup_checkpoints(connection: Connection, uuid: str) -> tuple[str, ...] | None:
    """Names of the guest's checkpoints if all of them are of backups of this collection; None if one is not."""
    domain, flags = by_uuid(connection, uuid), libvirt.VIR_DOMAIN_CHECKPOINT_XML_NO_DOMAIN
    with contextlib.suppress(Unsupported), explained("read the checkpoints of guest", domain.name()):
        found = domain.listAllCheckpoints(libvirt.VIR_DOMAIN_CHECKPOINT_LIST_TOPOLOGICAL)
        ours = all(f"<description>{BACKUP_OF}" in one.getXMLDesc(flags) for one in found)
        return tuple(one.getName() for one in found) if ours else None
    return ()


def committed(connection: Connection, *, but: str) -> tuple[int, int]:
    """MiB and vCPUs of all guests, except `but` (a UUID), that are active or start with the host."""

    def held(domain: t.Any) -> tuple[int, int]:
        _state, most_kib, _now_kib, vcpus, _time = domain.info()
        counts = domain.UUIDString() != but and (domain.isActive() or domain.autostart())
        return (most_kib // 1024, vcpus) if counts else (0, 0)

    found = of_all(connection, held)
    return sum(memory for memory, _vcpus in found), sum(vcpus for _memory, vcpus in found)


def capabilities(connection: Connection) -> str:
    """libvirt's capabilities document."""
    with explained("read capabilities of", connection.getURI()):
        return t.cast(str, connection.getCapabilities())


def node(connection: Connection) -> dict[str, t.Any]:
    """cpus, memory_mib, versions and name of the host."""
    with explained("read", connection.getURI()):
        _model, memory_mib, cpus, mhz, numa_nodes, sockets, cores, threads = connection.getInfo()
        return {
            "hostname": connection.getHostname(),
            "cpus": cpus,
            "cpu_mhz": mhz,
            "sockets": sockets * numa_nodes,
            "cores": cores,
            "threads": threads,
            "memory_mib": memory_mib,
            "libvirt_version": version.text(connection.getLibVersion()),
            "hypervisor_version": version.text(connection.getVersion()),
            "kernel_version": os.uname().release if has_files_here(connection.getURI()) else None,
            "uri": connection.getURI(),
        }


def pools(connection: Connection) -> list[dict[str, t.Any]]:
    """Storage pools with capacity and available space, in bytes."""
    result = []
    with explained("read the storage pools of", connection.getURI()):
        for pool in connection.listAllStoragePools():
            _state, capacity, allocation, available = pool.info()
            result.append(
                {
                    "name": pool.name(),
                    "active": bool(pool.isActive()),
                    "autostart": bool(pool.autostart()),
                    "capacity_bytes": capacity,
                    "allocation_bytes": allocation,
                    "available_bytes": available,
                    "xml": pool.XMLDesc(),
                }
            )
    return result


def libvirt_version(connection: Connection) -> int:
    """The version of libvirt on the host; 9000000 is 9.0.0."""
    with explained("read", connection.getURI()):
        return int(connection.getLibVersion())


def links(connection: Connection) -> tuple[set[str] | None, set[str]]:
    """Bridges (None over a remote connection, as libvirt does not list them) and virtual networks of the host."""
    bridges = None
    if has_files_here(connection.getURI()):
        root = "/sys/class/net"
        bridges = {name for name in os.listdir(root) if os.path.isdir(f"{root}/{name}/bridge")}
    with explained("list the networks of", connection.getURI()):
        return bridges, {item.name() for item in connection.listAllNetworks()}


def ports(bridges: t.Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The network devices on bridges of this machine."""
    found = {}
    for bridge in bridges:
        with contextlib.suppress(OSError):  # it is gone
            found[bridge] = tuple(sorted(os.listdir(f"/sys/class/net/{bridge}/brif")))
    return found


def filters(connection: Connection) -> list[str] | None:
    """Documents of all network filters; None where libvirt was built without them."""
    with contextlib.suppress(NotOffered), explained("list the network filters of", connection.getURI()):
        return [item.XMLDesc() for item in connection.listAllNWFilters()]
    return None
