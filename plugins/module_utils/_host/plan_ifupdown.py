# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A port that ifupdown configures: its stanzas move to the bridge, link options stay."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._host.model_bridge import (
    APART,
    TRIAL_INTERFACES,
    Command,
    Ifupdown,
    NetworkChange,
    Vlan,
)

# What belongs to the port itself when its address moves to the bridge.
_OF_THE_LINK = re.compile(r"^\s*(bond|vlan|wpa|ethernet|link|hwaddress|slaves|offload)\b")
_COMMAND = re.compile(r"\bip\b.*\b(route|rule|addr|address|neigh)\b")
_LONGEST = 15  # the kernel's names of links, and labels of addresses
_SOURCES = ("source", "source-directory")
_STANZAS = ("iface", "auto", "mapping", "rename", "template", "no-auto-down", "no-scripts")


def switch(
    port: str, bridge: str, mac: str, config: Ifupdown, *, virtual: bool = False, vlan_filtering: bool = False
) -> NetworkChange:
    """The switch; its trial is one separate file for ifup and ifdown. `virtual`: the port is made by its stanza."""
    lasting: dict[str, str] = {}
    options = bridge_options(port, mac, vlan_filtering=vlan_filtering)
    for path, text in config.files.items():
        with_options = not any(has_stanza(config.files[one], port) for one in lasting)
        after = bridged(text, port, bridge, options if with_options else [], virtual=virtual)
        if after != text:
            lasting[path] = after
    trial = bridged(flat(config.files), port, bridge, options, virtual=virtual)
    aliases = _aliases(config.files.values(), port)
    members = _members(flat(config.files), port)
    moved = tuple(alias.replace(port, bridge, 1) for alias in aliases)
    too_long = [alias for alias in moved if len(alias) > _LONGEST]
    if too_long:
        raise Refused(
            f"cannot create bridge {bridge}: {' and '.join(too_long)} would be longer than {_LONGEST} characters; "
            f"choose a shorter name (bridge_name), or write the addresses of {' and '.join(aliases)} as further "
            f"stanzas of {port}"
        )
    ipv6 = f"net/ipv6/conf/{port}/disable_ipv6={config.disable_ipv6 or '0'}"
    return NetworkChange(
        bridge=bridge,
        port=port,
        manager="ifupdown",
        packages=_packages(config),
        trial={TRIAL_INTERFACES: trial},
        lasting=lasting,
        down=(("ifdown", "--force", *aliases, *members, port), *_same_client(trial, port, bridge)),
        up=((*APART, "ifup", "--force", "-i", TRIAL_INTERFACES, port, *members, bridge, *moved),),
        undo_in_trial=(("ifdown", "--force", "-i", TRIAL_INTERFACES, *moved, bridge, *members, port),),
        undo=(
            ("ip", "link", "delete", bridge),
            ("sysctl", "-w", ipv6),  # bridge-utils switches IPv6 off on ports, and leaves it so
            ("ip", "link", "set", "dev", port, "addrgenmode", config.addrgenmode),  # and no longer gives it an address
        ),
        up_again=((*APART, "ifup", "--force", port, *members, *aliases),),
    )


def switch_on_vlan(vlan: Vlan, bridge: str, config: Ifupdown) -> NetworkChange:
    """The switch; stanzas of the VLAN and the bridge are added, and those of the parent stay as they are."""
    own = f"""
auto {vlan.name}
iface {vlan.name} inet manual
\tvlan-raw-device {vlan.parent}

auto {bridge}
iface {bridge} inet manual
"""
    own += "".join(f"{line}\n" for line in bridge_options(vlan.name))
    own += f"\tup sysctl -q -e -w net/ipv6/conf/{bridge}/disable_ipv6=1\n"
    path, text = next(iter(config.files.items()))
    return NetworkChange(
        bridge=bridge,
        port=vlan.name,
        manager="ifupdown",
        packages=_packages(config, vlan="." not in vlan.name),  # ifupdown makes the others itself
        trial={TRIAL_INTERFACES: flat(config.files) + own},
        lasting={path: text.rstrip("\n") + "\n" + own},
        # Not by force, which configures the parent again; ifenslave would set the members of a bond down.
        up=(("ifup", "-i", TRIAL_INTERFACES, vlan.name, bridge),),
        undo_in_trial=(("ifdown", "-i", TRIAL_INTERFACES, bridge, vlan.name),),
        undo=(("ip", "link", "delete", bridge), ("ip", "link", "delete", vlan.name)),
        holder=vlan.holder,
    )


def _same_client(text: str, port: str, bridge: str) -> tuple[Command, ...]:
    """dhclient keeps its identity with the leases of an interface: the bridge asks for an address as the port did."""
    families = re.findall(rf"^\s*iface\s+{re.escape(bridge)}\s+inet(6?)\s+dhcp\b", text, re.MULTILINE)
    path = "/var/lib/dhcp/dhclient{}.{}.leases"
    return tuple(("cp", path.format(family, port), path.format(family, bridge)) for family in families)


def _packages(config: Ifupdown, *, vlan: bool = False) -> tuple[str, ...]:
    needed = {"bridge-utils": config.has_brctl, "vlan": config.has_vlan or not vlan}
    return tuple(package for package, there in needed.items() if not there)


def _members(text: str, port: str) -> tuple[str, ...]:
    """Links that enter a bond by stanzas of their own (`bond-master`), which ifup of the bond leaves out."""
    found: list[str] = []
    name = ""
    for words in map(str.split, text.splitlines()):
        if words[:1] == ["iface"] and words[1:]:
            name = words[1]
        elif len(words) > 1 and words[0] in ("bond-master", "bond_master") and words[1] == port:
            found.append(name)
    return tuple(dict.fromkeys(found))


def _aliases(texts: t.Iterable[str], port: str) -> tuple[str, ...]:
    """Names such as eth0:1, which configure further addresses of the port, in order."""
    found = [name for text in texts for name in re.findall(r"^\s*iface\s+(\S+)\s", text, re.MULTILINE)]
    return tuple(dict.fromkeys(name for name in found if name.startswith(f"{port}:")))


def _of_port(name: str, port: str) -> bool:
    return name == port or name.startswith(f"{port}:")


def has_stanza(text: str, port: str) -> bool:
    """True if a text configures a link."""
    return bool(re.search(rf"^\s*iface\s+{re.escape(port)}\s", text, re.MULTILINE))


def flat(files: t.Mapping[str, str]) -> str:
    """All files in one text, without `source` lines."""
    lines = [line for text in files.values() for line in text.splitlines()]
    kept = [line for line in lines if line.split()[:1] not in ([word] for word in _SOURCES)]
    return "\n".join(kept) + "\n"


def bridged(text: str, port: str, bridge: str, options: t.Sequence[str], *, virtual: bool = False) -> str:
    """One file after the change; unchanged if it does not mention the port.

    `options` of the bridge; empty if an earlier file has them. A `virtual` port is brought up before the bridge.
    """
    lines: list[str] = []
    kept: list[str] = []
    mine, with_options = False, bool(options)
    for line in text.splitlines():
        words = line.split()
        if words and (words[0] in (*_STANZAS, *_SOURCES) or words[0].startswith("allow-")):
            mine = words[0] == "iface" and len(words) > 1 and _of_port(words[1], port)
            if mine:
                lines.append(f"iface {words[1].replace(port, bridge, 1)} {' '.join(words[2:])}")
                if words[1] == port:
                    lines += options
                    options = []
            else:
                lines.append(_renamed_start(line, words, port, bridge, virtual=virtual))
        elif mine and _OF_THE_LINK.match(line):  # an alias has none
            kept.append(line)
        else:
            lines.append(_renamed_command(line, port, bridge) if mine else line)
    if lines == text.splitlines():
        return text
    ends = has_stanza(text, port) and (with_options or kept)
    manual = ["", f"iface {port} inet manual", *kept] if ends else []
    return "\n".join(("\n".join(lines).rstrip("\n"), *manual)) + "\n"


def bridge_options(port: str, mac: str = "", *, vlan_filtering: bool = False) -> list[str]:
    """The lines of a bridge's stanza."""
    words = [f"ports {port}", "stp off", "fd 0", "maxwait 0", *([f"hw {mac}"] if mac else [])]
    words += ["vlan_aware yes"] if vlan_filtering else []
    trunk = [f"\tup bridge vlan add dev {port} vid 2-4094"] if vlan_filtering else []
    return [*(f"\tbridge_{word}" for word in words), *trunk]


def _renamed_start(line: str, words: t.Sequence[str], port: str, bridge: str, *, virtual: bool) -> str:
    """An `auto` or `allow-` line with the bridge in place of the port; behind it, if its stanza makes the port."""
    if not any(_of_port(word, port) for word in words[1:]) or not (words[0] == "auto" or words[0].startswith("allow-")):
        return line
    # Hotplug would wait for an event that a bridge never sends.
    verb = "auto" if words[0] == "allow-hotplug" else words[0]
    renamed = [word.replace(port, bridge, 1) if _of_port(word, port) else word for word in words[1:]]
    return " ".join([verb, *([port] if virtual and port in words else []), *renamed])


def _renamed_command(line: str, port: str, bridge: str) -> str:
    """A command of the stanza, with the bridge in place of the port if it sets addresses or routes."""
    if not _COMMAND.search(line):
        return line
    return re.sub(rf"(?<![\w.:-]){re.escape(port)}(?=(:\w+)?(?![\w.:-]))", bridge, line)
