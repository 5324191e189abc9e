# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network interfaces of this host."""

from __future__ import annotations

import contextlib
import json
import socket
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._system import command


def names() -> list[str]:
    """Names of all interfaces, including bridges, and their alternative names."""
    found = {name for _index, name in socket.if_nameindex()}
    return sorted(found | other_names(found))


def other_names(interfaces: t.Collection[str]) -> set[str]:
    """Alternative names of these interfaces (`ip link property add`); empty without iproute2."""
    with contextlib.suppress(ValueError):
        links = json.loads(command.answer("ip", "-j", "link", "show") or "[]")
        return {name for link in links if link.get("ifname") in interfaces for name in link.get("altnames", ())}
    return set()
