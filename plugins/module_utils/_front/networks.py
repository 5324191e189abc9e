# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Virtual networks as libvirt names them, with what is seen of the network of this machine."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._files import neighbours, ruleset
from ansible_collections.corral.virt.plugins.module_utils._libvirt import network
from ansible_collections.corral.virt.plugins.module_utils._model.network import RawNetworkHost
from ansible_collections.corral.virt.plugins.module_utils._model.uri import has_files_here

__all__ = ["API"]


def _host(connection: t.Any, name: str) -> RawNetworkHost:
    raw: RawNetworkHost = network.API.host(connection, name)
    if not has_files_here(connection.getURI()):
        return raw
    return dataclasses.replace(raw, subnets=neighbours.subnets, ruleset=ruleset.if_any)


API = dataclasses.replace(network.API, host=_host)
