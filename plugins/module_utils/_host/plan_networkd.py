# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A port that systemd-networkd configures: its .network file goes to the bridge."""

from __future__ import annotations

import posixpath
import re

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._host.model_bridge import (
    NetworkChange,
    Networkd,
    Vlan,
)

_HEAD = "# Written by the role corral.virt.bridge.\n"
_SECTION = re.compile(r"^\s*\[(.+)\]")
_MAC = re.compile(r"^\s*MACAddress\s*=")
_VLAN = re.compile(r"^\s*VLAN\s*=\s*\S")  # devices on the port, which stay on it
_RELOAD = ("networkctl", "reload")
_TRUNK = "\n[BridgeVLAN]\nVLAN=2-4094\n"
_EMPTY = "[Network]\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n"


def switch(port: str, bridge: str, mac: str, config: Networkd, *, vlan_filtering: bool = False) -> NetworkChange:
    """The switch; its trial is in /run, and files of the same names in /etc replace it."""
    _require_text(bridge, port, config)
    of_bridge, of_port = (
        network_of_bridge(config.text, bridge, config.iaid),
        _network_of_port(config.text, port, bridge),
    )
    files = {
        f"05-corral-{bridge}.netdev": _netdev(bridge, mac, vlan_filtering=vlan_filtering),
        f"05-corral-{bridge}.network": f"# As {config.path} for {port}.\n{of_bridge}",
        f"05-corral-{bridge}-{port}.network": of_port + (_TRUNK if vlan_filtering else ""),
    }
    undo = (_RELOAD, ("ip", "link", "delete", bridge), ("networkctl", "reconfigure", port))
    return _change(files, bridge, port, undo)


def switch_on_vlan(vlan: Vlan, bridge: str, mac: str, config: Networkd) -> NetworkChange:
    """The switch; the parent's own file gets a drop-in, or its copy for this link alone if others may share it."""
    _require_text(bridge, vlan.parent, config)
    own, files = posixpath.basename(config.path), {}
    if not _is_of_one(config.text):
        own = f"06-corral-{vlan.parent}.network"
        lines = _without_match(config.text)
        files[own] = "\n".join(
            (f"# As {config.path} for {vlan.parent}.", "[Match]", f"Name={vlan.parent}", "", *lines, "")
        )
    files.update({
        f"05-corral-{vlan.name}.netdev": f"[NetDev]\nName={vlan.name}\nKind=vlan\n\n[VLAN]\nId={vlan.id}\n",
        f"05-corral-{bridge}.netdev": _netdev(bridge, mac),
        f"05-corral-{bridge}.network": f"[Match]\nName={bridge}\n\n{_EMPTY}",
        f"05-corral-{bridge}-{vlan.name}.network": f"[Match]\nName={vlan.name}\n\n[Network]\nBridge={bridge}\n"
        "LinkLocalAddressing=no\n",
        f"{own}.d/corral-{bridge}.conf": f"[Network]\nVLAN={vlan.name}\n",
    })  # fmt: skip
    undo = (
        _RELOAD,
        ("ip", "link", "delete", bridge),
        ("ip", "link", "delete", vlan.name),
        ("networkctl", "reconfigure", vlan.parent),
    )
    return _change(files, bridge, vlan.name, undo, holder=vlan.holder)


def network_of_bridge(text: str, bridge: str, iaid: int | None) -> str:
    """The port's file for the bridge: with another name, and the same DHCP client identity."""
    lines = ["[Match]", f"Name={bridge}", ""]
    lines += [line for line in _without_match(text, _MAC) if not _VLAN.match(line)]
    if iaid is not None:
        lines += ["", "[DHCPv4]", f"IAID={iaid}"]
    return "\n".join(lines) + "\n"


def _network_of_port(text: str, port: str, bridge: str) -> str:
    """The file of the port: what describes the link, such as its MTU and VLANs, stays."""
    section, kept = None, []
    for line in text.splitlines():
        start = _SECTION.match(line)
        section = start.group(1) if start else section
        if section == "Link" and not start:
            kept.append(line)
    vlans = [line for line in text.splitlines() if _VLAN.match(line)]
    link = ["[Link]", *kept, ""] if any(map(str.strip, kept)) else []
    network = ["[Network]", f"Bridge={bridge}", "LinkLocalAddressing=no", *vlans]
    return "\n".join(("[Match]", f"Name={port}", "", *link, *network, ""))


def _without_match(text: str, of_link: re.Pattern[str] | None = None) -> list[str]:
    """The lines of a file without what it matches, and without lines like `of_link` of its section Link."""
    lines, section = [], None
    for line in text.splitlines():
        start = _SECTION.match(line)
        section = start.group(1) if start else section
        if section == "Match" or (of_link and section == "Link" and of_link.match(line)):
            continue
        lines.append(line)
    return lines


def _is_of_one(text: str) -> bool:
    """True if a file matches one link by its name or MAC address."""
    section, matches = None, []
    for line in text.splitlines():
        start = _SECTION.match(line)
        section = start.group(1) if start else section
        if section == "Match" and "=" in line:
            matches.append(re.sub(r"\s", "", line) if len(line.partition("=")[2].split()) == 1 else "")
    return any(re.fullmatch(r"(Name=[\w.-]+|(Permanent)?MACAddress=\S+)", one) for one in matches)


def _netdev(bridge: str, mac: str, *, vlan_filtering: bool = False) -> str:
    filtering = "VLANFiltering=true\n" if vlan_filtering else ""
    return (
        f"[NetDev]\nName={bridge}\nKind=bridge\nMACAddress={mac}\n\n[Bridge]\nSTP=false\nForwardDelaySec=0\n{filtering}"
    )


def _require_text(bridge: str, port: str, config: Networkd) -> None:
    if not config.text.strip():
        raise Refused(
            f"cannot create bridge {bridge}: {config.path}, which configured {port}, is gone; run `networkctl reload` "
            "on the host first"
        )


def _change(
    files: dict[str, str],
    bridge: str,
    port: str,
    undo: tuple[tuple[str, ...], ...],
    *,
    holder: str = "",
) -> NetworkChange:
    return NetworkChange(
        bridge=bridge,
        port=port,
        manager="networkd",
        trial={f"/run/systemd/network/{name}": _HEAD + text for name, text in files.items()},
        lasting={f"/etc/systemd/network/{name}": _HEAD + text for name, text in files.items()},
        up=(_RELOAD,),
        undo=undo,
        reload=(_RELOAD,),
        holder=holder,
    )
