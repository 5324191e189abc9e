# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Whether a definition holds together after an edit: libvirt would refuse it, or silently make something else of it."""

from __future__ import annotations

import collections
import math
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._model.domain import Grafted, Wanted
from ansible_collections.corral.virt.plugins.module_utils._xml import device, domain, fit, graphics, row
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Values
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, parse

__all__ = ["problems"]

Problems = t.Iterator["tuple[str, str]"]  # place and reason


def problems(before: str, wanted: Wanted, after: Grafted) -> list[str]:
    """Everything that an edit made wrong; what others left there, and nobody touched, is not looked at."""
    changed = {change.where for change in after.changes}
    if not changed:
        return []
    root = parse(after.xml)
    values = row.read(root, domain.DOMAIN)
    found = [*_mirrored(parse(before), changed), *fit.misfits(domain.DOMAIN, wanted.fields, root, changed)]
    for touched, rule in _RULES.items():
        if any(re.match(touched, place) for place in changed):
            found += rule(root, values)
    display = graphics.first(root, (wanted.graphics or {}).get("type"))
    if wanted.graphics and display is not None:
        found += fit.misfits(graphics.GRAPHICS, wanted.graphics, display, changed, "graphics.")
        found += graphics.check(row.read(display, graphics.GRAPHICS))
    return [f"{place} of {wanted.name}: {reason}" for place, reason in found]


def _mirrored(found: Element, changed: t.Collection[str]) -> Problems:
    """An edit of a console that is the first serial port once more would be lost."""
    for console in found.findall("devices/console") if found.find("devices/serial") is not None else ():
        target, place = console.find("target"), f"consoles[{device.PORTS['consoles'].name(console)}]"
        if target is not None and target.get("type") == "serial" and any(one.startswith(place) for one in changed):
            yield place, "this console is the first serial port; say it with serial, or take another port"


def _memory(root: Element, values: Values) -> Problems:
    """libvirt takes the sum of the cells and plugged modules for the guest's memory, whatever stands beside it."""
    cells = [cell["memory_kib"] for cell in values.get("numa.cells", ()) if isinstance(cell.get("memory_kib"), int)]
    total = values.get("memory.maximum_kib")
    if cells and root.find("devices/memory") is None and isinstance(total, int) and sum(cells) != total:
        reason = f"the cells have {sum(cells) // 1024} MiB together, memory.maximum says {total // 1024} MiB; make them equal"
        yield "numa.cells", reason


def _numa(_root: Element, values: Values) -> Problems:
    cells = {cell["id"] for cell in values.get("numa.cells", ())}
    for node in values.get("numa.nodes", ()):
        if node["cell"] not in cells:
            yield f"numa.nodes[{node['cell']}]", "there is no such cell; give it in numa.cells"
    if values.get("numa.mode") and not values.get("numa.nodeset") and values.get("numa.placement") != "auto":
        yield "numa.mode", "it needs the nodes of the host; give numa.nodeset, or numa.placement: auto"


def _firmware(root: Element, values: Values) -> Problems:
    if root.find("os").get("firmware") and values.get("loader.path"):
        yield "loader.path", "libvirt finds the loader for what firmware says; leave out one of the two"


def _video(_root: Element, values: Values) -> Problems:
    model = values.get("video.model")
    if model is None:
        return
    if values.get("video.accel3d") is True and model != "virtio":
        yield "video.accel3d", f"it belongs to video.model virtio, not {model}"
    if values.get("video.heads", 1) > 1 and model not in ("virtio", "qxl"):
        yield "video.heads", f"video.model {model} has one; take virtio or qxl for more"


def _consoles(_root: Element, values: Values) -> Problems:
    ports = [console.get("port") for console in values.get("consoles", ())]
    for place, port in enumerate(ports):
        if port != place:
            yield f"consoles[{port}]", f"libvirt counts consoles from 0 without a gap; give port {place}"


def _vsock(_root: Element, values: Values) -> Problems:
    if values.get("vsock.auto") is True:
        yield "vsock.cid", "libvirt counts it with vsock.auto: true; say false there, or leave out cid"


def _iothreads(root: Element, values: Values) -> Problems:
    named = {thread.get("id") for thread in root.findall("iothreadids/iothread")}
    there = named or {str(number + 1) for number in range(values.get("vcpus.iothreads") or 0)}
    users = [(f"vcpus.iothread_pinning[{pin['iothread']}]", pin["iothread"]) for pin in values.get("vcpus.iothread_pinning", ())]
    users += [(f"disks[{disk['name']}].iothread", disk.get("iothread")) for disk in values.get("disks", ())]
    users += [(f"controllers[{one['type']}-{one['index']}].iothread", one.get("iothread")) for one in values.get("controllers", ())]
    for place, thread in users:
        if thread is not None and str(thread) not in there:
            yield place, f"there is no I/O thread {thread}; the guest has vcpus.iothreads: {len(there)}"


def _topology(_root: Element, values: Values) -> Problems:
    parts = [values.get(f"vcpus.topology.{part}") for part in ("sockets", "dies", "clusters", "cores", "threads")]
    product = math.prod(part or 1 for part in parts)
    if any(parts) and product != values["vcpus.maximum"]:
        yield "vcpus.topology", f"it has {product} vcpus, vcpus.maximum says {values['vcpus.maximum']}; make them equal"


def _pinning(_root: Element, values: Values) -> Problems:
    for pin in values.get("vcpus.pinning", ()):
        if pin["vcpu"] >= values["vcpus.maximum"]:
            yield f"vcpus.pinning[{pin['vcpu']}]", f"the guest has {values['vcpus.maximum']} vcpus, counted from 0"


def _targets(_root: Element, values: Values) -> Problems:
    targets = collections.Counter(disk.get("target") for disk in values.get("disks", ()))
    for disk in values.get("disks", ()):
        if targets[disk.get("target")] > 1:
            yield f"disks[{disk['name']}].target", f"{disk.get('target')} is taken; leave it out, to have one chosen"


def _boot_orders(_root: Element, values: Values) -> Problems:
    devices = [(f"{kind}[{one['name']}]", one.get("boot_order")) for kind in _BOOTABLE for one in values.get(kind, ())]
    orders = collections.Counter(order for _place, order in devices if order)
    for place, order in devices:
        if orders[order] > 1:
            yield f"{place}.boot_order", f"{order} is given twice; number the devices in the order they are tried"


_BOOTABLE = ("disks", "interfaces", "hostdevs")
_RULES: dict[str, t.Callable[[Element, Values], Problems]] = {
    r"memory\.|numa\.cells": _memory,
    r"numa\.": _numa,
    r"firmware|loader\.": _firmware,
    r"video\.": _video,
    r"consoles\[": _consoles,
    r"vsock\.cid": _vsock,
    r"vcpus\.iothread|(disks|controllers)\[": _iothreads,
    r"vcpus\.(pinning|maximum)": _pinning,
    r"vcpus\.(topology|maximum)": _topology,
    r"disks\[": _targets,
    "|".join(rf"{kind}\[" for kind in _BOOTABLE): _boot_orders,
}
