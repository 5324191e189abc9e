# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A port that ifupdown configures: its stanzas move to the bridge, link options stay."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._host.model_bridge import (
    TRIAL_INTERFACES,
    Ifupdown,
    NetworkChange,
)

__all__ = ["bridged", "flat", "has_stanza", "switch"]

# What belongs to the port itself when its address moves to the bridge.
_OF_THE_LINK = re.compile(r"^\s*(bond|vlan|wpa|ethernet|link|hwaddress|slaves|offload)\b")
_COMMAND = re.compile(r"\bip\b.*\b(route|rule|addr|address|neigh)\b")
_LONGEST = 15  # the kernel's names of links, and labels of addresses
_SOURCES = ("source", "source-directory")
_STANZAS = ("iface", "auto", "mapping", "rename", "template", "no-auto-down", "no-scripts")


def switch(port: str, bridge: str, mac: str, config: Ifupdown) -> NetworkChange:
    """The switch; its trial is one separate file for ifup and ifdown."""
    lasting: dict[str, str] = {}
    for path, text in config.files.items():
        with_options = not any(has_stanza(config.files[one], port) for one in lasting)
        after = bridged(text, port, bridge, mac, with_options=with_options)
        if after != text:
            lasting[path] = after
    trial = bridged(flat(config.files), port, bridge, mac)
    aliases = _aliases(config.files.values(), port)
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
        packages=() if config.has_brctl else ("bridge-utils",),
        trial={TRIAL_INTERFACES: trial},
        lasting=lasting,
        down=(("ifdown", "--force", *aliases, port),),
        up=(("ifup", "--force", "-i", TRIAL_INTERFACES, port, bridge, *moved),),
        undo_in_trial=(("ifdown", "--force", "-i", TRIAL_INTERFACES, *moved, bridge, port),),
        undo=(
            ("ip", "link", "delete", bridge),
            ("sysctl", "-w", ipv6),  # bridge-utils switches IPv6 off on ports, and leaves it so
            ("ifup", "--force", port, *aliases),
        ),
    )


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


def bridged(text: str, port: str, bridge: str, mac: str, *, with_options: bool = True) -> str:
    """One file after the change; unchanged if it does not mention the port.

    `with_options`: no earlier file has the options of the bridge.
    """
    lines: list[str] = []
    kept: list[str] = []
    mine, options = False, _options(port, mac) if with_options else []
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
                lines.append(_renamed_start(line, words, port, bridge))
        elif mine and _OF_THE_LINK.match(line):  # an alias has none
            kept.append(line)
        else:
            lines.append(_renamed_command(line, port, bridge) if mine else line)
    if lines == text.splitlines():
        return text
    ends = has_stanza(text, port) and (with_options or kept)
    manual = ["", f"iface {port} inet manual", *kept] if ends else []
    return "\n".join(("\n".join(lines).rstrip("\n"), *manual)) + "\n"


def _options(port: str, mac: str) -> list[str]:
    words = (f"ports {port}", "stp off", "fd 0", "maxwait 0", f"hw {mac}")
    return [f"\tbridge_{word}" for word in words]


def _renamed_start(line: str, words: t.Sequence[str], port: str, bridge: str) -> str:
    """An `auto` or `allow-` line with the bridge in place of the port."""
    if not any(_of_port(word, port) for word in words[1:]) or not (words[0] == "auto" or words[0].startswith("allow-")):
        return line
    # Hotplug would wait for an event that a bridge never sends.
    verb = "auto" if words[0] == "allow-hotplug" else words[0]
    return " ".join([verb, *(word.replace(port, bridge, 1) if _of_port(word, port) else word for word in words[1:])])


def _renamed_command(line: str, port: str, bridge: str) -> str:
    """A command of the stanza, with the bridge in place of the port if it sets addresses or routes."""
    if not _COMMAND.search(line):
        return line
    return re.sub(rf"(?<![\w.:-]){re.escape(port)}(?=(:\w+)?(?![\w.:-]))", bridge, line)
