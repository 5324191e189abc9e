# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What of a guest that exists is not made without a secret: it is taken out of its document, and named."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain import fields_graphics
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_display import beyond_loopback
from ansible_collections.corral.virt.plugins.module_utils._xml import overlay
from ansible_collections.corral.virt.plugins.module_utils._xml.remainder import path_of
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element

__all__ = ["withhold"]

Reasons = dict[Element, str]

_OF_SPICE = "devices/*[@type='spicevmc' or @type='spiceport'] | devices/audio[@type='spice']"
# An argument of QEMU's is half of an option.
_DEVICE = "ancestor-or-self::*[parent::devices] | self::*[local-name()='arg']/.."


def withhold(root: Element, display: Element | None) -> list[dict[str, str]]:
    """Take away what must not be made without a secret, and what hangs on it; say what that is.

    Of the `display` that an option describes without its secret, also which.
    """
    gone = _displays(root)
    gone.update(_of_spice(root, gone))
    for one, why in _with_secrets(root).items():
        gone.setdefault(one, why)
    gone = {one: why for one, why in gone.items() if gone.keys().isdisjoint(one.iterancestors())}
    notes = [_note(one, why, described=one is display) for one, why in gone.items()]
    for one in gone:
        one.getparent().remove(one)
    return notes


def _displays(root: Element) -> Reasons:
    """Displays that would be open to more people than they are."""
    gone = {}
    for display in root.findall("devices/graphics"):
        if display.get("passwd"):
            gone[display] = "it has a password, and would be open without it"
        elif beyond_loopback(fields_graphics.display(display)):
            gone[display] = "others than its host may reach it"
    return gone


def _of_spice(root: Element, gone: Reasons) -> Reasons:
    """Devices that need a display by SPICE, where the last one goes."""
    left = [one for one in root.findall("devices/graphics[@type='spice']") if one not in gone]
    if left or not any(one.get("type") == "spice" for one in gone):
        return {}
    return dict.fromkeys(root.xpath(_OF_SPICE), "it needs a display by SPICE")


def _with_secrets(root: Element) -> Reasons:
    """What holds a secret: the device, where it is part of one."""
    found = {}
    for one in root.iter(t.cast(t.Any, "*")):
        if one.tag != "secret" and overlay.has_secret(one):
            device = one.xpath(_DEVICE)
            found[device[0] if device else one] = "it holds a secret"
    return found


def _note(one: Element, why: str, *, described: bool) -> dict[str, str]:
    return {"path": path_of(one), "why": why, **({"option": "graphics"} if described else {})}
