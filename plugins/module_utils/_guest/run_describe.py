# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describe guests as data that uses the names of the options."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._address import libvirt_ip_addresses
from ansible_collections.corral.virt.plugins.module_utils._core.uri import has_files_here
from ansible_collections.corral.virt.plugins.module_utils._domain import (
    fields_disk,
    fields_domain,
    fields_graphics,
    fields_interface,
    fields_record,
    xml_summary,
)
from ansible_collections.corral.virt.plugins.module_utils._guest import run_summary
from ansible_collections.corral.virt.plugins.module_utils._host import files_ha_records
from ansible_collections.corral.virt.plugins.module_utils._libvirt import states
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import explained
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse


def describe_guests(
    connection: t.Any, *, names: t.Collection[str] | None = None, addresses: str = "none"
) -> list[dict[str, t.Any]]:
    """All guests sorted by name, or only those in `names`."""
    kept = files_ha_records.kept() if has_files_here(connection.getURI()) else {}
    return run_summary.each(connection, functools.partial(describe_guest, addresses=addresses, kept=kept), names)


def describe_guest(
    item: t.Any, statistics: t.Mapping[str, t.Any], *, addresses: str = "none", kept: t.Mapping[str, t.Any]
) -> dict[str, t.Any]:
    """One guest: its running state, or its definition if it is off. `statistics` are libvirt's bulk statistics, and
    `kept` is what the host notes of protected guests.
    """
    with explained("read guest", item.name()):
        xml = item.XMLDesc()
        root, fields = parse(xml), fields_domain.read_fields(xml)
        recorded = fields_record.own(fields_record.read(xml), item.UUIDString())
        state = states.of(item)
        report = {
            "name": item.name(),
            "uuid": item.UUIDString(),
            "state": state,
            "persistent": bool(item.isPersistent()),
            "autostart": bool(item.isPersistent() and item.autostart()),
            "snapshots": run_summary.snapshots(item),
            "backup": run_summary.backup(root),
            "ha": run_summary.protection(root, kept),
        }
    sighted = xml_summary.sighted(root, recorded.get("seen", ())) if state == "running" else []
    report.update(_hardware(root, fields, run_summary.block_sizes(statistics)))
    report.update(
        {
            "addresses": [*recorded.get("addresses", ()), *sighted],
            "ssh_host_key": recorded.get("ssh_host_key"),
            "unfinished": bool(recorded.get("making")),
            "moving": recorded.get("moving"),
            "moving_from": recorded.get("moving_from") if recorded.get("moving") else None,
        }
    )
    if addresses != "none" and state == "running":
        macs = xml_summary.macs(root)
        sources = libvirt_ip_addresses.LIBVIRT_SOURCES if addresses == "any" else (addresses,)
        known = [found for source in sources for found in libvirt_ip_addresses.addresses(item, source, macs)]
        report["addresses"] = list(dict.fromkeys([*t.cast("list[str]", report["addresses"]), *known]))
    return report


def _hardware(
    root: t.Any, fields: t.Mapping[str, t.Any], sizes: t.Mapping[str, t.Mapping[str, t.Any]]
) -> dict[str, t.Any]:
    """The hardware in the guest's document; `sizes` are those of its disks, by target."""
    return {
        "title": fields.get("title", ""),
        "description": fields.get("description", ""),
        "tags": list(fields.get("tags", ())),
        "virt_type": root.get("type"),
        "machine": fields.get("machine"),
        "firmware": fields.get("firmware", "bios"),
        "vcpus": {"current": fields.get("vcpus.current"), "maximum": fields.get("vcpus.maximum")},
        "memory": {
            "current_mib": fields.get("memory.current_kib", 0) // 1024,
            "maximum_mib": fields.get("memory.maximum_kib", 0) // 1024,
        },
        "disks": [{**item, **sizes.get(item.get("target", ""), {})} for item in fields_disk.read_all(root)],
        "interfaces": fields_interface.read_all(root),
        "graphics": fields_graphics.read_all(root),
        "console": any(port.get("type") == "pty" for port in (*fields.get("serials", ()), *fields.get("consoles", ()))),
    }
