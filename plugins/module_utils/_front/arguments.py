# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A guest that exists (made by hand, by virt-manager, by Salt) as the arguments of `virt_domain` that describe it."""

from __future__ import annotations

import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._front.domain_options import GUEST_OPTIONS, wanted
from ansible_collections.corral.virt.plugins.module_utils._front.options import words
from ansible_collections.corral.virt.plugins.module_utils._plan.display import beyond_loopback
from ansible_collections.corral.virt.plugins.module_utils._xml import domain, graphics, row
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

__all__ = ["arguments"]


def arguments(xml: str, *, autostart: bool) -> dict[str, t.Any]:
    """The options that describe the guest of a definition; said to it they change nothing.

    What no option can say, secrets, and what cannot be told from its like are left out, and so left alone.
    """
    root = parse(xml)
    said = words(domain.DOMAIN, domain.read_fields(xml))
    said["disks"] = [disk for disk in said.get("disks", []) if disk["name"] != "seed"]
    said["interfaces"] = said.get("interfaces", [])
    if "serials" in said:
        said.pop("serial", None)
    # the others are serial ports
    said["consoles"] = [console for console in said.get("consoles", []) if console.get("target")]
    display = graphics.first(root)
    # One that others may reach is left alone: whether it has a password cannot be told here.
    if (
        display is not None
        and display.get("type") in ("vnc", "spice")
        and not beyond_loopback(graphics.display(display))
    ):
        shown = words(graphics.GRAPHICS, row.read(display, graphics.GRAPHICS))
        chosen = ("port", "tls_port") if shown.pop("autoport", False) else ()
        said["graphics"] = {key: value for key, value in shown.items() if value != -1 and key not in chosen}
    return _accepted({"name": root.findtext("name"), **said, "autostart": autostart})


def _accepted(said: dict[str, t.Any]) -> dict[str, t.Any]:
    """Without the options that are refused: libvirt takes what we do not."""
    if _fits(said):
        return said
    fitting: dict[str, t.Any] = {"name": said["name"]}
    for option in sorted(set(said) - {"name"}):
        if _fits({**fitting, option: said[option]}):
            fitting[option] = said[option]
    return fitting


def _fits(said: t.Mapping[str, t.Any]) -> bool:
    result = ArgumentSpecValidator(GUEST_OPTIONS).validate(dict(said))
    try:
        return not result.error_messages and bool(wanted(result.validated_parameters))
    except BadInput:
        return False
