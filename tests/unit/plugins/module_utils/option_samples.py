"""What can be said of a guest: every option with values of its kind; and what libvirt says to what comes of it."""

from __future__ import annotations

import copy
import dataclasses
import functools
import typing as t
from pathlib import Path

import libvirt
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from lxml import etree

from ansible_collections.corral.virt.plugins.module_utils._core import version
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._domain import (
    fields_disk,
    fields_domain,
    xml_new,
    xml_validate,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.fields_graphics import GRAPHICS
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Disk, Grafted, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_guest_options import completed
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_options import DICTS, GUEST_OPTIONS, wanted
from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml.kind import Kind
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Items, Many, Table, every, option_of
from ansible_collections.corral.virt.plugins.plugin_utils._guests import host_requirements

__all__ = [
    "HERE", "NEWER", "OPTIONS", "PLACES", "PLAIN", "SCHEMA", "TABLES", "Unfit", "bases", "each", "furnished", "grafted", "said_at",
    "samples", "saying", "stored", "takes", "too_new", "understood", "whole_guest",
]  # fmt: skip

SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")  # Debian: libvirt0; Fedora: libvirt-libs
FOUND = Path(__file__).parents[3] / "golden" / "found"
UUID, JUDGED_UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f", "0b3f2a55-97c5-4a43-8d9e-5d0f4b1a2c3d"
HERE = libvirt.getVersion()
Place = t.Tuple[str, ...]  # noqa: UP006  (Python 3.9; the name of an option at each level)


def _words(path: str) -> Place:
    return tuple(path.replace("[]", "").split("."))


# What an older libvirt does not know: option, value (None: any), and the version that took it first.
NEWER: list[tuple[Place, str | None, int]] = [
    *(
        (_words(path), None, version.number(*row.since))
        for path, _field, row in every(fields_domain.DOMAIN)
        if row.since
    ),
    *((_words(path), value, version.number(*since)) for path, value, since in host_requirements.RECENT_VALUES),
]
OPTIONS: dict[str, t.Any] = {
    **GUEST_OPTIONS,
    **{name: {"type": "dict", "options": options} for name, options in DICTS.items()},
}
TABLES: dict[str, Table] = {
    "": fields_domain.DOMAIN,
    "graphics": {field: one for field, one in GRAPHICS.items() if field != "autoport"},
}
# Options of no row.
PLAIN: dict[Place, Kind] = {
    ("name",): k.NAME,
    ("uuid",): k.matching(UUID, "must be a UUID"),
    ("image",): k.NAME,
    ("disks", "size"): k.KIB,
    ("disks", "pool"): k.NAME,
    ("disks", "image"): k.NAME,
}


def _places(options: t.Mapping[str, t.Any], where: Place = ()) -> t.Iterator[Place]:
    for name, option in options.items():
        if "options" in option:
            yield from _places(option["options"], (*where, name))
        else:
            yield (*where, name)


PLACES = list(_places(OPTIONS))

TEXTS = (
    "debian13", "http://debian.org/debian/13",
    "x", "br0", "org.qemu.guest_agent.0", "/srv/a b/c", "/dev/sdb", "0-3,8", "0", "0123456789abcdef", "vdb", "sda", "hdb", "fda", "de",
    "en-us", "192.0.2.7", "::1", "h.example.org", "0000:06:00.0", "52:54:00:12:34:56", "1280x720", "0x1d6b", "Europe/Paris",
    "default/a.qcow2", "http://h.example.org/a.iso?b=c", "nbd://[::1]:10810/x", "iscsi://192.0.2.7/iqn.x:y/1", UUID, "512MiB", "1.5 GB",
    "2048KiB", "2", "qemu-xhci", "web1-Data_2", "console=ttyS0 root=/dev/vda1 <&>'\"", "a\u00e9\u4e2d",
)  # fmt: skip


def takes(kind: Kind, value: object) -> bool:
    """Whether a value is of that kind."""
    try:
        kind.check(value)
    except ValueError:
        return False
    return True


def samples(kind: Kind) -> list[t.Any]:
    """Some values of a kind."""
    if "choices" in kind.option:
        return list(kind.option["choices"])
    if kind.option["type"] == "bool":
        return [True, False]
    if kind.ends:
        return sorted({kind.ends[0], kind.ends[0] + 1, kind.ends[1]})
    return [text for text in TEXTS if takes(kind, text)][:6]


# What a field needs beside it that its row does not say.
_BESIDE: dict[str, dict[str, t.Any]] = {
    "vcpus.iothread_pinning": {"vcpus.iothreads": 2}, "numa.mode": {"numa.nodeset": "0"}, "channels[].mode": {"path": "/srv/a"},
    "memory.slots": {"memory.hotplug_maximum_kib": "8G"}, "numa.nodes": {"numa.cells": [{"id": 0, "memory_kib": "512MiB"}]},
    "watchdog.action": {"watchdog.model": "i6300esb"}, "disks[].io": {"cache": "none"},
    "disks[].network.auth.username": {"network.auth.secret_usage": "x", "network.name": "a/b"},
    "disks[].nvme.address": {"nvme.namespace": 1},
    "disks[].network.hosts": {"network.protocol": "rbd", "network.name": "a/b"},
    "disks[].network.protocol": {"network.hosts": [{"name": "h.example.org"}]},
    "disks[].network.snapshot": {"network.name": "a/b"}, "disks[].network.config": {"network.name": "a/b"},
    "disks[].network.initiator": {"network.name": "a/b"},
    "controllers[].iothread": {"model": "virtio-scsi"}, "hostdevs[].startup_policy": {"vendor": "0x1d6b"},
}  # fmt: skip

_INSTEAD = {
    "network.auth.secret_usage": "network.auth.secret_uuid",
    "network.hosts": "network.socket",
}  # of what a field needs either is enough


def furnished(table: Table, said: t.Mapping[str, t.Any], where: str = "", row: Items | None = None) -> dict[str, t.Any]:
    """Fields together with those that they need beside them, as the rows tell; of an entry also its identity."""
    keys = row.keys if row else {}
    kinds = {**{field: one.kind for field, one in table.items()}, **keys}
    fields = dict(said)
    while True:
        rules = [(other, fits) for field in fields if field in table for other, fits in table[field].valid_with.items()]
        beside = {other: value for field in fields for other, value in _BESIDE.get(where + field, {}).items()}
        due = [
            field
            for field, one in table.items()
            for other, asks in one.required_with.items()
            if fields.get(other) in asks
        ]
        beside = {other: value for other, value in beside.items() if _INSTEAD.get(other) not in fields}
        needed = (*beside, *(other for other, _fits in rules), *due, *(row.needed if row else ()), *keys)
        missing = next((field for field in needed if field not in fields), None)
        if missing is None:
            return fields
        asked = [fit for other, fits in rules if other == missing for fit in fits if fit is not None]
        some = samples(kinds[missing])
        something = some[0] if missing in keys else next(filter(None, some), None)
        fields[missing] = beside[missing] if missing in beside else (asked or [something])[0]


def whole_guest(fields: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Fields of the domain with what entries of lists need elsewhere: something to be plugged into, I/O threads."""
    output = copy.deepcopy(furnished(fields_domain.DOMAIN, fields))
    for entry in output.get("interfaces", ()):
        if not {"type", "bridge", "network", "device", "address"} & set(entry):
            entry["network"] = "lan"
    for entry in output.get("hostdevs", ()):
        if not {"type", "vendor", "bus", "address"} & set(entry):
            entry["address"] = "0000:06:00.0"
    if any(entry.get("iothread") for field in ("disks", "controllers") for entry in output.get(field, ())):
        output.setdefault("vcpus.iothreads", 2)
    return output


def each(table: Table, where: str = "") -> t.Iterator[tuple[str, list[dict[str, t.Any]]]]:
    """Every option of a table, and fields that say each of its samples."""
    for field, row in table.items():
        place = where + field
        if isinstance(row, Items):
            inside = place + "[]."
            output = [(key, [{key: value} for value in samples(kind)]) for key, kind in row.keys.items()]
            output += [(option[len(inside) :], entries) for option, entries in each(row.table, inside)]
            for option, entries in dict(reversed(output)).items():
                yield inside + option, [{field: [furnished(row.table, entry, inside, row)]} for entry in entries]
            yield inside + "state", [{field: [{**furnished(row.table, {}, inside, row), "state": "absent"}]}]
        else:
            yield place, [{field: [value] if isinstance(row, Many) else value} for value in samples(row.kind)]


def too_new(options: t.Mapping[str, t.Any]) -> bool:
    """Whether this libvirt is too old for something that is said."""
    newer = [(place, value) for place, value, since in NEWER if since > HERE]
    return any(value in (None, found) for place, value in newer for found in said_at(options, place))


def said_at(options: t.Any, place: Place) -> list[t.Any]:
    """Everything that is said at a place: of a list, in each of its entries."""
    if isinstance(options, list):
        return [found for entry in options for found in said_at(entry, place)]
    if not place:
        return [] if options is None else [options]
    return said_at(options.get(place[0]), place[1:]) if isinstance(options, dict) else []


def saying(table: Table, fields: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Fields of a table as options: dots are levels."""
    output: dict[str, t.Any] = {}
    for field, value in fields.items():
        *way, last = option_of(field).split(".")
        place = output
        for step in way:
            place = place.setdefault(step, {})
        row = table.get(field)
        place[last] = [saying(row.table, entry) for entry in value] if isinstance(row, Items) else value
    return output


def understood(said: t.Mapping[str, t.Any]) -> GuestSpec:
    """The options, checked and completed as Ansible does it; raises BadInput with what either refuses."""
    result = ArgumentSpecValidator(GUEST_OPTIONS).validate({"name": "web1", **copy.deepcopy(dict(said))})
    if result.error_messages:
        raise BadInput(list(map(ascii, result.error_messages)))
    return wanted(result.validated_parameters)


@functools.lru_cache(maxsize=None)  # noqa: UP033  (Python 3.9)
def bases() -> dict[str, str]:
    """A guest that is made, one that has next to nothing, and some that others made."""
    fresh = xml_new.domain(name="web1", uuid=UUID, virt_type="kvm", arch="x86_64", machine="q35")
    bare = f"""<domain type='kvm'><name>web1</name><uuid>{UUID}</uuid><memory unit='KiB'>524288</memory>
      <currentMemory unit='KiB'>524288</currentMemory><vcpu current='2'>2</vcpu><os><type arch='x86_64' machine='q35'>hvm</type></os>
      <clock offset='utc'/><devices/></domain>"""
    return {"new": fresh, "bare": bare, **{path.stem: path.read_text() for path in sorted(FOUND.glob("*.xml"))}}


def grafted(guest: GuestSpec, xml: str) -> Grafted:
    """The document after the user's wishes, completed and judged as the front does it.

    Raises BadInput where it is refused.
    """
    found = fields_domain.sizes(xml)
    if found["vcpus.maximum"] == 0:  # a new guest
        output = guest.fields
        least = {
            "vcpus.current": output.get("vcpus.maximum", 2),
            "memory.current_kib": output.get("memory.maximum_kib", 524288),
        }
        guest, found = guest.with_fields(**{**least, **output}), {}
    there = fields_disk.by_name(xml)
    images = [item if item.name in there else _with_image(item) for item in guest.disks or ()]
    guest = completed(guest.with_fields(disks=images or None), found)
    after = fields_domain.graft(xml, guest)
    problems = xml_validate.problems(xml, guest, after)
    if problems:
        raise BadInput(problems)
    return after


def _with_image(item: Disk) -> Disk:
    output = item.fields
    made = output.get("device", "disk") == "disk" and not item.places
    return dataclasses.replace(item, fields={**output, "source": f"/images/{item.name}"}) if made else item


@functools.lru_cache(maxsize=None)  # noqa: UP033  (Python 3.9)
def _schema() -> t.Any:
    return etree.RelaxNG(etree.parse(str(SCHEMA)))


@functools.lru_cache(maxsize=None)  # noqa: UP033  (Python 3.9)
def _host() -> t.Any:
    libvirt.registerErrorHandler(lambda *_error: None, None)
    return libvirt.open("test:///default")


_ORDER = (
    "metadata", "maxMemory", "memory", "currentMemory", "blkiotune", "memtune", "memoryBacking", "vcpu", "iothreads", "iothreadids",
    "cputune", "numatune", "resource", "sysinfo", "os", "features", "cpu", "clock", "on_poweroff", "on_reboot", "on_crash",
    "on_lockfailure", "pm", "perf", "devices", "seclabel", "commandline",
)  # fmt: skip


def _place(element: t.Any) -> int:
    tag = etree.QName(element).localname if isinstance(element.tag, str) else ""
    return _ORDER.index(tag) if tag in _ORDER else -1


class Unfit(Exception):
    """libvirt refuses the definition."""


def stored(xml: str) -> str:
    """A definition as libvirt gives it back.

    Raises Unfit where its grammar refuses it, or its parser (of the test driver: no KVM).
    """
    root = etree.fromstring(xml)
    root[:] = sorted(root, key=_place)  # which is free, but the validator stumbles over groups that are torn apart
    if not _schema().validate(root):
        raise Unfit(
            f"{_schema().error_log}\nThis libvirt is {version.text(HERE)}; is a field newer (`since`), or a value "
            "(RECENT_VALUES)?"
        )
    root.set("type", "test")
    for name, value in (("uuid", JUDGED_UUID), ("name", "judged")):
        t.cast(t.Any, root.find(name)).text = value
    try:
        guest = _host().defineXML(etree.tostring(root, encoding="unicode"))
    except libvirt.libvirtError as error:
        raise Unfit(str(error)) from error
    try:
        return str(guest.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE))
    finally:
        guest.undefine()
