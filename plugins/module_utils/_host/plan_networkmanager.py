# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A port that NetworkManager configures: its profile becomes a port of the bridge, which gets its settings."""

from __future__ import annotations

import configparser
import posixpath
import re
import typing as t
import uuid

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._host.model_bridge import (
    Command,
    NetworkChange,
    NmProfiles,
    Profile,
    Vlan,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_netplan import cloud_init_off

Sections = dict[str, dict[str, str]]
_HEAD = "# Written by the role corral.virt.bridge.\n"
_LASTING, _TRIAL = "/etc/NetworkManager/system-connections", "/run/NetworkManager/system-connections"
_TYPES = ("ethernet", "802-3-ethernet", "vlan", "bond", "team", "veth")
_ETHERNET = ("ethernet", "802-3-ethernet")  # also the names of one section
_OF_THE_NETWORK = ("ipv4", "ipv6", "proxy", "hostname")
_OF_THE_PROFILE = ("id", "uuid", "type", "timestamp", "multi-connect")
_OF_THE_LINK = ("auth-retries", "autoconnect-retries", "lldp", "wait-device-timeout", "mud-url")
_OF_ITS_PORTS = ("autoconnect-slaves", "autoconnect-ports")  # of a bond
_PORTS_TOO = {"autoconnect-slaves": "1"}
_OF_A_PORT = ("master", "controller", "slave-type", "port-type")
_PLACE = ("interface-name", "autoconnect", "permissions")  # the bridge comes up at boot, whoever logs in
_FIRST = "999"  # the highest priority
_START, _RELOAD = ("systemctl", "start", "NetworkManager"), ("nmcli", "connection", "reload")
_EVER = "2147483647"  # seconds; after its time-out, NetworkManager takes all addresses from the link
_INITRD = "nm-initrd-generator"


def switch(port: str, bridge: str, mac: str, config: NmProfiles, *, vlan_filtering: bool = False) -> NetworkChange:
    """The switch; its trial is in /run, where a profile hides one in /etc with the same UUID."""
    active = next(one for one in config.profiles if one.uuid == config.active)
    sections = parsed(active.text)
    problems = _unfit(active, sections, port, bridge, config)
    if problems:
        raise Refused(f"cannot create bridge {bridge}: {'; '.join(problems)}; then run again")
    own = _uuid(bridge, active.uuid)
    of_port = _of_port(sections, port, own, _identity(active, port, bridge))
    of_bridge_too = _of_bridge(sections, port, bridge, own, mac, config)
    if vlan_filtering:
        of_bridge_too["bridge"]["vlan-filtering"] = "true"
        of_port["bridge-port"] = {**of_port.get("bridge-port", {}), "vlans": "2-4094"}
    files = {
        f"corral-{bridge}.nmconnection": _written(of_bridge_too),
        f"corral-{bridge}-{port}.nmconnection": _written(of_port),
    }
    kept = _kept(active)
    of_bridge, of_port_name = files
    others = {_kept(one): _written(_switched_off(one)) for one in config.profiles if _fights(one, active, port, mac)}
    return NetworkChange(
        bridge=bridge,
        port=port,
        manager="networkmanager",
        trial={f"{_TRIAL}/{name}": text for name, text in files.items()},
        lasting={
            f"{_LASTING}/{of_bridge}": files[of_bridge],
            kept or f"{_LASTING}/{of_port_name}": files[of_port_name],
            **{path: text for path, text in others.items() if path},
            **cloud_init_off(active.path),
        },
        up=(_RELOAD, ("nmcli", "--wait", "0", "connection", "up", "uuid", of_port["connection"]["uuid"])),
        reload=(_RELOAD,),
        undo=(_START, _RELOAD, ("ip", "link", "delete", bridge)),
        up_again=_up_again(active, port, config),
        patience=(("nmcli", "device", "modify", port, "ipv4.dhcp-timeout", _EVER, "ipv6.ra-timeout", _EVER),),
    )


def _up_again(active: Profile, port: str, config: NmProfiles) -> tuple[Command, ...]:
    """The commands that bring a port up, with the members of a bond, which may have gone down with it."""
    up = ("connection", "up", "uuid")
    members = [one for one in config.profiles if one.device and _controller(one) in (port, active.uuid)]
    bond = ("nmcli", "--wait", "0" if members else "20", *up, active.uuid, "ifname", port)
    return (bond, *(("nmcli", "--wait", "20", *up, one.uuid) for one in members))


def switch_on_vlan(vlan: Vlan, bridge: str, mac: str, config: NmProfiles) -> NetworkChange:
    """The switch: a profile of the VLAN and one of the bridge; that of the parent stays as it is."""
    problems = _rivals(config, bridge) + _rivals(config, vlan.name)
    if problems:
        raise Refused(f"cannot create bridge {bridge}: {'; '.join(problems)}; then run again")
    of_bridge, of_vlan = _uuid(bridge, config.active), _uuid(f"{bridge}-{vlan.name}", config.active)
    member = {"master": of_bridge, "slave-type": "bridge"}
    profiles: dict[str, Sections] = {
        f"corral-{bridge}.nmconnection": {
            "connection": {"id": bridge, "uuid": of_bridge, "type": "bridge", "interface-name": bridge, **_PORTS_TOO},
            "bridge": {"stp": "false", "forward-delay": "0"},
            "ethernet": {"cloned-mac-address": mac},
            "ipv4": {"method": "disabled"},
            "ipv6": {"method": "disabled"},
        },
        f"corral-{bridge}-{vlan.name}.nmconnection": {
            "connection": {"id": vlan.name, "uuid": of_vlan, "type": "vlan", "interface-name": vlan.name, **member},
            "vlan": {"id": str(vlan.id), "parent": vlan.parent, "flags": "1"},  # 1: its header is at its place
        },
    }
    files = {name: _written(sections) for name, sections in profiles.items()}
    return NetworkChange(
        bridge=bridge,
        port=vlan.name,
        manager="networkmanager",
        trial={f"{_TRIAL}/{name}": text for name, text in files.items()},
        lasting={f"{_LASTING}/{name}": text for name, text in files.items()},
        up=(_RELOAD, ("nmcli", "--wait", "0", "connection", "up", "uuid", of_vlan)),
        reload=(_RELOAD,),
        undo=(_START, _RELOAD, ("ip", "link", "delete", bridge), ("ip", "link", "delete", vlan.name)),
        holder=vlan.holder,
    )


def _uuid(name: str, of: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"corral.virt/{name}/{of}"))


def _controller(profile: Profile) -> str:
    connection = parsed(profile.text).get("connection", {})
    return connection.get("controller") or connection.get("master") or ""


def parsed(text: str) -> Sections:
    """The sections of a keyfile, as GLib reads it."""
    parser = configparser.RawConfigParser(delimiters="=", comment_prefixes="#", strict=False, default_section="")
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string("\n".join(map(str.strip, text.splitlines())))
    return {name: dict(parser[name]) for name in parser.sections()}


def _written(sections: t.Mapping[str, t.Mapping[str, str]]) -> str:
    texts = ("".join(f"{key}={value}\n" for key, value in keys.items()) for keys in sections.values())
    return f"{_HEAD}\n" + "\n".join(f"[{name}]\n{text}" for name, text in zip(sections, texts))


def _unfit(active: Profile, sections: Sections, port: str, bridge: str, config: NmProfiles) -> list[str]:
    """Why the profile cannot move; empty if it can."""
    connection = sections.get("connection", {})
    name = connection.get("id") or active.uuid
    what = f"the NetworkManager profile {name} of {port}"
    problems = []
    if not sections:
        place, mended = f"in {active.path}", f"nmcli connection migrate {active.uuid}"
        if not active.path:
            place = "in no file"
            mended = f"nmcli connection clone {active.uuid} {port}-file && nmcli connection up {port}-file"
        elif active.path.endswith(".nmconnection"):
            place, mended = (
                f"no longer in {active.path}",
                f"nmcli connection modify {active.uuid} connection.autoconnect yes",
            )
        problems.append(f"{what} is {place}, and so in no keyfile; run `{mended}` on the host")
    elif connection.get("type") not in _TYPES:
        problems.append(f"{what} has type {connection.get('type')}; choose a port (bridge_port) of Ethernet")
    if config.ifenslave and connection.get("type") == "bond":
        problems.append(
            f"the package ifenslave deletes {port} each time NetworkManager takes it down, also on the way back; "
            "remove that package, which NetworkManager does not need"
        )
    if "802-1x" in sections:
        problems.append(
            f"{what} uses 802.1X, which admits the host and not its guests; choose another port (bridge_port), "
            "or use a libvirt network of mode nat or route instead of a bridge"
        )
    if sections.get("user", {}).get("org.freedesktop.NetworkManager.origin") == _INITRD:
        problems.append(
            f"{what} comes from the kernel command line at each boot; remove `ip=` and `rd.neednet` from that line, "
            f"give {port} a profile with `nmcli connection add`, and reboot"
        )
    return problems + _rivals(config, bridge)


def _rivals(config: NmProfiles, link: str) -> list[str]:
    """Why a link cannot be made: profiles have its name."""
    return [
        f"NetworkManager has a profile for {link} already, which is not up; run `nmcli connection up "
        f"{one.uuid}` to use it, or `nmcli connection delete {one.uuid}`"
        for one in config.profiles
        if parsed(one.text).get("connection", {}).get("interface-name") == link
    ]


def _kept(profile: Profile) -> str:
    """The file in /etc that replaces a profile's file; empty for one in memory, which a reboot forgets."""
    folder, name = posixpath.split(profile.path)
    if folder == _TRIAL:
        return ""
    return f"{_LASTING}/{name}"


def _identity(active: Profile, port: str, bridge: str) -> dict[str, str]:
    """The name and UUID of the port's profile; others may refer to it, except to one that is only in memory."""
    if _kept(active):
        return {"uuid": active.uuid}
    name = f"{bridge}-{port}"
    return {"id": name, "uuid": _uuid(name, active.uuid)}


def _of_port(sections: Sections, port: str, master: str, identity: t.Mapping[str, str]) -> Sections:
    """The profile as a port: what describes the link stays. Of all profiles of the port, it comes first."""
    kept = (*_OF_THE_PROFILE, *_OF_THE_LINK, *_OF_ITS_PORTS, "stable-id")
    connection = {key: value for key, value in sections["connection"].items() if key in kept}
    own = {"interface-name": port, "autoconnect-priority": _FIRST, "master": master, "slave-type": "bridge"}
    if connection.get("type") in ("bond", "team"):
        own.update(_PORTS_TOO)  # its members go down with it
    links = {name: keys for name, keys in sections.items() if name not in (*_OF_THE_NETWORK, "connection", ".nmmeta")}
    return {"connection": {**connection, **identity, **own}, **links}


def _of_bridge(sections: Sections, port: str, bridge: str, own: str, mac: str, config: NmProfiles) -> Sections:
    """The profile of the bridge: what describes the place in the network, and the identity for a DHCP server."""
    left = (*_OF_THE_PROFILE, *_OF_THE_LINK, *_OF_ITS_PORTS, *_OF_A_PORT, *_PLACE)
    moved = {key: value for key, value in sections["connection"].items() if key not in left}
    connection = {"id": bridge, "uuid": own, "type": "bridge", "interface-name": bridge, **_PORTS_TOO}
    mtu = {key: value for name in _ETHERNET for key, value in sections.get(name, {}).items() if key == "mtu"}
    network = {name: _renamed(sections[name], port, bridge) for name in _OF_THE_NETWORK if name in sections}
    identities = {
        "ipv4": {"dhcp-client-id": config.client_id},
        "ipv6": {"dhcp-duid": config.duid, "dhcp-iaid": config.iaid},
    }
    # What NetworkManager takes for a section that is missing.
    defaults = {"ipv4": {"method": "auto"}, "ipv6": {"method": "auto", "addr-gen-mode": "stable-privacy"}}
    for family, identity in identities.items():
        keys = network.setdefault(family, defaults[family])
        keys.update({key: value for key, value in identity.items() if value})
        if keys.get("route-metric", "-1") == "-1" and config.metric:
            keys["route-metric"] = str(config.metric)  # that of bridges is another one
    return {
        "connection": {**moved, **connection},
        "bridge": {"stp": "false", "forward-delay": "0"},
        "ethernet": {"cloned-mac-address": mac, **mtu},
        **network,
    }


def _renamed(keys: t.Mapping[str, str], port: str, bridge: str) -> dict[str, str]:
    """Settings with the bridge in place of the port, which rules may name."""
    rule = re.compile(rf"(?<=[io]if ){re.escape(port)}(?=\s|$)")
    return {key: rule.sub(bridge, value) if "rule" in key else value for key, value in keys.items()}


def _fights(profile: Profile, active: Profile, port: str, mac: str) -> bool:
    """True if another profile may take the port at boot; a profile that names no link comes after the bridge's."""
    sections = parsed(profile.text)
    connection = sections.get("connection", {})
    macs = [sections.get(name, {}).get("mac-address", "").lower() for name in _ETHERNET]
    names_it = connection.get("interface-name") == port or (connection.get("type") in _ETHERNET and mac in macs)
    return profile.uuid != active.uuid and names_it and connection.get("autoconnect") != "false"


def _switched_off(profile: Profile) -> Sections:
    sections = parsed(profile.text)
    sections["connection"] = {**sections["connection"], "uuid": profile.uuid, "autoconnect": "false"}
    return sections
