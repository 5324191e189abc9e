# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide whether a guest's screen may be reached over the network. Pure."""

from __future__ import annotations

import ipaddress
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._domain.model_display import Display, DisplayDefaults
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import GuestSpec

__all__ = ["beyond_loopback", "check"]

_LOOPBACK = "127.0.0.1"  # where libvirt lets displays listen unless it is told otherwise
_TLS = {"vnc": "vnc_tls in qemu.conf (hypervisor_qemu_conf)", "spice": "graphics.tls: true"}


def check(
    wanted: GuestSpec,
    before: t.Collection[Display],
    after: t.Sequence[Display],
    ask: t.Callable[[], DisplayDefaults],
) -> list[str]:
    """Warnings about displays that anybody can use who reaches their port.

    Asks the host for its defaults only where they matter. Raises Refused where the task is about such a display.
    """
    exposed = [display for display in after if not all(map(_is_loopback, display.listens))]
    if wanted.allow_unprotected or not exposed:
        return []
    defaults, notes = ask(), list[str]()
    for display in exposed:
        places = [place for place in _places(display, defaults) if not _is_loopback(place)]
        if not places or display.password or display.tls or display.type in defaults.protected:
            continue
        what = f"{display.type} of {wanted.name} on {' and '.join(places)} has neither password nor TLS"
        remedy = (
            f"set graphics.listen: {_LOOPBACK} and use a tunnel (ssh -L), or graphics.password, or "
            f"{_TLS[display.type]}, or graphics.allow_unprotected: true"
        )
        if display not in before or display is _mentioned(wanted, after):
            raise Refused(
                f"cannot open graphics: {what}, so whoever reaches its port has the guest's screen and keyboard; "
                f"{remedy}"
            )
        notes.append(f"{what}: whoever reaches its port has the guest's screen and keyboard; {remedy}")
    return notes


def beyond_loopback(display: Display) -> bool:
    """Whether its own words let others than this host reach it."""
    return not all(map(_is_loopback, _places(display, DisplayDefaults())))


def _mentioned(wanted: GuestSpec, after: t.Sequence[Display]) -> Display | None:
    """The display that the task speaks of: that of its type, else the first."""
    if wanted.graphics is None:
        return None
    kind = wanted.graphics.get("type")
    return next((display for display in after if kind in (None, display.type)), None)


def _places(display: Display, defaults: DisplayDefaults) -> list[str]:
    return [place or defaults.listen.get(display.type, _LOOPBACK) for place in display.listens]


def _is_loopback(place: str) -> bool:
    try:
        return ipaddress.ip_address(place).is_loopback
    except ValueError:
        return place == "localhost"
