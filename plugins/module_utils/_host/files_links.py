# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's links, and who configures them."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import shutil
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Unsupported
from ansible_collections.corral.virt.plugins.module_utils._host.model_bridge import (
    RESULT,
    STATE,
    SYSCTL,
    UDEV,
    UNIT,
    BridgeFacts,
    Config,
    Ifupdown,
    Netplan,
    Networkd,
    NmProfiles,
    PortOwner,
    Profile,
    Trial,
)
from ansible_collections.corral.virt.plugins.module_utils._system import configuration
from ansible_collections.corral.virt.plugins.module_utils._system.command import active, answer
from ansible_collections.corral.virt.plugins.module_utils._system.iproute import ip

_INTERFACES = "/etc/network/interfaces"
_EXTERNAL = re.compile(r"^external=true$", re.MULTILINE)  # made by another program, and only shown
_KEYFILES = "/system-connections/"
_IFENSLAVE = ("/etc/network/if-post-down.d/ifenslave", "/etc/NetworkManager/dispatcher.d/01-ifupdown")  # who calls it
_LEASE = re.compile(r"^DHCP.*:(dhcp_client_identifier|dhcp6_client_id|iaid) = ([0-9a-f:]+)$", re.MULTILINE)
_NETPLAN = "/etc/netplan/*.yaml"
_PROC = "/proc/sys/net"
_SYSCTL_PROGRAMS = ("/usr/lib/systemd/systemd-sysctl", "/lib/systemd/systemd-sysctl")
_SBIN = "/usr/sbin:/sbin"


def facts(nf_calls: t.Sequence[str]) -> BridgeFacts:
    """The host's facts that a bridge depends on, whoever configures the links."""
    links = {str(link["ifname"]): link for link in ip("-d", "link", "show")}
    routes = ip("route", "show", "default") + ip("-6", "route", "show", "default")
    programs = filter(os.path.exists, _SYSCTL_PROGRAMS)
    return BridgeFacts(
        host=os.uname().nodename,
        links=links,
        default_routes=tuple(route["dev"] for route in routes if route.get("dev")),
        addresses={link["ifname"]: _global(link) for link in ip("addr", "show")},
        wireless=frozenset(n for n in links if os.path.exists(f"/sys/class/net/{n}/phy80211")),
        filtering=tuple(call for call in nf_calls if _proc(f"bridge/{call}") == "1"),
        files={path: configuration.read(path) for path in (SYSCTL, UDEV)},
        systemd_sysctl=next(programs, _SYSCTL_PROGRAMS[0]),
        trial=trial(),
    )


def owner(port: str) -> PortOwner:
    """Which programs may configure a link."""
    profile = next((one for one in _profiles() if one.device == port), None) if active("NetworkManager") else None
    stanza = re.compile(rf"^\s*iface\s+{re.escape(port)}\s", re.MULTILINE)
    return PortOwner(
        networkmanager=profile is not None and not _EXTERNAL.search(profile.text),
        netplan=profile is not None and os.path.basename(profile.path).startswith("netplan-"),
        network_file=_network_file(port) if active("systemd-networkd") else "",
        ifupdown=any(map(stanza.search, interfaces_files(_INTERFACES).values())),
    )


def config(manager: str, port: str) -> Config:
    """The configuration of a link in its manager's form."""
    return _READERS[manager](port)


def trial() -> Trial | None:
    """The last switch since the boot; None if there was none."""
    running = active(UNIT)  # before its result, which it writes last
    change = configuration.read(f"{STATE}/change.json")
    if not change:
        return None
    result = configuration.read(RESULT)
    bridge = json.loads(change)["bridge"]
    return Trial(bridge, running, json.loads(result) if result else None)


def interfaces_files(path: str, seen: t.Collection[str] = ()) -> dict[str, str]:
    """Texts by path of an interfaces file of ifupdown and all files that it sources, in order."""
    text = configuration.read(path)
    found = {path: text}
    for line in text.splitlines():
        for each in map(os.path.realpath, _sourced(path, line.split())):
            if each not in (*found, *seen):
                found.update(interfaces_files(each, (*found, *seen)))
    return found


def _sourced(path: str, words: t.Sequence[str]) -> list[str]:
    if len(words) < 2 or words[0] not in ("source", "source-directory"):
        return []
    pattern = os.path.join(os.path.dirname(path), words[1])
    if words[0] == "source":
        return sorted(filter(os.path.isfile, glob.glob(pattern)))
    every = sorted(filter(os.path.isfile, glob.glob(f"{pattern}/*")))
    return [one for one in every if re.fullmatch(r"[A-Za-z0-9_-]+", os.path.basename(one))]


def _global(link: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    return tuple(row["local"] for row in link["addr_info"] if row.get("scope") == "global")


def _proc(key: str) -> str:
    with contextlib.suppress(Failed):  # a module that is being unloaded
        return configuration.read(f"{_PROC}/{key}").strip()
    return ""


def _network_file(port: str) -> str:
    status = answer("networkctl", "--no-pager", "status", port)
    match = re.search(r"Network File: (/\S+)", status)
    return match.group(1) if match else ""


def _read_ifupdown(port: str) -> Ifupdown:
    return Ifupdown(
        files=interfaces_files(_INTERFACES),
        disable_ipv6=_proc(f"ipv6/conf/{port}/disable_ipv6"),
        has_brctl=shutil.which("brctl", path=_SBIN) is not None,
        has_vlan=shutil.which("vconfig", path=_SBIN) is not None,
        addrgenmode=next((link["inet6_addr_gen_mode"] for link in ip("-d", "link", "show", "dev", port)), "eui64"),
    )


def _read_networkd(port: str) -> Networkd:
    path = _network_file(port)
    name = os.path.basename(path)
    dropins = sorted(glob.glob(f"{path}.d/*.conf"))
    dropins += sorted(glob.glob(f"/etc/systemd/network/{name}.d/*.conf"))
    text = "\n".join(map(configuration.read, dict.fromkeys([path, *dropins])))
    status = answer("networkctl", "--no-pager", "status", port)
    identity = re.search(r"DHCP4 Client ID: IAID:(0x[0-9a-f]+)", status)
    return Networkd(path, text, int(identity.group(1), 16) if identity else None)


def _read_netplan(_port: str) -> Netplan:
    try:
        import yaml
    except ImportError as error:
        raise Unsupported(
            "cannot read the configuration of netplan: this Python has no PyYAML; install python3-yaml on the host"
        ) from error
    documents = {}
    for path in sorted(glob.glob(_NETPLAN)):
        try:
            documents[path] = yaml.safe_load(configuration.read(path)) or {}
        except yaml.YAMLError as error:
            raise Failed(f"cannot read {path}: {error}; run `netplan generate` to see why") from error
    return Netplan(documents)


def _read_networkmanager(port: str) -> NmProfiles:
    profiles = _profiles()
    routes = ip("route", "show", "dev", port) + ip("-6", "route", "show", "dev", port)
    connected = [row for row in routes if row.get("protocol") == "kernel" and not row["dst"].startswith("fe80:")]
    lease = dict(_LEASE.findall(answer("nmcli", "-t", "-f", "DHCP4,DHCP6", "device", "show", port)))
    iaid = lease.get("iaid", "").replace(":", "")
    return NmProfiles(
        profiles=profiles,
        active=next(one.uuid for one in profiles if one.device == port),
        metric=next((row.get("metric") for row in connected), None),
        client_id=lease.get("dhcp_client_identifier", ""),
        duid=lease.get("dhcp6_client_id", ""),
        iaid=str(int(iaid, 16)) if iaid else "",
        ifenslave=all(os.access(path, os.X_OK) for path in _IFENSLAVE),
    )


def _profiles() -> tuple[Profile, ...]:
    """NetworkManager's profiles, with the texts of those in keyfiles."""
    found = []
    for line in answer("nmcli", "-t", "-f", "UUID,DEVICE,FILENAME", "connection", "show").splitlines():
        uuid, device, path = (re.sub(r"\\(.)", r"\1", word) for word in line.split(":", 2))
        found.append(Profile(uuid, device, path, configuration.read(path) if _KEYFILES in path else ""))
    return tuple(found)


_READERS: dict[str, t.Callable[[str], Config]] = {
    "ifupdown": _read_ifupdown,
    "networkd": _read_networkd,
    "netplan": _read_netplan,
    "networkmanager": _read_networkmanager,
}
