# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A port that ifupdown configures: its stanzas move to the bridge, those of the link stay."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._model.bridge import (
    TRIAL_INTERFACES,
    Ifupdown,
    NetworkChange,
)

__all__ = ["bridged", "flat", "has_stanza", "switch"]

# What belongs to the port itself when its address moves to the bridge.
_OF_THE_LINK = re.compile(r"^\s*(bond|vlan|wpa|ethernet|link|hwaddress|slaves|offload)\b")
_COMMAND = re.compile(r"\bip\b.*\b(route|rule|addr|address|neigh)\b")
_SOURCES = ("source", "source-directory")
_STANZAS = ("iface", "auto", "mapping", "rename", "template", "no-auto-down", "no-scripts")


def switch(port: str, bridge: str, mac: str, config: Ifupdown) -> NetworkChange:
    """The trial is one file of its own, which ifup and ifdown are told to read."""
    lasting: dict[str, str] = {}
    for path, text in config.files.items():
        with_options = not any(has_stanza(config.files[one], port) for one in lasting)
        after = bridged(text, port, bridge, mac, with_options=with_options)
        if after != text:
            lasting[path] = after
    trial = bridged(flat(config.files), port, bridge, mac)
    ipv6 = f"net/ipv6/conf/{port}/disable_ipv6={config.disable_ipv6 or '0'}"
    return NetworkChange(
        bridge=bridge,
        port=port,
        manager="ifupdown",
        packages=() if config.has_brctl else ("bridge-utils",),
        trial={TRIAL_INTERFACES: trial},
        lasting=lasting,
        down=(("ifdown", "--force", port),),
        up=(("ifup", "--force", "-i", TRIAL_INTERFACES, port, bridge),),
        undo_in_trial=(("ifdown", "--force", "-i", TRIAL_INTERFACES, bridge, port),),
        undo=(
            ("ip", "link", "delete", bridge),
            ("sysctl", "-w", ipv6),  # bridge-utils switches IPv6 off on ports, and leaves it so
            ("ifup", "--force", port),
        ),
    )


def has_stanza(text: str, port: str) -> bool:
    """Whether a text configures a link."""
    return bool(re.search(rf"^\s*iface\s+{re.escape(port)}\s", text, re.MULTILINE))


def flat(files: t.Mapping[str, str]) -> str:
    """All files in one text, without the lines that source."""
    lines = [line for text in files.values() for line in text.splitlines()]
    kept = [line for line in lines if line.split()[:1] not in ([word] for word in _SOURCES)]
    return "\n".join(kept) + "\n"


def bridged(text: str, port: str, bridge: str, mac: str, *, with_options: bool = True) -> str:
    """One file after the change; unchanged when it does not speak of the port.

    `with_options`: no file before it has the options of the bridge.
    """
    lines: list[str] = []
    kept: list[str] = []
    mine, options = False, _options(port, mac) if with_options else []
    for line in text.splitlines():
        words = line.split()
        if words and (words[0] in (*_STANZAS, *_SOURCES) or words[0].startswith("allow-")):
            mine = words[:2] == ["iface", port]
            if mine:
                lines += [f"iface {bridge} {' '.join(words[2:])}", *options]
                options = []
            else:
                lines.append(_renamed_start(line, words, port, bridge))
        elif mine and _OF_THE_LINK.match(line):
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
    """Which links are brought up at boot."""
    if port not in words[1:] or not (words[0] == "auto" or words[0].startswith("allow-")):
        return line
    # Hotplug would wait for an event that a bridge never sends.
    verb = "auto" if words[0] == "allow-hotplug" else words[0]
    return " ".join([verb, *(bridge if word == port else word for word in words[1:])])


def _renamed_command(line: str, port: str, bridge: str) -> str:
    """A command that runs with the link, when it speaks of addresses and routes."""
    if not _COMMAND.search(line):
        return line
    return re.sub(rf"(?<![\w.:-]){re.escape(port)}(?![\w.:-])", bridge, line)
