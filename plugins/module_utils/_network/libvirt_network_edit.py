# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes virtual networks, and reads what they depend on."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.uri import has_files_here
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._network.libvirt_network_lookup import NETWORK_TYPE
from ansible_collections.corral.virt.plugins.module_utils._network.model_network import RawNetworkHost
from ansible_collections.corral.virt.plugins.module_utils._noun.libvirt_api import ObjectApi, guests
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Spec
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import NounStep, Update

_COMMANDS = {"add": "ADD_LAST", "modify": "MODIFY", "delete": "DELETE"}


def _update(network: t.Any, step: NounStep) -> None:
    update = t.cast(Update, step)
    command = getattr(libvirt, f"VIR_NETWORK_UPDATE_COMMAND_{_COMMANDS[update.command]}")
    section = getattr(libvirt, f"VIR_NETWORK_SECTION_{update.section}")
    live = libvirt.VIR_NETWORK_UPDATE_AFFECT_LIVE
    network.update(command, section, update.parent, update.xml, live)


def _host(connection: Connection, spec: Spec) -> RawNetworkHost:
    """The host's bridges, other networks, and guests."""
    bridges, _networks = libvirt_query.links(connection)
    with explained("list the networks of", connection.getURI()):
        networks = [
            (item.name(), bool(item.isActive()), item.XMLDesc(0))
            for item in connection.listAllNetworks()
            if item.name() != spec.name
        ]
    return RawNetworkHost(
        None if bridges is None else frozenset(bridges),
        tuple(networks),
        lambda: [(name, len(xmls) > 1, xmls) for name, xmls in guests(connection)],  # one that runs has two
        connection.getLibVersion(),
        libvirt_query.ports(bridges or ()) if has_files_here(connection.getURI()) else {},
    )


API = ObjectApi(NETWORK_TYPE, define="networkDefineXML", own={Update: _update}, host=_host)
