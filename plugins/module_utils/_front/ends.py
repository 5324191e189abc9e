# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What a preflight must know of a host and of a guest: read-only, also over a remote connection."""

from __future__ import annotations

import contextlib
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._libvirt import look
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, libvirt, said
from ansible_collections.corral.virt.plugins.module_utils._model.domain import Found
from ansible_collections.corral.virt.plugins.module_utils._model.move import Guest, Host, Pool
from ansible_collections.corral.virt.plugins.module_utils._xml import caps, tied

__all__ = ["Ends", "cpu_fits", "guest", "host"]


class Ends:
    """Both connections, opened anew when one broke: a verdict needs a fresh look."""

    def __init__(self, source_uri: str, dest_uri: str, open_uri: t.Callable[[str], Connection]) -> None:
        self._uris = {"source": source_uri, "dest": dest_uri}
        self._open, self._known = open_uri, t.cast("dict[str, Connection]", {})

    def _get(self, end: str) -> Connection:
        if end not in self._known or not self._known[end].isAlive():
            self._known[end] = self._open(self._uris[end])
        return self._known[end]

    @property
    def source(self) -> Connection:
        """Where the guest is; raises Failed when it cannot be reached."""
        return self._get("source")

    @property
    def dest(self) -> Connection:
        """Where it is to be; raises Failed when it cannot be reached."""
        return self._get("dest")

    def broken(self, end: str) -> bool:
        """Whether the connection to `source` or `dest` broke since it was used last."""
        return end in self._known and not self._known[end].isAlive()

    def or_none(self, end: str) -> Connection | None:
        """`source` or `dest`, None when it cannot be reached."""
        try:
            return self._get(end)
        except Failed:
            return None


def host(connection: Connection) -> Host:
    """One end."""
    node, known = look.node(connection), caps.host(look.capabilities(connection))
    with said("read", connection.getURI()):
        memory = connection.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS)
        versions = connection.getLibVersion(), connection.getVersion()
        networks = frozenset(network.name() for network in connection.listAllNetworks(libvirt.VIR_CONNECT_LIST_NETWORKS_ACTIVE))
    pools = [(pool, caps.pool(pool["xml"])) for pool in look.pools(connection) if pool["active"]]
    return Host(
        name=node["hostname"],
        uuid=known["uuid"],
        arch=known["arch"],
        libvirt_version=versions[0],
        qemu_version=versions[1],
        # What new guests could have: free memory and what the kernel gives back when asked.
        memory_free_mib=int(sum(memory.get(kind, 0) for kind in ("free", "buffers", "cached"))) // 1024,
        cpu_xml=known["cpu_xml"],
        machines=tuple(known["machines"].get(known["arch"]) or ()),
        virt_types=tuple(known["virt_types"].get(known["arch"]) or ()),
        guests=dict(look.of_all(connection, lambda item: (item.name(), (item.UUIDString(), look.state(item))))),
        pools=tuple(Pool(pool["name"], os.path.normpath(its["path"]), pool["available_bytes"]) for pool, its in pools if its["path"]),
        links=_links(connection),
        networks=networks,
    )


def _links(connection: Connection) -> frozenset[str] | None:
    """Names of the network interfaces; None where libvirt was built without the driver that knows (Debian 13, for one)."""
    with contextlib.suppress(libvirt.libvirtError):
        return frozenset(item.name() for item in connection.listAllInterfaces())
    return None


def guest(connection: Connection, found: Found) -> Guest:
    """The guest that is to move."""
    domain = look.lookup(connection, found.name)
    xml = found.live_xml or found.xml
    with contextlib.suppress(libvirt.libvirtError):
        job = _JOBS.get(domain.jobInfo()[0], "") if found.active else ""
        blocks = [target for target in tied.targets(xml) if found.active and domain.blockJobInfo(target)]
        job = job or (f"a block job on {', '.join(blocks)}" if blocks else "")
    return Guest(name=found.name, uuid=found.uuid, state=found.state, keeps=look.keeps(connection, found.name), job=job, **tied.needs(xml))


_JOBS = {libvirt.VIR_DOMAIN_JOB_BOUNDED: "a job", libvirt.VIR_DOMAIN_JOB_UNBOUNDED: "a job"} if libvirt else {}


def cpu_fits(connection: Connection, its: Host, xml: str) -> str | None:
    """Why the destination cannot give the guest its processor, or None; libvirt compares it feature by feature."""
    cpu, machine, kind = tied.cpu(xml)
    if cpu is None:
        return None
    try:
        answer = connection.compareHypervisorCPU(None, its.arch, machine, kind, cpu, libvirt.VIR_CONNECT_COMPARE_CPU_FAIL_INCOMPATIBLE)
    except libvirt.libvirtError as error:
        incompatible = error.get_error_code() == libvirt.VIR_ERR_CPU_INCOMPATIBLE
        return error.get_error_message().partition(": ")[2] or str(error) if incompatible else None
    return "its processor lacks features" if answer == libvirt.VIR_CPU_COMPARE_INCOMPATIBLE else None
