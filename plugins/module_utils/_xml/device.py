# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The rows of the other devices that a guest can have several of: ports, channels, passed-through devices, shared folders."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._model.domain import Item
from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml import row
from ansible_collections.corral.virt.plugins.module_utils._xml.interface import PciAddress, Plug
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Flag, Items, Row
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, alias_name, child, make

__all__ = ["CHANNELS", "CONTROLLERS", "FILESYSTEMS", "HOSTDEVS", "INPUTS", "PORT", "PORTS", "settle_port"]

_SERVICE = k.integer(1, 65535)


def _off_is_silent(found: t.Any, wanted: t.Any) -> bool:
    """libvirt does not write what is off anyway."""
    return bool(found) == bool(wanted)


# What a serial port, a console or a channel is connected to on the host.
PORT: row.Table = {
    "type": Row("./@type", k.choice("pty", "file", "dev", "tcp", "unix")),
    "path": Row("source/@path", k.PATH),
    "append": Row("source/@append", k.ONOFF, same=_off_is_silent),
    "mode": Row("source/@mode", k.choice("bind", "connect")),
    "host": Row("source/@host", k.HOST),
    "service": Row("source/@service", _SERVICE),
    "tls": Row("source/@tls", k.YESNO),
    "protocol": Row("protocol/@type", k.choice("raw", "telnet")),
    "log": Row("log/@file", k.PATH),
    "log_append": Row("log/@append", k.ONOFF, same=_off_is_silent),
}
# Which parts belong to which type: the others are left over from another one.
_PARTS = {
    "file": ("path", "append"), "dev": ("path",), "unix": ("path", "mode"), "tcp": ("host", "service", "mode", "tls"), "pty": (),
}  # fmt: skip


def settle_port(device: Element) -> None:
    """A path belongs to a file or socket, an address to TCP; a pty's path is libvirt's to choose."""
    kind, source, protocol = device.get("type"), device.find("source"), device.find("protocol")
    if kind not in _PARTS:
        return
    if kind in ("tcp", "unix") and (source is None or source.get("mode") is None):
        child(device, "source").set("mode", "bind")
    if source is not None:
        for name in ("path", "append", "mode", "host", "service", "tls"):
            if name not in _PARTS[kind]:
                source.attrib.pop(name, None)
        if not source.attrib and not len(source):
            device.remove(source)
    if protocol is not None and kind != "tcp":
        device.remove(protocol)
    elif protocol is None and kind == "tcp":
        make(device, "protocol", type="raw")


def _console(root: Element, item: Item) -> Element | None:
    """A console by its number; the one that is the first serial port only mirrors that, so it is not changed by itself."""
    found = next((one for one in root.findall("devices/console") if PORTS["consoles"].name(one) == item.name), None)
    target = None if found is None else found.find("target")
    if target is not None and target.get("type") == "serial" and root.find("devices/serial") is not None:
        raise BadInput(f"consoles[{item.name}]: this console is the first serial port; say it with serial, or take another port")
    return found


_TARGETS = {
    "serial": k.choice("isa-serial", "usb-serial", "pci-serial", "spapr-vio-serial", "system-serial"),
    "console": k.choice("virtio", "sclp", "sclplm"),
}


def _ports(tag: str, find: t.Callable[[Element, Item], Element | None] | None = None) -> Items:
    table = {"port": Row("target/@port", k.INT), "target": Row("target/@type", _TARGETS[tag]), **PORT}
    return Items(
        f"devices/{tag}", table=table, key="port", find=find, new=_new_port, settle=settle_port, shown=("type", "path", "service")
    )


def _new_port(device: Element, item: Item) -> None:
    device.set("type", item.fields.get("type") or "pty")
    if device.tag == "console":
        make(device, "target", type=item.fields.get("target") or "virtio")


PORTS: dict[str, Items] = {"serials": _ports("serial"), "consoles": _ports("console", _console)}


def _new_channel(device: Element, item: Item) -> None:
    device.set("type", item.fields.get("type") or ("spicevmc" if item.name == "com.redhat.spice.0" else "unix"))
    make(device, "target", type="virtio")


CHANNELS = Items(
    "devices/channel",
    table={
        "name": Row("target/@name", k.matching(r"[A-Za-z0-9_.-]{1,64}", "must be a port name such as org.qemu.guest_agent.0")),
        **PORT,
        "type": Row("./@type", k.choice("unix", "spicevmc", "pty", "file", "tcp")),
    },
    new=_new_channel,
    settle=settle_port,
    shown=("type", "path"),
)

_USB_ID = k.matching(r"0x[0-9a-f]{4}", "must be four hexadecimal digits as lsusb prints them, with 0x: '0x1d6b'")
HOSTDEV: row.Table = {
    "type": Row("./@type", k.choice("pci", "usb")),
    "address": PciAddress("source/address", k.PCI, type="pci"),
    "vendor": Plug("source/vendor/@id", _USB_ID, type="usb"),
    "product": Plug("source/product/@id", _USB_ID, type="usb"),
    "bus": Plug("source/address/@bus", k.integer(1, 255), type="usb"),
    "device": Plug("source/address/@device", k.integer(1, 255), type="usb"),
    "startup_policy": Row("source/@startupPolicy", k.choice("mandatory", "requisite", "optional")),
    "managed": Row("./@managed", k.YESNO),
    "boot_order": Row("boot/@order", k.integer(1, 1000)),
    "rom.bar": Row("rom/@bar", k.ONOFF),
    "rom.file": Row("rom/@file", k.PATH),
}
_IDENTITY = ("address", "vendor", "product", "bus", "device")


def _of_kind(kind: str, fields: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What tells a device of the host from the others, in the words of its kind."""
    names = ("address",) if kind == "pci" else ("vendor", "product", "bus", "device")
    return {name: fields[name] for name in names if fields.get(name) is not None}


def _hostdev_name(device: Element) -> str:
    values = _of_kind(device.get("type"), row.read(device, HOSTDEV))
    return alias_name(device) or f"{device.get('type')}-" + "-".join(map(str, values.values())).replace(":", "-")


def _hostdev(root: Element, item: Item) -> Element | None:
    """The device of that name, or the same device of the host under another one."""
    wanted = _of_kind(item.fields.get("type") or "", item.fields)
    for device in root.findall("devices/hostdev"):
        same = device.get("type") == item.fields.get("type") and _of_kind(device.get("type"), row.read(device, HOSTDEV)) == wanted
        if _hostdev_name(device) == item.name or (same and wanted):
            return device
    return None


def _new_hostdev(device: Element, item: Item) -> None:
    device.set("mode", "subsystem")
    device.set("type", item.fields.get("type") or "pci")
    device.set("managed", "yes")
    make(device, "alias", name=f"ua-{item.name}")
    make(device, "source")


HOSTDEVS = Items(
    "devices/hostdev", table=HOSTDEV, name_of=_hostdev_name, find=_hostdev, new=_new_hostdev, shown=("type", *_IDENTITY)
)  # fmt: skip


def _new_filesystem(device: Element, item: Item) -> None:
    """virtiofs, which needs shared memory, is much the faster; 9p runs everywhere."""
    driver = item.fields.get("driver") or "virtiofs"
    device.set("type", "mount")
    device.set("accessmode", "passthrough" if driver == "virtiofs" else "mapped")
    make(device, "driver", type=driver)


def _settle_filesystem(device: Element) -> None:
    driver, binary = device.find("driver"), device.find("binary")
    if driver is not None and driver.get("type") != "virtiofs":
        driver.attrib.pop("queue", None)
        if binary is not None:
            device.remove(binary)


FILESYSTEMS = Items(
    "devices/filesystem",
    table={
        "name": Row("target/@dir", k.TAG),
        "source": Row("source/@dir", k.PATH),
        "driver": Row("driver/@type", k.choice("virtiofs", "path")),
        "accessmode": Row("./@accessmode", k.choice("passthrough", "mapped", "squash")),
        "readonly": Flag("readonly", k.ONOFF),
        "queue": Row("driver/@queue", k.integer(1, 1024)),
        "binary": Row("binary/@path", k.PATH),
        "xattr": Row("binary/@xattr", k.ONOFF),
        "cache": Row("binary/cache/@mode", k.choice("none", "always")),
    },
    new=_new_filesystem,
    settle=_settle_filesystem,
    needed=("source",),
    shown=("source",),
)


def _joined(first: str, second: str) -> t.Callable[[Element], str]:
    return lambda device: f"{device.get(first) or ''}-{device.get(second) or ''}"


def _new_input(device: Element, item: Item) -> None:
    device.set("type", item.name.partition("-")[0])
    device.set("bus", item.name.partition("-")[2] or "usb")


INPUTS = Items(
    "devices/input",
    parts={"type": k.choice("tablet", "mouse", "keyboard"), "bus": k.choice("ps2", "usb", "virtio")},
    name_of=_joined("type", "bus"),
    new=_new_input,
)


def _new_controller(device: Element, item: Item) -> None:
    device.set("type", item.name.partition("-")[0])
    device.set("index", item.name.partition("-")[2])


CONTROLLERS = Items(
    "devices/controller",
    parts={"type": k.choice("scsi", "usb", "virtio-serial", "sata", "pci", "ide", "fdc", "ccid"), "index": k.integer(0, 255)},
    table={
        "model": Row("./@model", k.WORD),
        "queues": Row("driver/@queues", k.integer(1, 1024)),
        "iothread": Row("driver/@iothread", k.integer(1)),
        "max_sectors": Row("driver/@max_sectors", k.integer(1)),
        "ports": Row("./@ports", k.integer(1, 64)),
        "vectors": Row("./@vectors", k.integer(0, 64)),
    },
    name_of=_joined("type", "index"),
    new=_new_controller,
    shown=("model",),
)
