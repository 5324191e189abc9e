# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The libvirt API of virtual networks, with facts of this machine's network."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.uri import has_files_here
from ansible_collections.corral.virt.plugins.module_utils._network import files_neighbours, libvirt_network_edit
from ansible_collections.corral.virt.plugins.module_utils._network.model_network import RawNetworkHost
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Spec
from ansible_collections.corral.virt.plugins.module_utils._system import ruleset


def _host(connection: t.Any, spec: Spec) -> RawNetworkHost:
    raw: RawNetworkHost = libvirt_network_edit.API.host(connection, spec)
    if not has_files_here(connection.getURI()):
        return raw
    return dataclasses.replace(raw, subnets=files_neighbours.subnets, ruleset=ruleset.if_any)


API = dataclasses.replace(libvirt_network_edit.API, host=_host)
