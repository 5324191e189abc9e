# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Which devices cannot come and go while a guest runs, and why: libvirt would refuse them on each run. Pure."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain.model_hotplug import EXPRESS, PCI, Buses, Plug, Slot

__all__ = ["obstacles"]

_FIXED_BUSES = ("sata", "ide", "fdc", "sd")
_EXPRESS_CARDS = ("virtio", "virtio-non-transitional", "e1000e", "igb")
_PCI_CARDS = ("virtio-transitional", "e1000", "rtl8139", "ne2k_pci", "pcnet", "vmxnet3")
_EXPRESS_SCSI = ("virtio-scsi", "virtio-non-transitional")
_EITHER = (EXPRESS, PCI)  # only libvirt knows which


def obstacles(wanted: t.Iterable[tuple[str, bool]], plugs: t.Mapping[str, Plug], buses: Buses | None) -> dict[str, str]:
    """Why devices cannot be plugged or unplugged now, by device.

    `wanted` names the devices in the order in which that is done, each with whether it is plugged. What is unplugged
    leaves its slot to what comes after it.
    """
    found: dict[str, str] = {}
    left = None if buses is None else _Left(buses)
    for name, plugged in wanted:
        plug = plugs[name]
        reason = _fixed(plug, plugged=plugged)
        if not reason and left is not None:
            reason = left.take(plug) if plugged else left.release(plug)
        if reason:
            found[name] = reason
    return found


def _fixed(plug: Plug, *, plugged: bool) -> str | None:
    """Why a running guest can neither get nor give away such a device."""
    what = None
    if plug.drive == "floppy":
        what = "a floppy drive"
    elif plug.what == "disk" and plug.kind in _FIXED_BUSES:
        what = f"a disk on bus {plug.kind}"
    elif plug.drive == "cdrom" and plug.empty and plugged:
        what = "an empty drive"
    elif plug.what == "controller" and plug.kind != "scsi":
        what = f"a controller of type {plug.kind}"
    verb = "attached to" if plugged else "detached from"
    return what and f"{what} cannot be {verb} a running guest"


class _Left:
    """The slots that are left while devices come and go."""

    def __init__(self, buses: Buses) -> None:
        self._buses = buses
        self._used = collections.Counter(buses.used)
        self._ports = buses.usb
        self._no_scsi = "" if buses.scsi else "the running guest has no SCSI controller"

    def take(self, plug: Plug) -> str:
        """Give the device a slot if it needs one; why there is none."""
        if (plug.what, plug.kind) == ("disk", "scsi"):
            return self._no_scsi
        if _on_usb(plug):
            return self._take_port()
        reason = self._take_slot(plug)
        if (plug.what, plug.kind) == ("controller", "scsi") and self._no_scsi:
            self._no_scsi = reason
        return reason

    def release(self, plug: Plug) -> str:
        """Its slot is free again."""
        if plug.slot is not None:
            self._used[plug.slot] -= 1
        if _on_usb(plug) and self._ports is not None:
            self._ports += 1
        return ""

    def _take_port(self) -> str:
        if self._buses.no_usb:
            return "the running guest has no USB controller"
        if self._ports is None:
            return ""
        self._ports -= 1
        return "the running guest has no free USB port" if self._ports < 0 else ""

    def _take_slot(self, plug: Plug) -> str:
        kinds = _KINDS[plug.what](plug)
        if not kinds:
            return ""
        if not self._buses.express:
            kinds = (PCI,)
        slot = plug.slot or self._free(kinds)
        if slot is None:
            return f"the running guest has no free {' or '.join(kinds)} slot"
        if slot not in self._buses.slots or self._used[slot]:
            return f"the running guest has no free slot {slot[1]} on PCI bus {slot[0]} that takes devices"
        self._used[slot] += 1
        return ""

    def _free(self, kinds: t.Collection[str]) -> Slot | None:
        free = (slot for slot, kind in self._buses.slots.items() if kind in kinds and not self._used[slot])
        return next(free, None)


def _on_usb(plug: Plug) -> bool:
    return plug.kind == "usb" and plug.what in ("disk", "hostdev")


def _of_disk(plug: Plug) -> tuple[str, ...]:
    if plug.kind != "virtio":
        return ()
    return (PCI,) if plug.model == "virtio-transitional" else (EXPRESS,)


def _of_interface(plug: Plug) -> tuple[str, ...]:
    if plug.kind == "hostdev" or plug.model in _EXPRESS_CARDS:
        return (EXPRESS,)
    if plug.model == "usb-net":
        return ()
    return (PCI,) if plug.model in _PCI_CARDS else _EITHER


def _of_hostdev(plug: Plug) -> tuple[str, ...]:
    return {"pci": _EITHER, "mdev": (EXPRESS,), "scsi_host": (EXPRESS,)}.get(plug.kind, ())


def _of_controller(plug: Plug) -> tuple[str, ...]:
    if plug.model in _EXPRESS_SCSI:
        return (EXPRESS,)
    return (PCI,) if plug.model else _EITHER


# The kinds of slots that do for a device of a guest whose root is PCI Express; none where it needs no slot.
_KINDS: dict[str, t.Callable[[Plug], tuple[str, ...]]] = {
    "disk": _of_disk,
    "interface": _of_interface,
    "hostdev": _of_hostdev,
    "controller": _of_controller,
}
