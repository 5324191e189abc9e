# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Which devices that guests can have for themselves this machine does not have."""

from __future__ import annotations

import contextlib
import glob
import os
import typing as t
import uuid
from pathlib import Path

from ansible_collections.corral.virt.plugins.module_utils._guest.files_missing import missing_paths

__all__ = ["missing"]

_BUSES = "/sys/bus"


def missing(names: t.Iterable[str]) -> frozenset[str]:
    """Those of these devices that there are not; `usb 0x1d6b:0x0002` is any of a kind, `usb 1.2` that in a place."""
    if not os.path.isdir(_BUSES):
        return frozenset()
    usb, others = {}, {}
    for name in names:
        bus, _space, place = name.partition(" ")
        with contextlib.suppress(ValueError):  # libvirt says what is wrong with it
            if bus == "usb":
                usb[name] = _usb(place)
            else:
                others[f"{_BUSES}/{bus}/devices/{uuid.UUID(place) if bus == 'mdev' else place}"] = name
    there = _usb_devices() if usb else frozenset()
    gone = frozenset(name for name, mark in usb.items() if mark not in there)
    return gone | {others[path] for path in missing_paths(others)}


def _usb_devices() -> frozenset[tuple[str, int, int]]:
    """Of each USB device, how it is known by its makers' numbers and by its place."""
    found: set[tuple[str, int, int]] = set()
    for device in glob.glob(f"{_BUSES}/usb/devices/*"):
        for mark, base, parts in ((":", 16, ("idVendor", "idProduct")), (".", 10, ("busnum", "devnum"))):
            with contextlib.suppress(OSError, ValueError):
                first, second = (int(Path(device, part).read_text(), base) for part in parts)
                found.add((mark, first, second))
    return frozenset(found)


def _usb(place: str) -> tuple[str, int, int]:
    mark = ":" if ":" in place else "."
    first, second = (int(number, 0) for number in place.split(mark))
    return mark, first, second
