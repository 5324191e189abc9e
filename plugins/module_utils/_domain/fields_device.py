# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of devices that a guest can have several of: ports, channels, passed-through devices, shared folders."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.list_item import Item
from ansible_collections.corral.virt.plugins.module_utils._domain.fields_interface import (
    PciAddress,
    PlugRow,
    forget_source,
)
from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml import row
from ansible_collections.corral.virt.plugins.module_utils._xml.row import ANY, Flag, Items, Mark, Row, silent_is
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, alias_name, make

_SERVICE = k.integer(1, 65535)


# What a serial port, a console or a channel is connected to on the host.
PORT: row.Table = {
    "type": Row("./@type", k.choice("pty", "file", "dev", "tcp", "unix", "null")),
    "path": Row(
        "source/@path",
        k.PATH,
        valid_with={"type": ("file", "dev", "unix")},
        required_with={"type": ("file", "dev", "unix")},
    ),
    "append": Row("source/@append", k.ONOFF, same=silent_is(False), valid_with={"type": ("file",)}),
    "mode": Row("source/@mode", k.choice("bind", "connect"), valid_with={"type": ("unix", "tcp")}),
    "host": Row("source/@host", k.HOST, valid_with={"type": ("tcp",)}, required_with={"type": ("tcp",)}),
    "service": Row("source/@service", _SERVICE, valid_with={"type": ("tcp",)}, required_with={"type": ("tcp",)}),
    "tls": Row("source/@tls", k.YESNO, valid_with={"type": ("tcp",)}),
    "protocol": Row("protocol/@type", k.choice("raw", "telnet"), valid_with={"type": ("tcp",)}),
    "log": Row("log/@file", k.PATH),
    "log_append": Row("log/@append", k.ONOFF, same=silent_is(False), valid_with={"log": ANY}),
}


def normalise_port(device: Element) -> None:
    """Set the defaults: a socket is bound, and TCP is raw."""
    kind, source = device.get("type"), device.find("source")
    if source is not None and source.get("mode") is None and (source.get("path") if kind == "unix" else kind == "tcp"):
        source.set("mode", "bind")
    if kind == "tcp" and device.find("protocol") is None:
        make(device, "protocol", type="raw")


_TARGETS = {
    "serial": k.choice("isa-serial", "usb-serial", "pci-serial", "spapr-vio-serial", "system-serial"),
    "console": k.choice("virtio", "sclp", "sclplm"),
}


def _ports(tag: str) -> Items:
    table = {"port": Row("target/@port", k.INT), "target": Row("target/@type", _TARGETS[tag]), **PORT}
    return Items(
        f"devices/{tag}",
        table=table,
        key="port",
        new=_new_port,
        normalise=normalise_port,
        shown=("type", "path", "service"),
    )


def _new_port(device: Element, item: Item) -> None:
    device.set("type", item.fields.get("type") or "pty")
    if device.tag == "console":
        make(device, "target", type=item.fields.get("target") or "virtio")


PORTS: dict[str, Items] = {"serials": _ports("serial"), "consoles": _ports("console")}


def _new_channel(device: Element, item: Item) -> None:
    device.set("type", item.fields.get("type") or ("spicevmc" if item.name == "com.redhat.spice.0" else "unix"))
    make(device, "target", type="virtio")


def _check_channel(_element: Element, values: row.Values) -> t.Iterator[str]:
    if values.get("type") == "unix" and values.get("mode") and not values.get("path"):
        yield "mode requires path; set path, or leave both to libvirt"


CHANNELS = Items(
    "devices/channel",
    table={
        "name": Row(
            "target/@name", k.matching(r"[A-Za-z0-9_.-]{1,64}", "must be a port name such as org.qemu.guest_agent.0")
        ),
        **PORT,
        "type": Row("./@type", k.choice("unix", "spicevmc", "qemu-vdagent", "pty", "file", "dev", "tcp", "null")),
        "path": dataclasses.replace(
            PORT["path"], required_with={"type": ("file", "dev")}
        ),  # libvirt finds one for a socket
    },
    new=_new_channel,
    normalise=normalise_port,
    check=_check_channel,
    shown=("type", "path"),
)

_USB_ID = k.matching(r"0x[0-9a-f]{4}", "must be four hexadecimal digits as lsusb prints them, with 0x: '0x1d6b'")
_PCI, _USB = {"type": ("pci",)}, {"type": ("usb",)}
HOSTDEV: row.Table = {
    "type": Row("./@type", k.choice("pci", "usb"), on_change=forget_source),
    "address": PciAddress("source/address", k.PCI, valid_with=_PCI, required_with=_PCI),
    "vendor": PlugRow("source/vendor/@id", _USB_ID, valid_with={**_USB, "product": ANY}),
    "product": PlugRow("source/product/@id", _USB_ID, valid_with={**_USB, "vendor": ANY}),
    "bus": PlugRow("source/address/@bus", k.integer(1, 255), valid_with={**_USB, "device": ANY}),
    "device": PlugRow("source/address/@device", k.integer(1, 255), valid_with={**_USB, "bus": ANY}),
    "startup_policy": Row("source/@startupPolicy", k.choice("mandatory", "requisite", "optional"), valid_with=_USB),
    "managed": Row("./@managed", k.YESNO),
    "boot_order": Row("boot/@order", k.integer(1, 1000)),
    "rom.bar": Row("rom/@bar", k.ONOFF, valid_with=_PCI),
    "rom.file": Row("rom/@file", k.PATH, valid_with=_PCI),
}
_IDENTITY = ("address", "vendor", "product", "bus", "device")


def _kind_of(fields: t.Mapping[str, t.Any]) -> str:
    """The type of a host device, given or inferred from how it is identified."""
    return fields.get("type") or ("pci" if not any(fields.get(name) for name in _IDENTITY[1:]) else "usb")


def _of_kind(kind: str, fields: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The fields that identify a host device, for its type."""
    names = _IDENTITY[:1] if kind == "pci" else _IDENTITY[1:]
    return {name: fields[name] for name in names if fields.get(name) is not None}


def _hostdev_name(device: Element) -> str:
    values = _of_kind(device.get("type"), row.read(device, HOSTDEV))
    own = "-".join(map(str, values.values())).replace(":", "-").replace(".", "-")
    return alias_name(device) or f"{device.get('type')}-{own}"


def _hostdev_marks(device: Element) -> t.Iterator[Mark]:
    """The host device that an element passes through, whatever its name."""
    kind = device.get("type")
    yield kind, tuple(_of_kind(kind, row.read(device, HOSTDEV)).items())


def _hostdev_sought(item: Item) -> t.Iterator[Mark]:
    kind = _kind_of(item.fields)
    values = tuple(_of_kind(kind, item.fields).items())
    if values:
        yield kind, values


def _new_hostdev(device: Element, item: Item) -> None:
    device.set("mode", "subsystem")
    device.set("type", _kind_of(item.fields))
    device.set("managed", "yes")
    make(device, "alias", name=f"ua-{item.name}")
    make(device, "source")


def _check_hostdev(_element: Element, values: row.Values) -> t.Iterator[str]:
    if values.get("type") == "usb" and not {"vendor", "bus"} & set(values):
        yield "a USB device is identified by vendor and product, or by bus and device; set them as lsusb prints them"


HOSTDEVS = Items(
    "devices/hostdev",
    table=HOSTDEV,
    name_of=_hostdev_name,
    marks=_hostdev_marks,
    sought=_hostdev_sought,
    new=_new_hostdev,
    check=_check_hostdev,
    shown=("type", *_IDENTITY),
)


class Driver(Row):
    """The driver of a shared folder; without one it is path (9p)."""

    def read(self, element: Element) -> t.Any:
        """virtiofs or path; None for other types."""
        return super().read(element) or ("path" if element.get("type") == "mount" else None)


def _new_filesystem(device: Element, item: Item) -> None:
    """Default to virtiofs, which needs shared memory and is much faster; path (9p) runs everywhere."""
    driver = item.fields.get("driver") or "virtiofs"
    device.set("type", "mount")
    device.set("accessmode", "passthrough" if driver == "virtiofs" else "mapped")
    make(device, "driver", type=driver)


def _forget_access(device: Element) -> None:
    """Remove accessmode: each driver has its own values."""
    device.attrib.pop("accessmode", None)


def _check_filesystem(_element: Element, values: row.Values) -> t.Iterator[str]:
    if values.get("driver") == "virtiofs" and values.get("accessmode", "passthrough") != "passthrough":
        yield (
            f"driver virtiofs supports accessmode passthrough only, not {values['accessmode']}; omit it, or set "
            "driver: path"
        )


_VIRTIOFS = {"driver": ("virtiofs",)}
FILESYSTEMS = Items(
    "devices/filesystem",
    table={
        "name": Row("target/@dir", k.TAG),
        "source": Row("source/@dir", k.PATH),
        "driver": Driver("driver/@type", k.choice("virtiofs", "path"), on_change=_forget_access),
        "accessmode": Row("./@accessmode", k.choice("passthrough", "mapped", "squash")),
        "readonly": Flag("readonly", k.ONOFF),
        "queue": Row("driver/@queue", k.integer(1, 1024), valid_with=_VIRTIOFS, since=(6, 2)),
        "binary": Row("binary/@path", k.PATH, valid_with=_VIRTIOFS, since=(6, 2)),
        "xattr": Row("binary/@xattr", k.ONOFF, valid_with=_VIRTIOFS, since=(6, 2)),
        "cache": Row("binary/cache/@mode", k.choice("none", "always"), valid_with=_VIRTIOFS, since=(6, 2)),
    },
    new=_new_filesystem,
    check=_check_filesystem,
    needed=("source",),
    shown=("source",),
)


def _joined(first: str, second: str) -> t.Callable[[Element], str]:
    return lambda device: f"{device.get(first) or ''}-{device.get(second) or ''}"


def _new_input(device: Element, item: Item) -> None:
    device.set("type", item.name.partition("-")[0])
    device.set("bus", item.name.partition("-")[2] or "usb")


def _check_input(_element: Element, values: row.Values) -> t.Iterator[str]:
    if (values["type"], values["bus"]) == ("tablet", "ps2"):
        yield "a tablet must be on bus usb or virtio, not ps2"


INPUTS = Items(
    "devices/input",
    parts={"type": k.choice("tablet", "mouse", "keyboard"), "bus": k.choice("ps2", "usb", "virtio")},
    name_of=_joined("type", "bus"),
    new=_new_input,
    check=_check_input,
)


class Controllers(Items):
    """Controllers, identified by type and index; without an index, libvirt counts them."""

    def name(self, element: Element) -> str:
        """The name of a controller: type and index."""
        return next(name for name, found in self.names(element.getparent().getparent()) if found is element)

    def names(self, root: Element) -> list[tuple[str, Element]]:
        """All controllers with their names, counted by type."""
        before: dict[str, int] = {}
        found = []
        for device in self.elements(root):
            kind = str(device.get("type"))
            found.append((f"{kind}-{device.get('index') or before.get(kind, 0)}", device))
            before[kind] = before.get(kind, 0) + 1
        return found


def _new_controller(device: Element, item: Item) -> None:
    kind, _dash, index = item.name.rpartition("-")
    device.set("type", kind)
    device.set("index", index)


_MODELS = {
    "scsi": (
        "virtio-scsi",
        "virtio-transitional",
        "virtio-non-transitional",
        "lsilogic",
        "lsisas1068",
        "lsisas1078",
        "vmpvscsi",
        "ibmvscsi",
        "ncr53c90",
        "dc390",
        "am53c974",
    ),
    "usb": (
        "qemu-xhci",
        "nec-xhci",
        "piix3-uhci",
        "piix4-uhci",
        "ehci",
        "ich9-ehci1",
        "ich9-uhci1",
        "ich9-uhci2",
        "ich9-uhci3",
        "vt82c686b-uhci",
        "pci-ohci",
        "none",
    ),
    "pci": (
        "pcie-root-port",
        "pcie-to-pci-bridge",
        "pci-bridge",
        "dmi-to-pci-bridge",
        "pcie-switch-upstream-port",
        "pcie-switch-downstream-port",
        "pci-expander-bus",
        "pcie-expander-bus",
        "pci-root",
        "pcie-root",
    ),
    "virtio-serial": ("virtio", "virtio-transitional", "virtio-non-transitional"),
    "ide": ("piix3", "piix4", "ich6"),
}
_SERIAL, _SCSI = {"type": ("virtio-serial",)}, {"type": ("scsi",)}
_ANY_MODEL = k.choice(*dict.fromkeys(model for models in _MODELS.values() for model in models))


def _check_controller(_element: Element, values: row.Values) -> t.Iterator[str]:
    kind, model = values["type"], values.get("model")
    if model is not None and model not in _MODELS.get(kind, ()):
        models = ", ".join(_MODELS.get(kind, ()))
        yield f"model {model} is not one of type {kind}, which has {models or 'no models'}"
    if values.get("iothread") and not str(model).startswith("virtio"):
        yield "iothread requires model virtio-scsi"


CONTROLLERS = Controllers(
    "devices/controller",
    parts={
        "type": k.choice("scsi", "usb", "virtio-serial", "sata", "pci", "ide", "fdc", "ccid"),
        "index": k.integer(0, 255),
    },
    table={
        "model": Row("./@model", _ANY_MODEL, required_with={"type": ("pci",)}),
        "queues": Row("driver/@queues", k.integer(1, 1024), valid_with=_SCSI),
        "iothread": Row("driver/@iothread", k.integer(1), valid_with=_SCSI),
        "max_sectors": Row("driver/@max_sectors", k.integer(1), valid_with=_SCSI),
        "ports": Row("./@ports", k.integer(1, 64), valid_with={"type": ("virtio-serial", "usb")}),
        "vectors": Row("./@vectors", k.integer(0, 64), valid_with=_SERIAL),
    },
    new=_new_controller,
    check=_check_controller,
    shown=("model",),
)
