# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A port that systemd-networkd configures: its .network file goes to the bridge."""

from __future__ import annotations

import re

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._host.model_bridge import (
    NetworkChange,
    Networkd,
)

__all__ = ["network_of_bridge", "switch"]

_HEAD = "# Written by the role corral.virt.bridge.\n"
_SECTION = re.compile(r"^\s*\[(.+)\]")
_MAC = re.compile(r"^\s*MACAddress\s*=")
_RELOAD = ("networkctl", "reload")


def switch(port: str, bridge: str, mac: str, config: Networkd) -> NetworkChange:
    """The switch; its trial is in /run, and files of the same names in /etc replace it."""
    if not config.text.strip():
        raise Refused(
            f"cannot create bridge {bridge}: {config.path}, which configured {port}, is gone; run `networkctl reload` "
            "on the host first"
        )
    of_bridge = network_of_bridge(config.text, bridge, config.iaid)
    netdev = f"[NetDev]\nName={bridge}\nKind=bridge\nMACAddress={mac}\n"
    of_port = f"[Network]\nBridge={bridge}\nLinkLocalAddressing=no\n"
    files = {
        f"05-corral-{bridge}.netdev": f"{netdev}\n[Bridge]\nSTP=false\nForwardDelaySec=0\n",
        f"05-corral-{bridge}.network": f"# As {config.path} for {port}.\n{of_bridge}",
        f"05-corral-{bridge}-{port}.network": f"[Match]\nName={port}\n\n{of_port}",
    }
    return NetworkChange(
        bridge=bridge,
        port=port,
        manager="networkd",
        trial={f"/run/systemd/network/{name}": _HEAD + text for name, text in files.items()},
        lasting={f"/etc/systemd/network/{name}": _HEAD + text for name, text in files.items()},
        up=(_RELOAD,),
        undo=(_RELOAD, ("ip", "link", "delete", bridge), ("networkctl", "reconfigure", port)),
        reload=(_RELOAD,),
    )


def network_of_bridge(text: str, bridge: str, iaid: int | None) -> str:
    """The port's file for the bridge: with another name, and the same DHCP client identity."""
    lines = ["[Match]", f"Name={bridge}", ""]
    section = None
    for line in text.splitlines():
        start = _SECTION.match(line)
        section = start.group(1) if start else section
        if section == "Match" or (section == "Link" and _MAC.match(line)):
            continue
        lines.append(line)
    if iaid is not None:
        lines += ["", "[DHCPv4]", f"IAID={iaid}"]
    return "\n".join(lines) + "\n"
