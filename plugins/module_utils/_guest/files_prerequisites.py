# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find files, network devices and host devices that this machine does not have."""

from __future__ import annotations

import contextlib
import glob
import os
import socket
import typing as t
import uuid
from pathlib import Path

from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import NamedBy
from ansible_collections.corral.virt.plugins.module_utils._storage import files_header

_HOOKS = "/etc/libvirt/hooks"
_OURS = f"{_HOOKS}/qemu.d/50-corral"  # it refuses guests, and sets up nothing


def has_hook(of: str = "qemu") -> bool:
    """True if libvirt runs a hook script before it looks for a guest's devices: the script may set up missing ones."""
    scripts = [f"{_HOOKS}/{of}", *glob.glob(f"{_HOOKS}/{of}.d/*")]
    return any(os.path.isfile(one) and os.access(one, os.X_OK) for one in scripts if one != _OURS)


def missing_paths(paths: t.Iterable[str]) -> frozenset[str]:
    """The absolute paths that lead to nothing. A path that may not be inspected is not included."""
    return frozenset(path for path in paths if os.path.isabs(path) and _is_missing(path))


def names_in(directory: str) -> list[str] | None:
    """The names in a directory; empty if there is none; None if it may not be read."""
    try:
        return os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return None


def missing_links(names: t.Iterable[str]) -> frozenset[str]:
    """The names that no network device has. Alternative names, which only a system call knows, count as names."""
    return frozenset(name for name in names if _is_missing(f"/sys/class/net/{name}") and not _is_alternative(name))


def _is_alternative(name: str) -> bool:
    with contextlib.suppress(OSError):
        return socket.if_nametoindex(name) > 0
    return False


def _is_missing(path: str) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


# Which devices that guests can have for themselves this machine does not have.

_BUSES = "/sys/bus"


def missing_devices(names: t.Iterable[str]) -> frozenset[str]:
    """The host devices that do not exist; `usb 0x1d6b:0x0002` is any device of a kind, `usb 1.2` the one at a place."""
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
    """Two marks of each USB device: (":", vendor, product) and (".", bus, device)."""
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


# Which files that disk images name are not there, as their first bytes tell: no image is opened with QEMU.


def missing_named(images: t.Mapping[str, bool]) -> dict[str, NamedBy]:
    """Missing files that disk images name, by path, each with the qcow2 image that names it. `images` are paths, each
    with True if its backing chain is followed. Images that may not be read are skipped.
    """
    found: dict[str, NamedBy] = {}
    seen: set[str] = set()
    for path, stands in images.items():
        below: str | None = path
        while below and os.path.isabs(below) and below not in seen:
            seen.add(below)
            image, below = below, None
            with contextlib.suppress(VirtError):
                found.update({name: NamedBy(image, True) for name in missing_paths(files_header.data_files(image))})
                below = _below(image, found) if stands or image != path else None
    return found


def _below(image: str, found: dict[str, NamedBy]) -> str | None:
    """The backing file of an image, if it may name files itself: libvirt trusts the format that the image states for
    it.
    """
    names = files_header.bases(image)
    found.update({name: NamedBy(image, False) for name in missing_paths(names)})
    return names[0] if len(names) == 1 and files_header.backing_format(image) == "qcow2" else None
