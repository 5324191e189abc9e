# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How each field reaches a running guest. This table alone decides."""

from __future__ import annotations

import collections
import dataclasses
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.list_item import Item
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import (
    EXPRESS,
    PCI,
    Buses,
    Grafted,
    GuestSpec,
    Plug,
    Slot,
)
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_steps

# Which devices cannot come and go while a guest runs, and why: libvirt would refuse them on each run. Pure.

_FIXED_BUSES = ("sata", "ide", "fdc", "sd")
_EXPRESS_CARDS = ("virtio", "virtio-non-transitional", "e1000e", "igb")
_PCI_CARDS = ("virtio-transitional", "e1000", "rtl8139", "ne2k_pci", "pcnet", "vmxnet3")
_EXPRESS_SCSI = ("virtio-scsi", "virtio-non-transitional")
_EITHER = (EXPRESS, PCI)  # only libvirt knows which


def hotplug_obstacles(
    wanted: t.Iterable[tuple[str, bool]], plugs: t.Mapping[str, Plug], buses: Buses | None
) -> dict[str, str]:
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
    """Why a running guest cannot get or lose such a device; None if it can."""
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
    """The free slots and ports while devices are plugged and unplugged."""

    def __init__(self, buses: Buses) -> None:
        self._buses = buses
        self._used = collections.Counter(buses.used)
        self._ports = buses.usb
        self._no_scsi = "" if buses.scsi else "the running guest has no SCSI controller"

    def take(self, plug: Plug) -> str:
        """Give the device a slot if it needs one; returns the reason if there is none, else an empty text."""
        if (plug.what, plug.kind) == ("disk", "scsi"):
            return self._no_scsi
        if _on_usb(plug):
            return self._take_port()
        reason = self._take_slot(plug)
        if (plug.what, plug.kind) == ("controller", "scsi") and self._no_scsi:
            self._no_scsi = reason
        return reason

    def release(self, plug: Plug) -> str:
        """Free the slot or port of the device."""
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


VCPUS, MEMORY, METADATA, ATTACH, UPDATE = "vcpus", "memory", "metadata", "attach", "update"  # live, and by which verb
SCHEDULER, MEMTUNE, IOTUNE, NUMATUNE, PIN = "scheduler", "memory limits", "iotune", "numatune", "pin"
IOTHREADS, LIFECYCLE, STATS = "iothreads", "lifecycle", "balloon statistics"
NEXT_BOOT = "next boot"
FIXED = "fixed"  # for the life of the guest

_SCHEDULER = {
    "vcpus.shares": "cpu_shares",
    **{
        f"vcpus.{ours}{what}_us": f"{theirs}_{what}"
        for ours, theirs in (("", "vcpu"), ("global_", "global"), ("emulator_", "emulator"), ("iothread_", "iothread"))
        for what in ("period", "quota")
    },
}
_MEMTUNE = {f"memory.{limit}_kib": limit for limit in ("hard_limit", "soft_limit", "swap_hard_limit")}
_NUMATUNE = {"numa.nodeset": "numa_nodeset"}

# Verbs that set a value and cannot take one away: what a guest does without it, libvirt decides at the next boot.
_SET_A_VALUE = frozenset(
    {VCPUS, MEMORY, SCHEDULER, MEMTUNE, IOTUNE, NUMATUNE, PIN, IOTHREADS, LIFECYCLE, STATS},
)

_MEDIA = tuple(f"disks[].{option}" for option in ("source", "volume", "url", "network", "startup_policy"))

# Field path (`[]` stands for any item) -> how it applies while the guest runs. What is not here waits for the next
# boot.
POLICY: dict[str, str] = {
    **dict.fromkeys(("title", "description", "tags", "osinfo", "login_user"), METADATA),
    **dict.fromkeys(
        (
            *("ha.mode", "ha.priority", "ha.group", "ha.max_restarts", "ha.monitor_agent"),
            *("ha.colocate", "ha.apart", "ha.prefer"),
        ),
        METADATA,
    ),
    "vcpus.current": VCPUS,
    "memory.current_kib": MEMORY,
    **dict.fromkeys(_SCHEDULER, SCHEDULER),
    **dict.fromkeys(_MEMTUNE, MEMTUNE),
    **dict.fromkeys(_NUMATUNE, NUMATUNE),
    **dict.fromkeys(("vcpus.emulator_cpuset", "vcpus.pinning[]", "vcpus.pinning[].cpuset"), PIN),
    **dict.fromkeys(("vcpus.iothread_pinning[]", "vcpus.iothread_pinning[].cpuset"), PIN),
    "vcpus.iothreads": IOTHREADS,
    **dict.fromkeys(("on_poweroff", "on_reboot", "on_crash"), LIFECYCLE),
    "balloon.stats_period_s": STATS,
    **dict.fromkeys(("disks[]", "interfaces[]", "hostdevs[]", "controllers[]"), ATTACH),
    **dict.fromkeys(_MEDIA, UPDATE),
    "disks[].iotune": IOTUNE,
    **dict.fromkeys(
        (
            "interfaces[].link",
            "interfaces[].bridge",
            "interfaces[].network",
            "interfaces[].type",
            "interfaces[].portgroup",
            "interfaces[].vlan",
            "interfaces[].filterref.name",
            "interfaces[].filterref.parameters",
            "interfaces[].bandwidth",
        ),
        UPDATE,
    ),
    "graphics.password": UPDATE,
    **dict.fromkeys(("firmware", "secure_boot", "loader.path", "loader.type", "loader.secure"), FIXED),
}


def how(where: str) -> str:
    """The policy for the place of a change: its own, or that of the item it belongs to."""
    place = re.sub(r"\[[^\]]*\]", "[]", where)
    return POLICY.get(place) or POLICY.get(re.sub(r"(\[\]\.\w+(\.parameters)?).*", r"\1", place), NEXT_BOOT)


def comes_and_goes(changes: t.Iterable[Change]) -> list[str]:
    """The devices that are plugged or unplugged as a whole."""
    return [change.where for change in changes if how(change.where) == ATTACH]


def updates(wanted: GuestSpec) -> GuestSpec:
    """Only the fields that a device update can carry: libvirt refuses an update with any other in it."""
    lists = {
        option: tuple(_narrowed(item, option) for item in items if item.state == "present")
        for option, items in wanted.fields.items()
        if option in ("disks", "interfaces")
    }
    graphics = {
        key: value
        for key, value in (wanted.graphics or {}).items()
        if key == "type" or how(f"graphics.{key}") == UPDATE
    }
    return dataclasses.replace(wanted, fields=lists, graphics=graphics or None, xml=None)


def _narrowed(item: Item, option: str) -> Item:
    return dataclasses.replace(
        item, fields={f: value for f, value in item.fields.items() if how(f"{option}[x].{f}") == UPDATE}
    )


@dataclasses.dataclass(frozen=True)
class Now:
    """A running guest, and what is wanted of it."""

    wanted: GuestSpec
    running: Grafted  # its document with all wishes in it
    updated: Grafted  # its document with only `updates` in it
    limits: t.Mapping[str, t.Any]  # its fields as they are, and `asked_kib`: what its balloon was asked for in vain
    asked: str = ""  # the record of a guest whose balloon does not follow now
    plugs: t.Mapping[str, Plug] = dataclasses.field(default_factory=dict)  # the devices that come and go, by place
    buses: Buses | None = None


def obstacles(now: Now) -> dict[str, str]:
    """Why devices wait for the next boot although others can be plugged while a guest runs, by device."""
    wanted = [change for change in now.running.changes if change.where in now.plugs]
    ordered = [*reversed([one for one in wanted if _goes(one)]), *(one for one in wanted if not _goes(one))]
    return hotplug_obstacles([(one.where, not _goes(one)) for one in ordered], now.plugs, now.buses)


def _goes(change: Change) -> bool:
    """True if a device is unplugged. That frees its slot, and a disk goes before its controller."""
    return how(change.where) == ATTACH and change.before is not None


Changes = t.Sequence[Change]
Steps = t.Optional["list[plan_guest_steps.GuestStep]"]  # None: waits for the next boot


def live_steps(now: Now, *, record_changed: bool) -> tuple[list[plan_guest_steps.GuestStep], list[str]]:
    """Steps for what the running guest lacks, and the changes that wait for the next boot.

    A changed record must also be in the running guest: a migration takes it from there.
    """
    found: list[plan_guest_steps.GuestStep] = []
    pending: list[str] = []
    grouped: dict[tuple[str, str], list[Change]] = {}
    for change in now.running.changes:
        device, policy = re.match(r"\w+\[[^\]]*\]|graphics", change.where), how(change.where)
        if change.after is None and policy in _SET_A_VALUE:
            pending.append(str(change))
        else:
            grouped.setdefault((policy, device.group() if device else ""), []).append(change)
    waiting = obstacles(now)
    going = [key for key, changes in grouped.items() if _goes(changes[0])]
    for policy, device_name in [*reversed(going), *(key for key in grouped if key not in going)]:
        changes = grouped[policy, device_name]
        waits = policy not in _VERBS or device_name in waiting
        made = None if waits else _VERBS[policy](now, changes, device_name)
        if made is None:
            pending += [str(change) for change in changes]
        else:
            found += [step for step in made if step not in found]
    if record_changed:
        found += [step for step in _metadata(now) if step not in found]
    return found, pending


def _metadata(now: Now, _changes: Changes = (), _device: str = "") -> list[plan_guest_steps.GuestStep]:
    fields = now.wanted.fields
    osinfo = now.running.osinfo if "osinfo" in fields else None
    texts = (fields.get("title"), fields.get("description"))
    return [plan_guest_steps.SetMetadata(now.wanted.name, *texts, now.running.metadata, osinfo)]


def _vcpus(now: Now, _changes: Changes, _device: str) -> Steps:
    """Only more vCPUs, up to the maximum: those a guest was started with cannot be unplugged."""
    count = now.wanted.fields["vcpus.current"]
    if now.limits.get("vcpus.current", 0) < count <= now.limits.get("vcpus.maximum", 0):
        return [plan_guest_steps.SetVcpus(now.wanted.name, count)]
    return None


def _memory(now: Now, _changes: Changes, _device: str) -> Steps:
    """A balloon step; None without a balloon, or if the guest was asked before and did not follow."""
    kib = now.wanted.fields["memory.current_kib"]
    can = kib <= now.limits.get("memory.maximum_kib", 0) and now.limits.get("balloon.model") != "none"
    return (
        [plan_guest_steps.SetMemory(now.wanted.name, kib, now.asked)]
        if can and now.limits.get("asked_kib") != kib
        else None
    )


def _attach(now: Now, changes: Changes, device: str) -> Steps:
    verb = plan_guest_steps.Attach if changes[0].before is None else plan_guest_steps.Detach
    return [verb(now.wanted.name, device, now.running.devices[device])]


def _update(now: Now, changes: Changes, device: str) -> Steps:
    """A device update; None for disks other than removable media, and for a first, last or retyped display.

    A display that gets another type also gets its password then: libvirt finds the running display by its type.
    """
    media = {
        f"disks[{disk['name']}]" for disk in now.limits.get("disks", ()) if disk.get("device") in ("cdrom", "floppy")
    }
    locked = (device.startswith("disks[") and device not in media) or (
        device == "graphics"
        and (
            None in (changes[0].before, changes[0].after)
            or "graphics.type" in {one.where for one in now.running.changes}
        )
    )
    if locked or device not in now.updated.devices:
        return None
    fields = ", ".join(change.option[len(device) + 1 :] for change in changes)
    return [plan_guest_steps.UpdateDevice(now.wanted.name, device, now.updated.devices[device], fields)]


def _parameters(kind: str, names: t.Mapping[str, str]) -> t.Callable[[Now, Changes, str], Steps]:
    def make(now: Now, changes: Changes, _device: str) -> Steps:
        return [
            plan_guest_steps.SetParameters(
                now.wanted.name, kind, {names[change.where]: t.cast(t.Any, change.after) for change in changes}
            )
        ]

    return make


def _iotune(now: Now, _changes: Changes, device: str) -> Steps:
    """All limits of the disk: libvirt resets those that are not passed."""
    found: dict[str, t.Any] = next(
        (disk for disk in now.limits.get("disks", ()) if f"disks[{disk['name']}]" == device), {}
    )
    fields = next((item.fields for item in now.wanted.disks or () if f"disks[{item.name}]" == device), {})
    values = {
        field[len("iotune.") :]: value for field, value in {**found, **fields}.items() if field.startswith("iotune.")
    }
    target = found.get("target")
    return [plan_guest_steps.SetParameters(now.wanted.name, "iotune", values, target=str(target))] if target else None


def _pins(now: Now, changes: Changes, _device: str) -> Steps:
    found: list[plan_guest_steps.GuestStep] = []
    for change in changes:
        which = re.search(r"\[(\d+)\]", change.where)
        numbered = "iothread" if "iothread" in change.where else "vcpu"
        kind, number = (numbered, int(which.group(1))) if which else ("emulator", 0)
        found.append(plan_guest_steps.Pin(now.wanted.name, kind, number, str(change.after)))
    return found


def _iothreads(now: Now, changes: Changes, _device: str) -> Steps:
    return [
        plan_guest_steps.SetIothreads(
            now.wanted.name, int(t.cast(t.Any, changes[0].before) or 0), now.wanted.fields["vcpus.iothreads"]
        )
    ]


def _lifecycle(now: Now, changes: Changes, _device: str) -> Steps:
    return [
        plan_guest_steps.SetLifecycle(now.wanted.name, change.where[len("on_") :], str(change.after))
        for change in changes
    ]


def _stats(now: Now, changes: Changes, _device: str) -> Steps:
    return [plan_guest_steps.SetStatsPeriod(now.wanted.name, int(t.cast(t.Any, changes[0].after)))]


_VERBS: dict[str, t.Callable[[Now, Changes, str], Steps]] = {
    METADATA: _metadata,
    VCPUS: _vcpus,
    MEMORY: _memory,
    ATTACH: _attach,
    UPDATE: _update,
    SCHEDULER: _parameters("scheduler", _SCHEDULER),
    MEMTUNE: _parameters("memory", _MEMTUNE),
    NUMATUNE: _parameters("numa", _NUMATUNE),
    IOTUNE: _iotune,
    PIN: _pins,
    IOTHREADS: _iothreads,
    LIFECYCLE: _lifecycle,
    STATS: _stats,
}
