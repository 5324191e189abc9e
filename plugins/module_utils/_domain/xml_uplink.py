# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What guests of a network are plugged into. With the standard library alone, as little travels to start guests."""

from __future__ import annotations

from xml.etree import ElementTree

from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import Uplink

__all__ = ["uplink"]

_OWN = ("", "nat", "route", "open")  # modes of networks whose bridge libvirt makes


def uplink(network: str) -> Uplink:
    """Of an active network. Nothing where Open vSwitch connects guests, or libvirt gives them devices of their own."""
    root = ElementTree.fromstring(network)  # noqa: S314 (libvirt wrote it)
    forward, bridge = root.find("forward"), root.find("bridge")
    mode = "" if forward is None else forward.get("mode", "nat")
    switched = any(one.get("type") == "openvswitch" for one in root.iter("virtualport"))
    if switched or mode == "hostdev" or root.find("forward/pf") is not None:
        return Uplink()
    if bridge is not None:
        return Uplink(bridge.get("name", ""), is_own=mode in _OWN)
    interfaces = tuple(one.get("dev", "") for one in root.iterfind("forward/interface"))
    return Uplink() if mode in _OWN else Uplink(interfaces=interfaces)
