"""The summary of a guest's document against the tables that say the same, on every example."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._domain import (
    fields_disk,
    fields_domain,
    fields_graphics,
    fields_interface,
    fields_record,
    xml_summary,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.model_address import Nic
from ansible_collections.corral.virt.plugins.module_utils._xml import stdlib_reader
from ansible_collections.corral.virt.plugins.module_utils._xml.names import sealed
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse
from ansible_collections.corral.virt.tests.golden.case import GOLDEN

DOCUMENTS = sorted({path.resolve() for path in GOLDEN.glob("**/*.xml") if "<domain" in path.read_text()[:2000]})
KEYS = {
    "disks": ("target", "format", "source", "pool", "volume"),
    "interfaces": ("mac", "type", "bridge", "network"),
    "graphics": ("type", "port", "tls_port", "websocket", "listen"),
}
RECORD = """<domain><name>web1</name><devices/><metadata>
  <c:guest xmlns:c="urn:corral:virt:guest:1">
    <c:tag>front</c:tag><c:address>192.0.2.7</c:address><c:making>/x/web1.qcow2</c:making>
    <c:ssh-host-key>ssh-ed25519 AAAA</c:ssh-host-key>
    <c:moving from="4a5b">hyper2</c:moving>
  </c:guest>
  <s:guest xmlns:s="urn:corral:virt:seen:1"><s:at>52:54:00:00:00:01 192.0.2.8 arp 1700000000</s:at></s:guest>
</metadata></domain>"""


def part(name: str, found: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    return [{key: item[key] for key in KEYS[name] if key in item} for item in found]


def of_tables(xml: str) -> dict[str, t.Any]:
    root, fields = parse(xml), fields_domain.read_fields(xml)
    return {
        "tags": list(fields.get("tags", ())),
        "vcpus": {"current": fields.get("vcpus.current"), "maximum": fields.get("vcpus.maximum")},
        "memory": {
            "current_mib": fields.get("memory.current_kib", 0) // 1024,
            "maximum_mib": fields.get("memory.maximum_kib", 0) // 1024,
        },
        "disks": part("disks", fields_disk.read_all(root)),
        "interfaces": part("interfaces", fields_interface.read_all(root)),
        "graphics": part("graphics", fields_graphics.read_all(root)),
        "console": any(port.get("type") == "pty" for port in (*fields.get("serials", ()), *fields.get("consoles", ()))),
    }


def record_of_tables(xml: str) -> dict[str, t.Any]:
    kept = fields_record.read(xml)
    lists = {name: list(kept.get(name, ())) for name in ("addresses", "seen")}
    return {
        **lists,
        "unfinished": bool(kept.get("making")),
        "ssh_host_key": kept.get("ssh_host_key"),
        "moving": kept.get("moving"),
        "moving_from": kept.get("moving_from") if kept.get("moving") else None,
    }


def test_there_are_documents() -> None:
    assert len(DOCUMENTS) > 100


@pytest.mark.parametrize("xml", [*map(Path.read_text, DOCUMENTS), RECORD])
def test_it_says_what_the_tables_say(xml: str) -> None:
    found, root = xml_summary.read(xml)
    assert found == of_tables(xml)
    assert xml_summary.recorded(root) == record_of_tables(xml)
    assert (xml_summary.is_managed(parse(xml)), xml_summary.nics(parse(xml))) == (
        xml_summary.is_managed(root),
        xml_summary.nics(root),
    )


def test_a_record_is_read() -> None:
    found, root = xml_summary.read(RECORD)
    assert (found["tags"], xml_summary.recorded(root)) == (
        ["front"],
        {
            "addresses": ["192.0.2.7"],
            "seen": ["52:54:00:00:00:01 192.0.2.8 arp 1700000000"],
            "unfinished": True,
            "ssh_host_key": "ssh-ed25519 AAAA",
            "moving": "hyper2",
            "moving_from": "4a5b",
        },
    )


@pytest.mark.parametrize(
    ("devices", "console"),
    [
        ("<serial type='pty'/>", True),
        ("<console type='pty'/>", True),
        ("<serial type='tcp'/><console type='file'/>", False),
        ("", False),
    ],
)
def test_a_console_is_a_terminal(devices: str, console: bool) -> None:
    found, _root = xml_summary.read(f"<domain><memory>2048</memory><devices>{devices}</devices></domain>")
    assert (found["console"], found["memory"]) == (console, {"current_mib": 2, "maximum_mib": 2})


@pytest.mark.parametrize(
    ("inside", "kept"),
    [
        ("", False),
        ('<c:guest xmlns:c="urn:corral:virt:guest:1"/>', True),
        ('<s:guest xmlns:s="urn:corral:virt:seen:1"/>', True),
    ],
)
def test_whether_anything_is_kept(inside: str, kept: bool) -> None:
    _found, root = xml_summary.read(f"<domain><metadata>{inside}</metadata></domain>")
    assert xml_summary.is_managed(root) is kept


def test_interfaces_are_seen_as_the_network_of_the_host_sees_them() -> None:
    _found, root = xml_summary.read(
        """<domain><devices>
        <interface type='bridge'><mac address='52:54:00:AA:00:01'/><source bridge='br0'/><target dev='vnet0'/></interface>
        <interface type='network'><mac address='52:54:00:aa:00:02'/><source network='n'/><target dev='vnet1'/></interface>
        <interface type='user'/></devices></domain>"""
    )
    assert xml_summary.nics(root) == (Nic("52:54:00:aa:00:01", "vnet0", "br0"), Nic("52:54:00:aa:00:02"))


@pytest.mark.parametrize(("guest", "moving"), [("4a5b", "hyper2"), ("another", None)])
def test_a_copy_of_a_definition_is_not_on_its_way(guest: str, moving: str | None) -> None:
    xml = RECORD.replace("<name>", "<uuid>4a5b</uuid><name>").replace(
        "<c:moving ", f"<c:moving seal='{sealed(guest)}' "
    )
    assert xml_summary.recorded(xml_summary.read(xml)[1])["moving"] == moving
    mark = fields_record.document(parse(xml))
    assert stdlib_reader.moving(mark, "4a5b") == bool(moving)
