# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ways to a guest that need no address of its own on the controller's network: its hypervisor, or its agent. Pure."""

from __future__ import annotations

import hashlib
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._inventory.inventory_guests import in_uri

__all__ = ["AGENT_CONNECTION", "agent", "control_path", "jump"]

AGENT_CONNECTION = "community.libvirt.libvirt_qemu"


def jump(user: str, address: str, port: str) -> str:
    """Arguments of ssh that lead through the hypervisor."""
    place = (f"{user}@" if user else "") + in_uri(address) + (f":{port}" if port else "")
    return f"-o {shlex.quote(f'ProxyJump={place}')}"


def control_path(hypervisor: str, uuid: str) -> str:
    """Where ssh keeps a connection for the next command, as Ansible's option of that name wants it.

    Ansible's own path depends on address, port and user, which are the same for guests behind several hypervisors: a
    command for one of them would run in the other.
    """
    place = hashlib.sha256(f"{hypervisor} {uuid}".encode()).hexdigest()[:16]
    return f"%(directory)s/{place}-%%p-%%r"


def agent(name: str, uri: str) -> dict[str, t.Any]:
    """Variables of the connection plugin that runs commands by the guest agent; it knows a guest by its real name."""
    return {"ansible_connection": AGENT_CONNECTION, "ansible_libvirt_uri": uri, "ansible_host": name}
