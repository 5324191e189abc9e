# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The rows of a domain as a whole. Source: https://libvirt.org/formatdomain.html"""

from __future__ import annotations

import copy
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._model.domain import Grafted, Wanted
from ansible_collections.corral.virt.plugins.module_utils._xml import devices as lists
from ansible_collections.corral.virt.plugins.module_utils._xml import graphics, record, row
from ansible_collections.corral.virt.plugins.module_utils._xml.row import INT, KIB, Many, Row
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, child, parse, text

__all__ = ["DOMAIN", "graft", "keeps", "read_fields", "spelt_out"]


def _same_machine(found: str | None, wanted: str) -> bool:
    """`q35` is satisfied by `pc-q35-7.2`: libvirt stores the version it chose."""
    short = {"q35": "pc-q35-", "pc": "pc-i440fx-"}
    return found == wanted or bool(found and wanted in short and found.startswith(short[wanted]))


DOMAIN: row.Table = {
    "title": Row("title"),
    "description": Row("description"),
    "vcpus.maximum": Row("vcpu", INT),
    "vcpus.current": Row("vcpu/@current", INT),
    "vcpus.placement": Row("vcpu/@placement"),
    "vcpus.cpuset": Row("vcpu/@cpuset"),
    "vcpus.topology.sockets": Row("cpu/topology/@sockets", INT),
    "vcpus.topology.cores": Row("cpu/topology/@cores", INT),
    "vcpus.topology.threads": Row("cpu/topology/@threads", INT),
    "memory.maximum_kib": Row("memory", KIB, unit="KiB"),
    "memory.current_kib": Row("currentMemory", KIB, unit="KiB"),
    "cpu.mode": Row("cpu/@mode"),
    "cpu.model": Row("cpu/model"),
    "machine": Row("os/type/@machine", same=_same_machine),
    "firmware": Row("os/@firmware", same=lambda found, wanted: (found or "bios") == wanted),
    "clock.offset": Row("clock/@offset"),
    "on_poweroff": Row("on_poweroff"),
    "on_reboot": Row("on_reboot"),
    "on_crash": Row("on_crash"),
    "serial.type": Row("devices/serial/@type"),
    "serial.path": Row("devices/serial/source/@path"),
    "serial.log": Row("devices/serial/log/@file"),
    "rng.model": Row("devices/rng/@model"),
    "rng.source": Row("devices/rng/backend"),
    "watchdog.model": Row("devices/watchdog/@model"),
    "watchdog.action": Row("devices/watchdog/@action"),
    "video.model": Row("devices/video/model/@type"),
    "tpm.model": Row("devices/tpm/@model"),
    "tpm.version": Row("devices/tpm/backend/@version"),
    "tags": Many("metadata/corral:guest/corral:tag"),
}


def spelt_out(root: Element) -> Element:
    """A copy that says what libvirt leaves implied, so that silence is not read as a difference."""
    root = copy.deepcopy(root)
    vcpu, memory = root.find("vcpu"), root.find("memory")
    if vcpu is not None and vcpu.get("current") is None:
        vcpu.set("current", vcpu.text)
    if memory is not None and root.find("currentMemory") is None:
        child(root, "currentMemory").text = memory.text
    return root


def read_fields(xml: str) -> dict[str, t.Any]:
    """Every field of DOMAIN that the definition speaks of."""
    return row.read(spelt_out(parse(xml)), DOMAIN)


def graft(xml: str, wanted: Wanted, fields: t.Mapping[str, t.Any], remembered: t.Mapping[str, t.Any] | None = None) -> Grafted:
    """Write `fields`, the devices of `wanted` and what is to be remembered into libvirt's own document.

    Addresses, aliases, elements we do not know and everything the user did not mention survive.
    """
    root = spelt_out(parse(xml))
    changes = row.graft(root, DOMAIN, fields)
    if any(change.where == "cpu.mode" for change in changes):
        _forget_cpu_details(root.find("cpu"), keep_model=fields.get("cpu.model") is not None)
    _finish_singletons(root)
    devices = child(root, "devices")
    added: dict[str, str] = {}
    removed: dict[str, str] = {}
    if wanted.graphics is not None:
        changes += graphics.graft(devices, wanted.graphics)
    changes += lists.graft(lists.DISKS, devices, wanted.disks or (), added, removed)
    changes += lists.graft(lists.INTERFACES, devices, wanted.interfaces or (), added, removed)
    _settle_boot(root)
    row.graft(root, record.RECORD, remembered or {})  # ours to remember, not the user's wish: no change of his
    return Grafted(xml=text(root), changes=tuple(changes), added=added, removed=removed, metadata=record.document(root))


def _forget_cpu_details(cpu: Element, *, keep_model: bool) -> None:
    """Model, vendor, features and checks belong to the mode that was left."""
    for tag in ("vendor", "feature") if keep_model else ("model", "vendor", "feature"):
        for found in cpu.findall(tag):
            cpu.remove(found)
    for attribute in ("match", "check", "migratable"):
        cpu.attrib.pop(attribute, None)


def _finish_singletons(root: Element) -> None:
    """Say what a device's own rows leave open but libvirt needs to accept it."""
    for device, needed in (("rng", {"model": "random"}), ("tpm", {"type": "emulator"})):
        found = root.find(f"devices/{device}")
        if found is not None:
            backend = child(found, "backend")
            for attribute, value in needed.items():
                if backend.get(attribute) is None:
                    backend.set(attribute, value)
    serial = root.find("devices/serial")
    if serial is not None and serial.get("type") == "pty" and serial.find("source") is not None:
        # A path belongs to a file or device; a pty's is libvirt's to choose.
        serial.remove(serial.find("source"))


def _settle_boot(root: Element) -> None:
    """An order by device leaves no room for one by kind, which libvirt writes (`hd`) when nobody says anything."""
    if root.find("devices/*/boot") is not None:
        for kind in root.findall("os/boot"):
            kind.getparent().remove(kind)


def keeps(xml: str) -> tuple[str, ...]:
    """What the definition makes libvirt store beside it: UEFI variables, TPM state."""
    root = parse(xml)
    nvram = root.find("os/nvram") is not None or root.find("os").get("firmware") == "efi"
    return (*(["nvram"] if nvram else []), *(["tpm"] if root.find("devices/tpm") is not None else []))
