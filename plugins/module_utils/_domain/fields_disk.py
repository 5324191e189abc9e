# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of a disk. Identity: our alias `ua-<name>`, else the target (`vda`) of disks that others defined."""

from __future__ import annotations

import dataclasses
import re
import typing as t
from urllib.parse import urlsplit

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.list_item import Item
from ansible_collections.corral.virt.plugins.module_utils._core.output import without_secrets
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_remote
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import PLACES
from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml import row
from ansible_collections.corral.virt.plugins.module_utils._xml.row import ANY, Flag, Index, Items, Mark, Row, silent_is
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, alias_name, child, make, parse


def _url_of(value: t.Any) -> str:
    try:
        url = urlsplit(str(value))
        has_parts = (
            url.scheme in _URL_PORTS
            and url.hostname
            and (url.port or 1) > 0
            and (len(url.path) > 1 or url.scheme == "nbd")
        )
        fits = not value or (has_parts and (not url.query or url.scheme in ("http", "https")))
    except ValueError:
        fits = False
    if (
        not fits
        or not re.fullmatch(r"[!-~]*", str(value))
        or "@" in url.netloc
        or url.fragment
        or ".." in url.path.split("/")
    ):
        raise ValueError(
            f"must be {'://, '.join(_URL_PORTS)}:// with host and path, such as http://mirror.example.org/debian.iso"
        )
    return str(value)


_URL_PORTS = {"http": 80, "https": 443, "ftp": 21, "ftps": 990, "tftp": 69, "nbd": 10809, "iscsi": 3260}


class SourceRow(Row):
    """Where the bytes are, in one of three forms; writing one removes all that belonged to the old source."""

    def write(self, element: Element, value: t.Any) -> None:
        """Set the disk's type and source; an empty text ejects the medium."""
        fields_remote.forget_source(element)
        if value == "":
            return
        source = make(element, "source")
        if self.path == "source/@volume":
            element.set("type", "volume")
            source.set("pool", value.partition("/")[0])
            source.set("volume", value.partition("/")[2])
        elif self.path == "source/@protocol":
            element.set("type", "network")
            url = urlsplit(value)
            source.set("protocol", url.scheme)
            if len(url.path) > 1:  # an NBD server has an export without a name
                source.set("name", url.path[1:])
            if url.query:
                source.set("query", url.query)
            make(source, "host", name=str(url.hostname), port=str(url.port or _URL_PORTS[url.scheme]))
        else:
            element.set("type", "block" if value.startswith("/dev/") else "file")
            source.set("dev" if value.startswith("/dev/") else "file", value)

    def read(self, element: Element) -> t.Any:
        """The source in this form; None if it has another form."""
        source, kind = element.find("source"), element.get("type")
        if source is None:
            return None
        if self.path == "source/@file":
            attribute = {"file": "file", "block": "dev"}.get(kind)
            return source.get(attribute) if attribute else None
        if self.path == "source/@volume":
            return f"{source.get('pool')}/{source.get('volume')}" if kind == "volume" else None
        hosts = source.findall("host")
        host = hosts[0] if len(hosts) == 1 else None
        if kind != "network" or source.get("protocol") not in _URL_PORTS or host is None or not host.get("name"):
            return None
        port = "" if host.get("port") in (None, str(_URL_PORTS[source.get("protocol")])) else ":" + host.get("port")
        name = host.get("name") if ":" not in host.get("name") else f"[{host.get('name')}]"
        query = f"?{source.get('query')}" if source.get("query") else ""
        return f"{source.get('protocol')}://{name}{port}/{source.get('name') or ''}{query}"

    def display(self, value: t.Any) -> t.Any:
        """The value without the query of a URL, which may hold a token."""
        return without_secrets(value) if isinstance(value, str) else value


_LIMITS = ("bytes_sec", "iops_sec")
_RATE = k.integer(0, 10**15)
IOTUNE: row.Table = {
    f"iotune.{side}_{unit}{limit}": Row(
        f"iotune/{side}_{unit}{limit}",
        _RATE,
        same=silent_is(0),
        valid_with={f"iotune.{side}_{unit}{of}": ANY} if limit else {},
    )
    for limit, of in (("", ""), ("_max", ""), ("_max_length", "_max"))
    for unit in _LIMITS
    for side in ("total", "read", "write")
}
_BLOCK = k.integer(512, 2**31 - 1)
_VIRTIO = {"bus": ("virtio",)}
_SCSI = {"bus": ("scsi",), "device": ("disk", "cdrom")}


class _Bus(t.NamedTuple):
    """A bus: the prefix of its targets, its devices, its address types, and whether a disk on it can be read-only."""

    prefix: str
    devices: tuple[str, ...]
    addresses: tuple[str, ...] = ("drive",)
    readonly: bool = True


_BUSES = {
    "virtio": _Bus("vd", ("disk", "lun"), ("pci", "ccw", "virtio-mmio")),
    "scsi": _Bus("sd", ("disk", "lun", "cdrom")),
    "sata": _Bus("sd", ("disk", "cdrom"), readonly=False),
    "usb": _Bus("sd", ("disk", "cdrom"), ("usb",)),
    "ide": _Bus("hd", ("disk", "cdrom"), readonly=False),
    "fdc": _Bus("fd", ("floppy",)),
    "sd": _Bus("sd", ("disk",), ("sd",)),
}
_DEFAULT_BUS = {"disk": "virtio", "cdrom": "sata", "floppy": "fdc", "lun": "scsi"}

DISK: row.Table = {
    "device": Row("./@device", k.choice("disk", "cdrom", "lun", "floppy")),
    "format": Row("driver/@type", k.choice("qcow2", "raw", "vmdk", "vdi", "vpc")),
    "source": SourceRow("source/@file", k.PATH),
    "volume": SourceRow(
        "source/@volume", k.matching(r"[A-Za-z0-9._-]{1,63}/[A-Za-z0-9][A-Za-z0-9._+:-]{0,127}", "must be pool/volume")
    ),
    "url": SourceRow("source/@protocol", k.Kind({"type": "str"}, _url_of)),
    **fields_remote.NETWORK,
    **fields_remote.NVME,
    "startup_policy": Row("source/@startupPolicy", k.choice("mandatory", "requisite", "optional")),
    "bus": Row("target/@bus", k.choice(*_BUSES)),
    "target": Row(
        "target/@dev",
        k.matching(r"(fd|hd|sd|vd)[a-z]{1,3}", "must be a device name such as vdb or sda"),
        same=lambda found, wanted: wanted in ("", found),
    ),
    "rotation_rate": Row(
        "target/@rotation_rate",
        k.integer(1, 65534),
        valid_with={"bus": ("scsi", "sata", "ide"), "device": ("disk",)},
        since=(7, 3),
    ),
    "removable": Row("target/@removable", k.ONOFF, valid_with={"bus": ("usb",)}),
    "cache": Row(
        "driver/@cache",
        k.choice("default", "none", "writethrough", "writeback", "directsync", "unsafe"),
        same=silent_is("default"),
    ),
    "discard": Row("driver/@discard", k.choice("unmap", "ignore")),
    "detect_zeroes": Row("driver/@detect_zeroes", k.choice("off", "on", "unmap")),
    "io": Row("driver/@io", k.choice("native", "threads", "io_uring")),
    "error_policy": Row("driver/@error_policy", k.choice("stop", "report", "ignore", "enospace")),
    "rerror_policy": Row("driver/@rerror_policy", k.choice("stop", "report", "ignore")),
    "iothread": Row("driver/@iothread", k.integer(1), valid_with=_VIRTIO),
    "queues": Row("driver/@queues", k.integer(1, 1024), valid_with=_VIRTIO),
    "copy_on_read": Row("driver/@copy_on_read", k.ONOFF, valid_with={"device": ("disk",), "readonly": (False,)}),
    "serial": Row(
        "serial", k.matching(r"[A-Za-z0-9_.+ -]{1,256}", "must be letters, digits, '.', '_', '+', '-' and spaces")
    ),
    "wwn": Row("wwn", k.HEX16, valid_with={"bus": ("scsi", "ide"), "device": ("disk", "cdrom")}),
    "vendor": Row("vendor", k.matching(r"[ -~]{1,8}", "must be at most 8 printable characters"), valid_with=_SCSI),
    "product": Row("product", k.matching(r"[ -~]{1,16}", "must be at most 16 printable characters"), valid_with=_SCSI),
    "logical_block_size": Row("blockio/@logical_block_size", _BLOCK),
    "physical_block_size": Row("blockio/@physical_block_size", _BLOCK),
    "readonly": Flag("readonly", k.ONOFF),
    "shareable": Flag("shareable", k.ONOFF),
    "transient": Flag("transient", k.ONOFF, valid_with={"device": ("disk",), "readonly": (False,), "source": ANY}),
    "boot_order": Row("boot/@order", k.integer(1, 1000)),
    **IOTUNE,
}


def name_of(device: Element) -> str:
    """The name we gave the disk, or its target."""
    target = device.find("target")
    return alias_name(device) or ("" if target is None else target.get("dev") or "")


def _marks(device: Element) -> t.Iterator[Mark]:
    target = device.find("target")
    yield "target", "" if target is None else target.get("dev")


def _sought(item: Item) -> tuple[Mark, ...]:
    return (("target", item.name),)


def _new(device: Element, item: Item) -> None:
    """Give a new disk what libvirt needs and the user need not set."""
    kind = item.fields.get("device") or "disk"
    bus = item.fields.get("bus") or _DEFAULT_BUS[kind]
    device.set("type", "file")
    device.set("device", kind)
    elsewhere = any(item.fields.get(field) for field in ("url", "network.protocol", "nvme.address"))
    raw = kind != "disk" or elsewhere or str(item.fields.get("source")).startswith("/dev/")
    make(device, "driver", name="qemu", type=item.fields.get("format") or ("raw" if raw else "qcow2"))
    make(device, "target", dev=item.fields.get("target") or "", bus=bus)
    make(device, "alias", name=f"ua-{item.name}")
    if kind == "cdrom":
        child(device, "readonly")


def _letters(number: int) -> str:
    """`a`, `b`, … `z`, `aa`, … for 0, 1, …"""
    before, last = divmod(number, 26)
    return (_letters(before - 1) if before else "") + chr(ord("a") + last)


def _seat(device: Element, index: Index) -> None:
    """Set the first free target, unless the disk has one that is free."""
    target = device.find("target")
    if not target.get("dev") or index.find([("target", target.get("dev"))]) is not None:
        prefix = _BUSES[target.get("bus")].prefix
        number = index.first_free(prefix, lambda number: ("target", prefix + _letters(number)))
        target.set("dev", prefix + _letters(number))


def _normalise(device: Element) -> None:
    """Set QEMU as the driver, and remove an address that does not fit the bus: libvirt then finds a new one."""
    address, bus, driver = device.find("address"), device.find("target").get("bus"), device.find("driver")
    if driver is not None and not driver.get("name"):
        driver.set("name", "qemu")
    known = bus in _BUSES and address is not None
    if known and address.get("type") not in (*_BUSES[bus].addresses, "spapr-vio", "unassigned"):
        device.remove(address)
    fields_remote.normalise(device)


def _check(element: Element, values: row.Values) -> t.Iterator[str]:
    """Combinations that libvirt or QEMU would refuse."""
    device, bus, raw = values.get("device", "disk"), values.get("bus"), values.get("format", "raw") == "raw"
    buses = [name for name, one in _BUSES.items() if device in one.devices]
    if bus not in (None, *buses):
        yield f"a {device} must be on bus {' or '.join(buses)}, not {bus}"
    if "target" in values and values["target"].startswith("fd") != (device == "floppy"):
        yield f"target {values['target']} is not valid for a {device}; omit target to have one chosen"
    if not fields_remote.has_medium(element) and device in ("disk", "lun"):
        yield "only a cdrom or floppy can be without a medium; set one, or set state: absent"
    if device == "lun" and not (raw and element.get("type") in ("block", "volume", "network")):
        yield (
            "a lun is a block device of the host, passed through; set its path below /dev and no format, or device: "
            "disk"
        )
    elif device == "lun" and element.get("type") == "network" and element.find("source").get("protocol") != "iscsi":
        yield "a lun on the network must be of protocol iscsi; use device: disk for others"
    if device == "cdrom" and not values["readonly"]:
        yield "a cdrom is always readonly; omit readonly"
    if values["readonly"] and device == "disk" and bus in _BUSES and not _BUSES[bus].readonly:
        yield f"a disk on bus {bus} cannot be readonly; use bus virtio or scsi, or device: cdrom"
    if values.get("io") == "native" and values.get("cache") not in ("none", "directsync"):
        yield "io native requires cache none or directsync; set both"
    if values.get("startup_policy") == "requisite" and device not in ("cdrom", "floppy"):
        yield "startup_policy requisite is for media of a cdrom or floppy; use mandatory or optional"
    yield from fields_remote.check(values)
    for unit in ("bytes_sec", "iops_sec", "bytes_sec_max", "iops_sec_max"):
        if values.get(f"iotune.total_{unit}") and (
            values.get(f"iotune.read_{unit}") or values.get(f"iotune.write_{unit}")
        ):
            yield f"iotune.total_{unit} and a limit for reading or writing are mutually exclusive; set one of them to 0"


def _once(values: row.Values) -> dict[str, t.Any]:
    """The fields of a disk with its source in one form: as a URL, if that says all of it."""
    more = {field for field in values if field.startswith("network.")}
    url = str(values.get("url") or "")
    enough = bool(url) and more <= {"network.protocol", "network.name", "network.hosts"} and _is_url(url)
    dropped = more if enough or not more else {"url"}
    return {field: value for field, value in values.items() if field not in dropped}


def _is_url(text: str) -> bool:
    try:
        return bool(_url_of(text))
    except ValueError:
        return False


class Disks(Items):
    """The disks of a guest."""

    def values(self, element: Element) -> dict[str, t.Any]:
        """The fields, with the source in one form."""
        return _once(super().values(element))

    def _edit(self, found: Element, item: Item, index: Index, place: str) -> list[Change]:
        """Edit the disk; an empty source ejects the medium, whichever form it has."""
        empty = [field for field in PLACES.values() if item.fields.get(field) == ""]
        if not empty or any(item.fields.get(field) for field in PLACES.values()):
            return super()._edit(found, item, index, place)
        fields = {field: value for field, value in item.fields.items() if field not in empty}
        ejected = []
        if fields_remote.has_medium(found):
            ejected = [Change(f"{place}.{empty[0]}", self.summary(found), "")]
            fields_remote.eject(found)
        return ejected + super()._edit(found, dataclasses.replace(item, fields=fields), index, place)


DISKS = Disks(
    "devices/disk",
    table=DISK,
    name_of=name_of,
    marks=_marks,
    sought=_sought,
    new=_new,
    seat=_seat,
    normalise=_normalise,
    check=_check,
    shown=("source", "volume", "url", "network.protocol", "network.name", "nvme.address"),
)


def read_all(root: Element) -> list[dict[str, t.Any]]:
    """Every disk with its name, fields, and source (file, block device, volume or network)."""
    found = []
    for device in root.findall("devices/disk"):
        values = {"name": name_of(device), **DISKS.values(device)}
        values["url"] = DISK["url"].display(values.get("url"))
        source = device.find("source")
        if source is not None:
            values["source"] = source.get("file") or source.get("dev") or source.get("name")
            values["pool"], values["volume"] = source.get("pool"), source.get("volume")
        found.append({field: value for field, value in values.items() if value is not None and value is not False})
    return found


def media(root: Element) -> list[dict[str, t.Any]]:
    """Every disk with a medium as in `read_all`, also with `type` and, for a network disk, `protocol` and `servers`."""
    found = []
    for device, values in zip(root.findall("devices/disk"), read_all(root)):
        if fields_remote.has_medium(device):
            source = device.find("source")
            servers = [*filter(None, (host.get("name") or host.get("socket") for host in source.findall("host")))]
            found.append({**values, "type": device.get("type"), "protocol": source.get("protocol"), "servers": servers})
    return found


def by_name(xml: str) -> dict[str, dict[str, t.Any]]:
    """The disks of a definition, by name and by target."""
    found = read_all(parse(xml))
    return {**{str(item.get("target")): item for item in found}, **{item["name"]: item for item in found}}
