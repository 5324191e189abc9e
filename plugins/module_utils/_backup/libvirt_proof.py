# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests and networks in libvirt that are made to prove backups."""

from __future__ import annotations

import contextlib

from ansible_collections.corral.virt.plugins.module_utils._backup.plan_prove import Isolate
from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._libvirt import host_memory
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt

_AGENT_S = 5  # an agent that is silent for so long does not answer yet


def memory_free_bytes(connection: Connection) -> int:
    """The memory that new guests could have."""
    with explained("read the memory of", connection.getURI()):
        return host_memory.available_and_total_kib(connection)[0] * 1024


def isolate(connection: Connection, step: Isolate) -> None:
    """Create a network that is gone when the host boots."""
    with explained("create network", step.guest):
        connection.networkCreateXML(step.xml)


def remove_network(connection: Connection, uuid: str) -> None:
    """Remove the network with this UUID, if there is one."""
    with contextlib.suppress(NotFound), explained("find network", uuid):
        network = connection.networkLookupByUUIDString(uuid)
        with explained("remove network", network.name()):
            network.destroy()


def agent_answers(connection: Connection, uuid: str) -> bool:
    """True if the guest's agent answers now."""
    domain = libvirt_query.by_uuid(connection, uuid)
    try:
        domain.agentSetResponseTimeout(_AGENT_S)
        domain.getTime()
    except libvirt.libvirtError:
        return False
    return True
