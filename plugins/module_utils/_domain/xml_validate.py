# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check that a definition is consistent after an edit: else libvirt would refuse it, or silently change it."""

from __future__ import annotations

import math
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import size_text
from ansible_collections.corral.virt.plugins.module_utils._core.units import cpus_of
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_device, fields_domain, fields_graphics
from ansible_collections.corral.virt.plugins.module_utils._domain.fields_disk import name_of
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Grafted, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._xml import constraints, row
from ansible_collections.corral.virt.plugins.module_utils._xml.names import AGENT_CHANNEL
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Values
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, parse

Problems = t.Iterator["tuple[str, str]"]  # place and reason


def problems(before: str, wanted: GuestSpec, after: Grafted) -> list[str]:
    """Every problem that an edit caused; what others left there, and nobody touched, is not checked."""
    return [f"{place} of {wanted.name}: {reason}" for place, reason in violations(before, wanted, after)]


def violations(before: str, wanted: GuestSpec, after: Grafted) -> list[tuple[str, str]]:
    """The problems as places and reasons."""
    changed = {change.where for change in after.changes}
    if not changed:
        return []
    root = parse(after.xml)
    # Where nothing is said of vcpus, libvirt makes one.
    values = {"vcpus.maximum": 1, **_readable(fields_domain.DOMAIN, row.read(root, fields_domain.DOMAIN))}
    found = [
        *_mirrored(parse(before), root, wanted, changed),
        *_listed_twice(root, wanted),
        *_controllers(root, wanted),
        *_without_usb(root),
        *_without_ide(root),
    ]
    found += constraints.violations(fields_domain.DOMAIN, wanted.fields, root, changed)
    for rule, fields in _RULES.items():
        if any(_touches(place, field) for place in changed for field in fields):
            found += rule(root, values)
    display = fields_graphics.first(root, (wanted.graphics or {}).get("type"))
    if wanted.graphics and display is not None:
        found += constraints.violations(fields_graphics.GRAPHICS, wanted.graphics, display, changed, "graphics.")
        found += fields_graphics.check(row.read(display, fields_graphics.GRAPHICS))
    return found


def recent(wanted: GuestSpec, after: Grafted) -> list[tuple[str, tuple[int, int]]]:
    """The places that an edit wrote and that not every libvirt supports, with the first version that does."""
    changed = {change.where for change in after.changes}
    if not changed:
        return []
    return [
        *constraints.recent(fields_domain.DOMAIN, wanted.fields, changed),
        *constraints.recent(fields_graphics.GRAPHICS, wanted.graphics or {}, changed, "graphics."),
    ]


def _touches(place: str, field: str) -> bool:
    """True if a change is in this field, group or list; `list[]`: if an entry is added or removed."""
    return re.sub(r"\[.*]$", "[]", place) == field or place.startswith((f"{field}.", f"{field}["))


def _readable(table: row.Table, values: Values) -> Values:
    """The values without numbers that no guest can have, and without lists of numbers, which no rule checks."""
    kept = {}
    for field, value in values.items():
        one = table.get(field)
        if isinstance(one, row.Items):
            entries = [_readable(one.table, entry) for entry in value]
            kept[field] = tuple(entry for entry in entries if set(one.keys) <= set(entry))
        elif one is None or not one.kind.ends or _checks(one, value):
            kept[field] = value
    return kept


def _checks(one: row.Row, value: t.Any) -> bool:
    try:
        return one.kind.check(value) is not None
    except ValueError:
        return False


def _listed_twice(root: Element, wanted: GuestSpec) -> Problems:
    """Entries that mean the same device: by its name and its target, or its address."""
    for field, one in fields_domain.DOMAIN.items():
        if not isinstance(one, row.Items) or not wanted.fields.get(field):
            continue
        taken: set[Element | None] = {None}
        index = one.index(root)
        for item in wanted.fields[field]:
            entry = one.entry(index, item)
            if item.state == "present" and entry in taken:
                yield f"{field}[{item.name}]", "another entry means the same device; list it once"
            taken.add(entry)


def _controllers(root: Element, wanted: GuestSpec) -> Problems:
    """Removed controllers that are in use: libvirt would refuse that, or add them again."""
    used = set(_used_controllers(root))
    for item in wanted.fields.get("controllers", ()):
        if item.state == "absent" and item.name in used:
            yield (
                f"controllers[{item.name}]",
                "devices are attached to it, or other controllers follow it; remove those first",
            )


def _without_ide(root: Element) -> Problems:
    """IDE devices on a machine without IDE, which libvirt reports only when the disks are created."""
    machine = str(root.xpath("string(os/type/@machine)"))
    if re.match(r"(pc-)?q35\b|virt\b", machine) is None:
        return
    kind = "virt" if machine.startswith("virt") else "q35"
    reason = f"machine {kind} has no IDE; use bus sata or scsi" + (", or set machine: pc" if kind == "q35" else "")
    for one in root.xpath("devices/disk[target/@bus='ide']"):
        yield f"disks[{name_of(one)}].bus", reason
    for one in root.xpath("devices/controller[@type='ide']"):
        yield f"controllers[ide-{one.get('index', '0')}]", reason


_USB_DEVICES = (
    "devices/disk[target/@bus='usb'] | devices/hub[@type='usb'] | devices/hostdev[@type='usb'] | "
    "devices/input[@bus='usb'] | devices/redirdev[@bus='usb'] | devices/sound[@model='usb'] | "
    "devices/serial[target/@type='usb-serial']"
)
_NO_USB = "devices/controller[@type='usb'][@model='none']"


def _without_usb(root: Element) -> Problems:
    """USB devices on a guest without USB, which libvirt refuses."""
    devices = root.xpath(_USB_DEVICES)
    if devices and root.xpath(_NO_USB):
        kinds = ", ".join(dict.fromkeys(str(one.tag) for one in devices))
        reason = f"model none turns USB off, and the guest is to have devices on USB ({kinds})"
        yield "controllers[usb-0]", f"{reason}; set another model such as qemu-xhci, or choose another bus for them"


def _used_controllers(root: Element) -> t.Iterator[str]:
    """Names of controllers in use. libvirt numbers those of PCI, and those of disks on one bus, without gaps."""
    numbered = [
        ("pci", int(name[4:])) for name, one in fields_device.CONTROLLERS.names(root) if one.get("type") == "pci"
    ]
    for target in root.findall("devices/disk/target"):
        address = target.getparent().find("address")
        numbered.append((str(target.get("bus")), 0 if address is None else int(address.get("controller") or 0)))
    for address in root.findall("devices/*/address"):
        kind = address.get("type")
        if kind == "pci":
            numbered.append((kind, int(address.get("bus") or "0", 16)))
        elif kind in ("virtio-serial", "ccid"):
            yield f"{kind}-{address.get('controller') or 0}"
        elif kind == "usb":
            yield f"usb-{address.get('bus') or 0}"
    for kind, last in dict(sorted(numbered)).items():
        yield from (f"{kind}-{index}" for index in range(last + 1))
    for kind, users in _FIRST_CONTROLLER.items():
        if root.xpath(users):
            yield f"{kind}-0"


# Devices that hang on the first one of a type when they have no address.
_FIRST_CONTROLLER = {
    "virtio-serial": "devices/*[target/@type='virtio'][not(address)]",
    "ccid": "devices/smartcard[not(address)]",
    "usb": "devices/redirdev | devices/hub | devices/hostdev[@type='usb'] | devices/input[@bus='usb']",
}


def _mirrored(found: Element, root: Element, wanted: GuestSpec, changed: t.Collection[str]) -> Problems:
    """Edits of the console that mirrors the first serial port, which would be lost.

    libvirt adds that console if there is none.
    """
    reason = "this console is the first serial port; set it with serial, or use another port"
    consoles = found.findall("devices/console") if found.find("devices/serial") is not None else ()
    for console in consoles:
        target, place = console.find("target"), f"consoles[{fields_device.PORTS['consoles'].name(console)}]"
        if target is not None and target.get("type") == "serial" and any(one.startswith(place) for one in changed):
            yield place, reason
    gone = any(item.name == "0" and item.state == "absent" for item in wanted.fields.get("consoles", ()))
    if gone and not consoles and root.find("devices/serial") is not None:
        yield "consoles[0]", reason


def _memory(root: Element, values: Values) -> Problems:
    """Memory that contradicts the cells: libvirt takes the sum of cells and modules, whatever else is set."""
    cells = [cell["memory_kib"] for cell in values.get("numa.cells", ()) if isinstance(cell.get("memory_kib"), int)]
    total = values.get("memory.maximum_kib")
    if cells and root.find("devices/memory") is None and isinstance(total, int) and sum(cells) != total:
        reason = (
            f"the cells have {size_text(sum(cells))} together, and memory.maximum is {size_text(total)}; make them "
            "equal"
        )
        yield "numa.cells", reason
    most = values.get("memory.hotplug_maximum_kib")
    if isinstance(most, int) and isinstance(total, int) and most < total:
        yield (
            "memory.hotplug_maximum",
            f"{size_text(most)} is below memory.maximum, {size_text(total)}; set more",
        )


def _cells(_root: Element, values: Values) -> Problems:
    """Invalid cells and distances: libvirt 9 writes beyond its memory on a wrong distance."""
    cells = values.get("numa.cells", ())
    ids = [cell["id"] for cell in cells]
    there = set(ids)
    if there != set(range(len(ids))):
        yield "numa.cells", f"cells must be numbered from 0 without gaps, not {', '.join(map(str, ids))}"
    for cell in cells:
        for other in cell.get("distances", ()):
            place = f"numa.cells[{cell['id']}].distances[{other['id']}]"
            if other["id"] not in there:
                yield place, _NO_CELL
            elif (other["id"] == cell["id"]) != (other["value"] == 10):
                yield place, f"10 is the distance of a cell to itself, and to no other, not {other['value']}"
    taken: set[int] = set()
    for cell in cells:
        cpus = cpus_of(cell.get("cpus") or "")
        if cpus & taken or max(cpus, default=0) >= values["vcpus.maximum"]:
            reason = (
                f"each of the {values['vcpus.maximum']} vcpus, numbered from 0, must be in one cell, not {cell['cpus']}"
            )
            yield f"numa.cells[{cell['id']}].cpus", reason
        taken |= cpus


_NO_CELL = "there is no such cell; define it in numa.cells"


def _nodes(_root: Element, values: Values) -> Problems:
    mode, auto, nodes = values.get("numa.mode"), values.get("numa.placement") == "auto", values.get("numa.nodes", ())
    if mode and not values.get("numa.nodeset") and not auto:
        remedy = "set numa.nodeset, or numa.placement: auto; to remove both, set only numa.nodeset: ''"
        yield "numa.mode", f"it requires nodes of the host; {remedy}"
    cells = {cell["id"] for cell in values.get("numa.cells", ())}
    for node in nodes:
        place = f"numa.nodes[{node['cell']}]"
        if node["cell"] not in cells:
            yield place, _NO_CELL
        if auto:
            yield place, "numa.placement: auto chooses the nodes of all cells; set static, or omit numa.nodes"
        if mode == "restrictive" != node.get("mode"):
            yield f"{place}.mode", f"it must be restrictive, as numa.mode is, not {node.get('mode')}"


def _firmware(root: Element, values: Values) -> Problems:
    if root.find("os").get("firmware") and values.get("loader.path"):
        yield "loader.path", "libvirt chooses the loader for firmware; omit one of the two"


def _video(_root: Element, values: Values) -> Problems:
    model = values.get("video.model")
    if model is None:
        return
    if values.get("video.accel3d") is True and model != "virtio":
        yield "video.accel3d", f"it applies to video.model virtio, not {model}"
    if values.get("video.heads", 1) > 1 and model not in ("virtio", "qxl"):
        yield "video.heads", f"video.model {model} has only one; use virtio or qxl for more"


def _consoles(root: Element, values: Values) -> Problems:
    first, consoles = root.find("devices/console/target"), values.get("consoles", ())
    mirrored = root.find("devices/serial") is not None and (first is None or first.get("type") != "serial")
    for place, console in enumerate(consoles, start=1 if mirrored else 0):
        if console.get("port") != place:
            reason = (
                "libvirt numbers consoles without gaps from 0, which is the first serial port if there is one; set "
                f"port {place}"
            )
            yield f"consoles[{console.get('port')}]", reason


def _host_devices(_root: Element, values: Values) -> Problems:
    taken: set[str] = set()
    for kind in ("interfaces", "hostdevs"):
        for one in [one for one in values.get(kind, ()) if one.get("address")]:
            if one["address"] in taken:
                yield (
                    f"{kind}[{one['name']}].address",
                    f"{one['address']} is already assigned to the guest; list it once",
                )
            taken.add(one["address"])


def _boot_order(root: Element, _values: Values) -> Problems:
    if root.find("devices/*/boot") is not None:
        yield "boot.order", "devices have their own boot_order; omit one of the two"


def _vsock(_root: Element, values: Values) -> Problems:
    if values.get("vsock.auto") is True:
        yield "vsock.cid", "libvirt assigns it with vsock.auto: true; set that to false, or omit cid"


def _iothreads(root: Element, values: Values) -> Problems:
    named = {thread.get("id") for thread in root.findall("iothreadids/iothread")}
    there = named or {str(number + 1) for number in range(values.get("vcpus.iothreads") or 0)}
    users = [
        (f"vcpus.iothread_pinning[{pin['iothread']}]", pin["iothread"])
        for pin in values.get("vcpus.iothread_pinning", ())
    ]
    users += [(f"disks[{disk['name']}].iothread", disk.get("iothread")) for disk in values.get("disks", ())]
    users += [
        (f"controllers[{one['type']}-{one['index']}].iothread", one.get("iothread"))
        for one in values.get("controllers", ())
    ]
    for place, thread in users:
        if thread is not None and str(thread) not in there:
            yield place, f"there is no I/O thread {thread}; the guest has vcpus.iothreads: {len(there)}"


def _topology(_root: Element, values: Values) -> Problems:
    parts = [values.get(f"vcpus.topology.{part}") for part in ("sockets", "dies", "clusters", "cores", "threads")]
    product = math.prod(part or 1 for part in parts)
    if any(parts) and product != values["vcpus.maximum"]:
        yield (
            "vcpus.topology",
            f"it has {product} vcpus, and vcpus.maximum is {values['vcpus.maximum']}; make them equal",
        )


def _pinning(_root: Element, values: Values) -> Problems:
    for pin in values.get("vcpus.pinning", ()):
        if pin["vcpu"] >= values["vcpus.maximum"]:
            yield f"vcpus.pinning[{pin['vcpu']}]", f"the guest has {values['vcpus.maximum']} vcpus, numbered from 0"


def _targets(_root: Element, values: Values) -> Problems:
    taken: set[str] = set()
    for disk in [disk for disk in values.get("disks", ()) if disk.get("target")]:
        if disk["target"] in taken:
            yield f"disks[{disk['name']}].target", f"{disk['target']} is already used; omit it to have one chosen"
        taken.add(disk["target"])


def _boot_orders(_root: Element, values: Values) -> Problems:
    taken: set[int] = set()
    for kind in _BOOTABLE:
        for one in [one for one in values.get(kind, ()) if one.get("boot_order")]:
            if one["boot_order"] in taken:
                yield (
                    f"{kind}[{one['name']}].boot_order",
                    f"{one['boot_order']} is already used; number devices in the order in which they are tried",
                )
            taken.add(one["boot_order"])


def _monitored(root: Element, values: Values) -> Problems:
    channel = root.find(f"devices/channel/target[@name='{AGENT_CHANNEL}']")
    if values.get("ha.monitor_agent") and channel is None:
        yield "ha.monitor_agent", f"the guest has no channel {AGENT_CHANNEL}; list it in channels, or set it to false"


_BOOTABLE = ("disks", "interfaces", "hostdevs")
# Each with the fields, groups and lists that it relates: a change of one of them calls for it.
_RULES: dict[t.Callable[[Element, Values], Problems], tuple[str, ...]] = {
    _memory: ("memory", "numa.cells"),
    _cells: ("numa.cells", "vcpus.maximum"),
    _nodes: ("numa",),
    _firmware: ("firmware", "loader"),
    _video: ("video",),
    _consoles: ("consoles", "serials[]", "serial"),
    _host_devices: ("interfaces", "hostdevs"),
    _boot_order: ("boot.order",),
    _vsock: ("vsock.cid",),
    _iothreads: (*(one for one in fields_domain.DOMAIN if one.startswith("vcpus.iothread")), "disks", "controllers"),
    _pinning: ("vcpus.pinning", "vcpus.maximum"),
    _topology: ("vcpus.topology", "vcpus.maximum"),
    _targets: ("disks",),
    _boot_orders: _BOOTABLE,
    _monitored: ("ha.monitor_agent", "channels"),
}
