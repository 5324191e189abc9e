"""A field that means nothing beside the others, or lacks another one, is told: among options, and in a definition."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._core.list_item import Item
from ansible_collections.corral.virt.plugins.module_utils._domain import (
    fields_device,
    fields_disk,
    fields_domain,
    fields_interface,
    xml_validate,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.fields_graphics import GRAPHICS
from ansible_collections.corral.virt.plugins.module_utils._network import fields_network
from ansible_collections.corral.virt.plugins.module_utils._xml import constraints, row, run_arguments
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse
from ansible_collections.corral.virt.tests.unit.plugins.module_utils import option_samples

GUEST = """<domain type='kvm'><name>web1</name><memory unit='KiB'>1048576</memory>
  <currentMemory unit='KiB'>1048576</currentMemory><vcpu current='1'>4</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>{top}<devices>{devices}</devices></domain>"""
NIC = """<interface type='network'><mac address='52:54:00:00:00:01'/><source network='lan'/>{}
  <alias name='ua-lan'/></interface>"""
TITLE = {"title": "a"}  # a change that has nothing to do with the rest


def among_options(options: t.Mapping[str, t.Any]) -> list[str]:
    """What is wrong with options of virt_domain, before anything is looked at."""
    try:
        option_samples.understood(options)
    except BadInput as error:
        return error.problems
    return []


def in_definition(options: t.Mapping[str, t.Any], devices: str = "", top: str = "") -> list[str]:
    """What is wrong with a guest once these options are written into it."""
    xml, spec = GUEST.format(devices=devices, top=top), option_samples.understood(options)
    return xml_validate.problems(xml, spec, fields_domain.graft(xml, spec))


def filtered(name: str, *parameters: dict[str, t.Any]) -> dict[str, t.Any]:
    """An interface with a network filter."""
    return {"interfaces": [{"name": "lan", "network": "lan", "filterref": {"name": name, "parameters": [*parameters]}}]}


USB = {"name": "stick", "type": "usb", "vendor": "0x1d6b", "product": "0x0002"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"interfaces": [{"name": "lan", "type": "user", "bridge": "br0"}]},
            ["interfaces[lan].bridge of web1: it applies to type bridge, not user"],
        ),
        ({"interfaces": [{"name": "lan", "bridge": "br0"}]}, []),
        ({"interfaces": [{"name": "lan", "type": "user", "bridge": "br0", "state": "absent"}]}, []),
        ({"balloon": {"model": "none", "stats_period_s": 0}}, []),
        (
            {"balloon": {"model": "none", "stats_period_s": 5}},
            [
                (
                    "balloon.stats_period_s of web1: it applies to balloon.model virtio, virtio-transitional or "
                    "virtio-non-transitional, not none"
                )
            ],
        ),
        (
            {"hostdevs": [{**USB, "rom": {"bar": True}}]},
            ["hostdevs[stick].rom.bar of web1: it applies to type pci, not usb"],
        ),
        (
            {"disks": [{"name": "a", "device": "cdrom", "copy_on_read": True}]},
            ["disks[a].copy_on_read of web1: it applies to device disk, not cdrom"],
        ),
        (
            {"features": {"hyperv": {"stimer": False, "stimer_direct": True}}},
            ["features.hyperv.stimer_direct of web1: it requires features.hyperv.stimer true"],
        ),
        (
            {"disks": [{"name": "a", "readonly": True, "copy_on_read": True}]},
            ["disks[a].copy_on_read of web1: it applies to readonly false, not true"],
        ),
        ({"controllers": [{"type": "scsi", "index": 0, "queues": 4}]}, []),
        (
            {"controllers": [{"type": "usb", "index": 0, "queues": 4}]},
            ["controllers[usb-0].queues of web1: it applies to type scsi, not usb"],
        ),
        (
            {"graphics": {"type": "vnc", "tls": True}},
            ["graphics.tls of web1: it applies to type spice, not vnc"],
        ),
    ],
)
def test_an_option_that_means_nothing_beside_another(options: dict[str, t.Any], told: list[str]) -> None:
    assert among_options(options) == told


def test_an_option_that_is_off_means_nothing_anywhere() -> None:
    assert among_options({"hostdevs": [{**USB, "rom": {"bar": False}}]}) == []


def test_an_empty_option_means_nothing_anywhere() -> None:
    assert among_options({"interfaces": [{"name": "lan", "type": "user", "bridge": ""}]}) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            filtered("", {"name": "IP", "value": "192.0.2.7"}),
            ["interfaces[lan].filterref.parameters of web1: it requires filterref.name"],
        ),
        (filtered("clean-traffic", {"name": "IP", "value": "192.0.2.7"}), []),
        (filtered("", {"name": "IP", "state": "absent"}), []),
        (filtered(""), []),
    ],
)
def test_entries_that_mean_nothing_beside_another_option(options: dict[str, t.Any], told: list[str]) -> None:
    assert among_options(options) == told


@pytest.mark.parametrize(
    "options",
    [
        {"clock": {"offset": "timezone"}},
        {"hostdevs": [{"name": "gpu", "type": "pci"}]},
        {"serial": {"type": "tcp"}},
        {"cpu": {"features": [{"name": "vmx", "policy": "require"}]}},
        {"interfaces": [{"name": "lan", "type": "bridge"}]},
    ],
)
def test_what_an_option_lacks_may_be_there(options: dict[str, t.Any]) -> None:
    assert among_options(options) == []


ZONE = "<clock offset='timezone'{}/>"


@pytest.mark.parametrize(
    ("top", "options", "told"),
    [
        (ZONE.format(""), TITLE, []),
        (ZONE.format(" timezone='Europe/Paris'"), {"clock": {"timezone": "Europe/Rome"}}, []),
        ("<clock offset='utc'/>", {"clock": {"timezone": ""}, **TITLE}, []),
        (
            "<clock offset='utc'/>",
            {"clock": {"offset": "timezone"}},
            ["clock.timezone of web1: clock.offset timezone requires it"],
        ),
        (
            "<clock offset='utc' timezone=''/>",
            {"clock": {"offset": "timezone"}},
            ["clock.timezone of web1: clock.offset timezone requires it"],
        ),
        (
            ZONE.format(" timezone='Europe/Paris'"),
            {"clock": {"timezone": ""}},
            ["clock.timezone of web1: clock.offset timezone requires it"],
        ),
        (
            "<clock offset='utc'/>",
            {"clock": {"timezone": "Europe/Rome"}},
            ["clock.timezone of web1: it applies to clock.offset timezone, not utc"],
        ),
        ("", {"clock": {"timezone": "Europe/Rome"}}, ["clock.timezone of web1: it requires clock.offset timezone"]),
    ],
)
def test_a_value_that_requires_another_field(top: str, options: dict[str, t.Any], told: list[str]) -> None:
    assert in_definition(options, top=top) == told


@pytest.mark.parametrize(
    ("top", "options", "told"),
    [
        (
            "",
            {"cpu": {"features": [{"name": "vmx", "policy": "require"}]}},
            ["cpu.features of web1: it requires cpu.mode"],
        ),
        ("<cpu><feature name='vmx' policy='require'/></cpu>", TITLE, []),
        ("<cpu mode='host-model'/>", {"cpu": {"features": [{"name": "vmx", "policy": "require"}]}}, []),
        (
            "<cpu mode='host-model'/>",
            {"cpu": {"features": [{"name": "vmx"}]}},
            ["cpu.features[vmx] of web1: creating it requires policy"],
        ),
        (
            "<cpu mode='host-model'/>",
            {"numa": {"nodes": [{"cell": 0}]}, **TITLE},
            [
                "numa.nodes[0] of web1: creating it requires mode and nodeset",
                "numa.nodes[0] of web1: there is no such cell; define it in numa.cells",
            ],
        ),
    ],
)
def test_entries_of_a_list_have_what_they_need(top: str, options: dict[str, t.Any], told: list[str]) -> None:
    assert in_definition(options, top=top) == told


EMPTY = "must not be empty; set it, or state: absent to remove the entry"
NATIVE = "io native requires cache none or directsync; set both"
DISK = (
    "<disk type='file'><driver name='qemu' type='raw'{}/><source file='/a'/><target dev='vda' bus='virtio'/>"
    "<alias name='ua-system'/></disk>"
)


@pytest.mark.parametrize(
    ("devices", "options", "told"),
    [
        (DISK.format(""), {"disks": [{"name": "system", "io": "native"}]}, [f"disks[system] of web1: {NATIVE}"]),
        (DISK.format(" cache='none'"), {"disks": [{"name": "system", "io": "native"}]}, []),
        (
            DISK.format(" io='native'"),
            {"disks": [{"name": "system", "serial": "a"}]},
            [f"disks[system] of web1: {NATIVE}"],
        ),
        (DISK.format(" io='native'"), {"disks": [{"name": "system"}], **TITLE}, []),
        (
            DISK.format(" io='native'"),
            {"disks": [{"name": "system"}, {"name": "systematic", "source": "/b"}]},
            [],
        ),
        (DISK.format(""), {"disks": [{"name": "b", "source": "/b", "io": "native"}]}, [f"disks[b] of web1: {NATIVE}"]),
        (
            "",
            {"filesystems": [{"name": "share"}]},
            ["filesystems[share] of web1: creating it requires source"],
        ),
        (
            "",
            {"filesystems": [{"name": "share", "source": ""}]},
            [f"filesystems[share] of web1: source {EMPTY}"],
        ),
        (
            "<filesystem type='mount'><source dir='/a'/><target dir='share'/></filesystem>",
            {"filesystems": [{"name": "share", "source": ""}]},
            [f"filesystems[share] of web1: source {EMPTY}"],
        ),
        (
            DISK.format(""),
            {"disks": [{"name": "system", "serial": "a"}, {"name": "vda", "state": "absent"}]},
            ["disks[system] of web1: another entry means the same device; list it once"],
        ),
    ],
)
def test_an_entry_that_is_new_or_was_edited(devices: str, options: dict[str, t.Any], told: list[str]) -> None:
    assert in_definition(options, devices) == told


@pytest.mark.parametrize(
    ("table", "option", "entry", "state"),
    [
        (fields_domain.DOMAIN, "vcpus.pinning", {"vcpu": 0, "cpuset": ""}, "absent"),
        (fields_domain.DOMAIN, "vcpus.pinning", {"vcpu": 0, "cpuset": "1"}, "present"),
        (fields_domain.DOMAIN, "vcpus.pinning", {"vcpu": 0}, "present"),
        (fields_domain.DOMAIN, "vcpus.pinning", {"vcpu": 0, "state": "absent"}, "absent"),
        (fields_domain.DOMAIN, "vcpus.iothread_pinning", {"iothread": 1, "cpuset": ""}, "absent"),
        (fields_domain.DOMAIN, "numa.nodes", {"cell": 0, "mode": "strict", "nodeset": ""}, "present"),
        (fields_domain.DOMAIN, "filesystems", {"name": "share", "source": ""}, "present"),
        (fields_interface.INTERFACE, "filterref.parameters", {"name": "IP", "value": ""}, "absent"),
        (fields_network.NETWORK, "dns.txts", {"name": "a", "value": ""}, "absent"),
        (fields_network.NETWORK, "dns.hosts", {"ip": "192.0.2.1", "hostnames": []}, "absent"),
        (fields_network.NETWORK, "dns.forwarders", {"address": "192.0.2.1", "domain": ""}, "present"),
    ],
)
def test_an_empty_value_removes_the_entry_that_is_nothing_else(
    table: row.Table, option: str, entry: dict[str, t.Any], state: str
) -> None:
    found = t.cast("row.Items", table[option])
    wrong: list[str] = []
    (item,) = run_arguments.items_of(found, [entry], "web1", wrong, option)
    assert (item.state, wrong) == (state, [])


def test_a_new_entry_is_judged_with_what_is_made_for_it() -> None:
    assert in_definition({"disks": [{"name": "b", "source": "/b", "rotation_rate": 7200}]}) == [
        "disks[b].rotation_rate of web1: it applies to bus scsi, sata or ide, not virtio"
    ]


STICK = (
    "<hostdev type='usb' managed='yes'><alias name='ua-stick'/><source><vendor id='0x1d6b'/><product id='0x0002'/>"
    "</source>{}</hostdev>"
)
SERIAL = "<serial type='{}'><source path='/dev/pts/1'{}/><target port='0'/></serial>"


@pytest.mark.parametrize(
    ("devices", "options", "told"),
    [
        (
            STICK.format(""),
            {"hostdevs": [{"name": "stick", "rom": {"bar": False}}]},
            ["hostdevs[stick].rom.bar of web1: it applies to type pci, not usb"],
        ),
        (STICK.format("<rom bar='off'/>"), {"hostdevs": [{"name": "stick", "boot_order": 1}]}, []),
        (SERIAL.format("pty", ""), {"serial": {"append": False}, **TITLE}, []),
        (SERIAL.format("pty", ""), {"serials": [{"port": 0, "append": False}], **TITLE}, []),
        (SERIAL.format("file", " append='off'"), {"serials": [{"port": 0, "type": "pty"}]}, []),
        (
            SERIAL.format("pty", ""),
            {"serial": {"append": True}},
            ["serial.append of web1: it applies to serial.type file, not pty"],
        ),
        (
            "<controller type='scsi' index='0'/>",
            {"controllers": [{"type": "scsi", "index": 0, "queues": 4}]},
            [],
        ),
    ],
)
def test_a_field_that_means_nothing_in_its_definition(devices: str, options: dict[str, t.Any], told: list[str]) -> None:
    assert in_definition(options, devices) == told


NO_HOST = "it applies to type tcp, not pty"
WITH_HOST = "<serial type='pty'><source host='a'/><target port='{}'/></serial>"
SPARE = Item("1", "absent")


@pytest.mark.parametrize(
    ("found", "given", "changed", "told"),
    [
        # of an entry that is new, all is looked at; of one that is not, what was edited, and what goes with that
        ("0", {"serials": [Item("0", fields={"host": "a"})]}, {"serials[0]"}, [("serials[0].host", NO_HOST)]),
        ("0", {"serials": [Item("0", fields={"host": "a"})]}, {"serials[0].host"}, [("serials[0].host", NO_HOST)]),
        ("0", {"serials": [Item("0", fields={"log": "/a"})]}, {"serials[0].type"}, [("serials[0].host", NO_HOST)]),
        ("0", {"serials": [Item("0", fields={"log": "/a"})]}, {"serials[0].log"}, []),
        ("0", {"serials": [Item("0")]}, {"title"}, []),
        ("0", {"serials": [Item("0"), SPARE]}, {"serials[1]"}, []),
        ("01", {"serials": [Item("0"), Item("1")]}, {"serials[1]"}, [("serials[1].host", NO_HOST)]),
        ("01", {"serials": [Item("0"), SPARE]}, {"serials[1]"}, []),
        ("0", {"consoles": [Item("0")]}, {"serials[0]"}, []),
        # nobody says what an edit changed
        ("0", {"serials": [Item("0")]}, None, [("serials[0].host", NO_HOST)]),
    ],
)
def test_the_entries_of_a_list_that_an_edit_touched(
    found: str, given: dict[str, t.Any], changed: set[str] | None, told: list[tuple[str, str]]
) -> None:
    root = parse(f"<domain><devices>{''.join(map(WITH_HOST.format, found))}</devices></domain>")
    assert list(constraints.violations(fields_device.PORTS, given, root, changed)) == told


NO_CDROM, NO_USB = "it applies to device disk, not cdrom", "it applies to type pci, not usb"


@pytest.mark.parametrize(
    ("field", "xml", "given", "told"),
    [
        # an element that is not there says nothing; a word that is there says something
        ("transient", "<disk device='cdrom'/>", {}, []),
        (
            "transient",
            "<disk type='file' device='cdrom'><source file='/a'/><transient/></disk>",
            {},
            [("transient", NO_CDROM)],
        ),
        ("rom.bar", "<hostdev type='usb'/>", {}, []),
        ("rom.bar", "<hostdev type='usb'><rom bar='off'/></hostdev>", {}, [("rom.bar", NO_USB)]),
        ("rom.bar", "<hostdev type='usb'><rom bar='on'/></hostdev>", {}, [("rom.bar", NO_USB)]),
        # among options
        ("transient", "", {"device": "cdrom", "transient": False}, []),
        ("transient", "", {"device": "cdrom", "transient": True}, [("transient", NO_CDROM)]),
        ("rom.bar", "", {"type": "usb", "rom.bar": False}, []),
        ("rom.bar", "", {"type": "usb", "rom.bar": True}, [("rom.bar", NO_USB)]),
    ],
)
def test_what_is_off_means_nothing_where_silence_says_the_same(
    field: str, xml: str, given: dict[str, t.Any], told: list[tuple[str, str]]
) -> None:
    rows: row.Table = fields_disk.DISK if field in fields_disk.DISK else fields_device.HOSTDEV
    table = {one: rows[one] for one in ("type", "device", "source", "readonly", field) if one in rows}
    assert list(constraints.violations(table, given, parse(xml) if xml else None)) == told


@pytest.mark.parametrize(
    ("options", "devices", "places"),
    [
        ({"vcpus": {"topology": {"sockets": 2}}}, "", []),
        (
            {"vcpus": {"topology": {"dies": 1, "clusters": 2}}},
            "",
            [("vcpus.topology.dies", (6, 1)), ("vcpus.topology.clusters", (10, 0))],
        ),
        (
            {"disks": [{"name": "data", "bus": "sata", "source": "/d", "rotation_rate": 1}]},
            "",
            [("disks[data].rotation_rate", (7, 3))],
        ),
        ({"interfaces": [{"name": "lan", "network": "lan", "mtu": 1400}]}, "", []),
        ({"interfaces": [{"name": "lan", "isolated": True}]}, NIC.format(""), [("interfaces[lan].isolated", (6, 1))]),
        ({"interfaces": [{"name": "lan", "isolated": True}]}, NIC.format("<port isolated='yes'/>"), []),
        (
            {"interfaces": [{"name": "lan", "isolated": True, "mtu": 1400}]},
            NIC.format("<port isolated='yes'/>"),
            [],
        ),
        (
            {"interfaces": [{"name": "lan", "state": "absent", "isolated": True}]},
            NIC.format("<port isolated='yes'/>"),
            [],
        ),
    ],
)
def test_what_only_a_recent_libvirt_knows(
    options: dict[str, t.Any], devices: str, places: list[tuple[str, tuple[int, int]]]
) -> None:
    """Of what an edit wrote; what was there is left alone."""
    xml, spec = GUEST.format(devices=devices, top=""), option_samples.understood(options)
    assert xml_validate.recent(spec, fields_domain.graft(xml, spec)) == places


def test_what_is_taken_away_asks_for_no_libvirt() -> None:
    emptied = {"filesystems": (Item("share", fields={"binary": ""}),)}
    assert not list(constraints.recent(fields_domain.DOMAIN, emptied, {"filesystems[share].binary"}))
    more = {"filesystems": (Item("share", fields={"binary": "", "xattr": True}),)}
    written = {"filesystems[share].binary", "filesystems[share].xattr"}
    assert list(constraints.recent(fields_domain.DOMAIN, more, written)) == [("filesystems[share].xattr", (6, 2))]


def test_what_only_a_recent_libvirt_knows_of_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GRAPHICS, "password", row.Row("./@passwd", since=(9, 9)))  # there is none yet
    xml = GUEST.format(devices="", top="")
    spec = option_samples.understood({"graphics": {"type": "vnc", "password": "p"}})
    assert xml_validate.recent(spec, fields_domain.graft(xml, spec)) == [("graphics.password", (9, 9))]
