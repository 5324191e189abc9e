"""What libvirt would refuse of a definition, or silently make something else of, is told before it gets there."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._domain import fields_domain, xml_validate
from ansible_collections.corral.virt.tests.unit.plugins.module_utils import option_samples

GUEST = """<domain type='kvm'><name>web1</name><memory unit='KiB'>1048576</memory>
  <currentMemory unit='KiB'>1048576</currentMemory><vcpu current='1'>4</vcpu>
  <os{os}><type arch='x86_64' machine='q35'>hvm</type>{boot}</os>{top}<devices>{devices}</devices></domain>"""
DISK = "<disk type='file'><source file='/{0}'/><target dev='{0}' bus='{1}'/>{2}</disk>"
CDROM = "<disk type='file' device='cdrom'><target dev='sda' bus='sata'/><readonly/></disk>"
TITLE = {"title": "a"}  # a change that has nothing to do with the rest


def guest(devices: str = "", *, top: str = "", boot: str = "", os: str = "") -> str:
    """A guest of 1 GiB and 4 vCPUs."""
    return GUEST.format(devices=devices, top=top, boot=boot, os=os)


def problems(xml: str, options: t.Mapping[str, t.Any]) -> list[str]:
    """What is wrong with the guest once these options of virt_domain are written into it."""
    spec = option_samples.understood(options)
    return xml_validate.problems(xml, spec, fields_domain.graft(xml, spec))


NATIVE = "<driver name='qemu' type='raw' io='native'/><alias name='ua-system'/>"
WEBSOCKET = "<graphics type='spice' websocket='5950'><listen type='address' address='127.0.0.1'/></graphics>"
PASSWORD = "<graphics type='spice'/><graphics type='vnc' passwd='more than 8'/>"


@pytest.mark.parametrize(
    ("xml", "options", "told"),
    [
        (guest(DISK.format("vda", "virtio", NATIVE)), TITLE, []),
        (guest(DISK.format("vda", "virtio", NATIVE)), {}, []),
        (guest(WEBSOCKET), {"graphics": {"listen": "192.0.2.7"}}, []),
        (
            guest(WEBSOCKET),
            {"graphics": {"websocket": 5951}},
            ["graphics.websocket of web1: it applies to type vnc, not spice"],
        ),
        (
            guest(PASSWORD),
            {"graphics": {"type": "vnc", "port": 5950}},
            ["graphics.password of web1: VNC uses only 8 characters; set at most 8"],
        ),
        (guest(PASSWORD), {"graphics": {"type": "spice", "port": 5950}}, []),
        (guest(PASSWORD), {"graphics": {"type": "none"}}, []),
        (guest(PASSWORD), TITLE, []),
        (guest("<graphics type='vnc' passwd='more than 8'/>"), TITLE, []),
    ],
)
def test_what_nobody_touched_is_not_looked_at(xml: str, options: dict[str, t.Any], told: list[str]) -> None:
    assert problems(xml, options) == told


NAMED = DISK.format("vda", "virtio", "<alias name='ua-system'/>")
TWICE = "another entry means the same device; list it once"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"disks": [{"name": "system", "cache": "none"}]}, []),
        (
            {"disks": [{"name": "system", "cache": "none"}, {"name": "vda", "serial": "a"}]},
            [f"disks[vda] of web1: {TWICE}"],
        ),
        ({"disks": [{"name": "system", "state": "absent"}]}, []),
        (
            {"disks": [{"name": "system", "cache": "none"}, {"name": "vda", "state": "absent"}]},
            [f"disks[system] of web1: {TWICE}"],
        ),
        ({"disks": [{"name": "gone", "state": "absent"}, {"name": "system", "state": "absent"}]}, []),
        ({**TITLE, "disks": [{"name": "vda", "state": "present"}, {"name": "gone", "state": "absent"}]}, []),
    ],
)
def test_two_names_of_one_device(options: dict[str, t.Any], told: list[str]) -> None:
    assert problems(guest(NAMED), options) == told


def ports(count: int) -> str:
    """PCI controllers."""
    return "".join(f"<controller type='pci' index='{index}' model='pcie-root-port'/>" for index in range(count))


def controllers(kind: str, *indices: int) -> str:
    """Controllers of a type."""
    return "".join(f"<controller type='{kind}' index='{index}'/>" for index in indices)


SCSI, SATA = controllers("scsi", 0, 1, 2), controllers("sata", 0)
SERIAL, CCID, USB = controllers("virtio-serial", 0, 1, 2), controllers("ccid", 0, 1, 2), controllers("usb", 0, 1, 2)
CHANNEL = "<channel type='pty'><target type='virtio' name='a'/>{}</channel>"
VIRTIO_CONSOLE = "<console type='pty'><target type='virtio' port='0'/></console>"


USB_OFF = "<controller type='usb' index='0' model='none'/>"
NO_USB = (
    "controllers[usb-0] of web1: model none turns USB off, and the guest is to have devices on USB ({}); set another "
    "model such as qemu-xhci, or choose another bus for them"
)


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ({"disks": [{"name": "stick", "source": "/srv/a", "bus": "usb"}]}, "disk"),
        ({"inputs": [{"type": "tablet", "bus": "usb"}]}, "input"),
        ({"hostdevs": [{"name": "key", "type": "usb", "vendor": "0x1234", "product": "0x5678"}]}, "hostdev"),
        ({"disks": [{"name": "data", "source": "/srv/a", "bus": "virtio"}]}, ""),
        (TITLE, ""),
    ],
)
def test_devices_on_a_bus_that_is_turned_off(options: dict[str, t.Any], kinds: str) -> None:
    assert not problems(guest(controllers("usb", 0)), options)
    assert problems(guest(USB_OFF), options) == [NO_USB.format(kinds)] * bool(kinds)
    more = {"controllers": [{"type": "usb", "index": 0, "model": "qemu-xhci"}]}
    assert not problems(guest(USB_OFF), {**options, **more})


@pytest.mark.parametrize(
    ("machine", "remedy"),
    [
        ("q35", "machine q35 has no IDE; use bus sata or scsi, or set machine: pc"),
        ("pc-q35-7.2", "machine q35 has no IDE; use bus sata or scsi, or set machine: pc"),
        ("virt", "machine virt has no IDE; use bus sata or scsi"),
        ("pc", ""),
        ("pc-i440fx-7.2", ""),
    ],
)
def test_ide_is_refused_before_disks_are_made_for_a_machine_without_it(machine: str, remedy: str) -> None:
    there = guest(DISK.format("vda", "virtio", "")).replace("<os>", f"<os><type machine='{machine}'>hvm</type>")
    cdrom = {"disks": [{"name": "cd", "device": "cdrom", "bus": "ide"}]}
    assert problems(there, cdrom) == [f"disks[cd].bus of web1: {remedy}"] * bool(remedy)
    more = {"controllers": [{"type": "ide", "index": 0}]}
    assert problems(there, more) == [f"controllers[ide-0] of web1: {remedy}"] * bool(remedy)
    assert not problems(there, {"disks": [{"name": "cd", "device": "cdrom"}]})


def placed(kind: str, controller: int) -> str:
    """An address."""
    return f"<address type='{kind}' controller='{controller}' bus='0' target='0' unit='0'/>"


def in_use(devices: str, controller: str) -> bool:
    """Whether a controller cannot be removed."""
    kind, _dash, index = controller.rpartition("-")
    options = {"controllers": [{"type": kind, "index": int(index), "state": "absent"}]}
    result = problems(guest(devices), options)
    reason = "devices are attached to it, or other controllers follow it; remove those first"
    assert result in ([], [f"controllers[{controller}] of web1: {reason}"])
    assert f"<controller type='{kind}' index='{index}'" in devices, "there is nothing to remove"
    return bool(result)


@pytest.mark.parametrize(
    ("devices", "controller", "used"),
    [
        (ports(3), "pci-2", False),
        (ports(3), "pci-1", True),
        (ports(3), "pci-0", True),
        (ports(1), "pci-0", False),
        (ports(3) + "<memballoon><address type='pci' bus='0x02'/></memballoon>", "pci-2", True),
        (ports(3) + "<memballoon><address type='pci' bus='0x01'/></memballoon>", "pci-2", False),
        (ports(17) + "<memballoon><address type='pci' bus='0x10'/></memballoon>", "pci-16", True),
        (ports(11) + "<memballoon><address type='pci' bus='0x10'/></memballoon>", "pci-10", True),
        (ports(2) + "<memballoon><address type='pci'/></memballoon>", "pci-1", False),
        (ports(1) + "<memballoon><address type='pci'/></memballoon>", "pci-0", True),
    ],
)
def test_a_pci_controller_goes_when_it_is_the_last_and_empty(devices: str, controller: str, used: bool) -> None:
    assert in_use(devices, controller) == used


@pytest.mark.parametrize(
    ("devices", "controller", "used"),
    [
        (SCSI, "scsi-0", False),
        (SCSI + DISK.format("sda", "scsi", ""), "scsi-0", True),
        (SCSI + DISK.format("sda", "scsi", ""), "scsi-1", False),
        (SCSI + DISK.format("sda", "scsi", placed("drive", 1)), "scsi-0", True),  # it would be made anew
        (SCSI + DISK.format("sda", "scsi", placed("drive", 1)), "scsi-1", True),
        (SCSI + DISK.format("sda", "scsi", placed("drive", 1)), "scsi-2", False),
        (
            (SCSI + DISK.format("sda", "scsi", placed("drive", 1)) + DISK.format("sdb", "scsi", placed("drive", 0))),
            "scsi-1",
            True,
        ),
        (SCSI + DISK.format("sda", "sata", placed("drive", 1)), "scsi-1", False),
        (SATA + CDROM, "sata-0", True),
        (SATA + DISK.format("vda", "virtio", "<address type='pci' bus='0x00'/>"), "sata-0", False),
    ],
)
def test_a_controller_of_disks_goes_when_they_are_gone(devices: str, controller: str, used: bool) -> None:
    assert in_use(devices, controller) == used


@pytest.mark.parametrize(
    ("devices", "controller", "used"),
    [
        (SERIAL, "virtio-serial-0", False),
        (SERIAL + CHANNEL.format(""), "virtio-serial-0", True),
        (SERIAL + CHANNEL.format(""), "virtio-serial-1", False),
        (SERIAL + VIRTIO_CONSOLE, "virtio-serial-0", True),
        (SERIAL + "<console type='pty'><target type='sclp' port='0'/></console>", "virtio-serial-0", False),
        (SERIAL + CHANNEL.format(placed("virtio-serial", 1)), "virtio-serial-1", True),
        (SERIAL + CHANNEL.format(placed("virtio-serial", 1)), "virtio-serial-0", False),
        (SERIAL + CHANNEL.format(placed("virtio-serial", 1)), "virtio-serial-2", False),
        (SERIAL + CHANNEL.format("<address type='virtio-serial' bus='0' port='1'/>"), "virtio-serial-0", True),
        (SERIAL + CHANNEL.format("<address type='virtio-serial' bus='0' port='1'/>"), "virtio-serial-1", False),
        (SERIAL + CHANNEL.format(placed("ccid", 1)), "virtio-serial-1", False),
        (CCID, "ccid-0", False),
        (CCID + "<smartcard mode='host'/>", "ccid-0", True),
        (CCID + "<smartcard mode='host'/>", "ccid-1", False),
        (CCID + f"<smartcard mode='host'>{placed('ccid', 1)}</smartcard>", "ccid-1", True),
        (CCID + f"<smartcard mode='host'>{placed('ccid', 1)}</smartcard>", "ccid-0", False),
        (CCID + f"<smartcard mode='host'>{placed('ccid', 1)}</smartcard>", "ccid-2", False),
    ],
)
def test_a_controller_of_ports_and_smartcards_goes_when_they_are_gone(
    devices: str, controller: str, used: bool
) -> None:
    assert in_use(devices, controller) == used


@pytest.mark.parametrize(
    ("devices", "controller", "used"),
    [
        (USB, "usb-0", False),
        (USB + "<redirdev bus='usb' type='spicevmc'/>", "usb-0", True),
        (USB + "<redirdev bus='usb' type='spicevmc'/>", "usb-1", False),
        (USB + "<hub type='usb'/>", "usb-0", True),
        (USB + "<hostdev type='usb'><source><address bus='1' device='2'/></source></hostdev>", "usb-0", True),
        (USB + "<hostdev type='usb'><source><address bus='1' device='2'/></source></hostdev>", "usb-1", False),
        (USB + "<hostdev type='pci'><source/></hostdev>", "usb-0", False),
        (USB + "<input type='tablet' bus='usb'/>", "usb-0", True),
        (USB + "<input type='mouse' bus='ps2'/>", "usb-0", False),
        (USB + DISK.format("sda", "usb", ""), "usb-0", True),
        (USB + DISK.format("sda", "usb", "<address type='usb' bus='0' port='1'/>"), "usb-1", False),
        (USB + "<input type='tablet' bus='usb'><address type='usb' bus='1' port='1'/></input>", "usb-1", True),
        (USB + "<input type='tablet' bus='usb'><address type='usb' bus='1' port='1'/></input>", "usb-2", False),
        (USB + "<sound model='usb'><address type='usb' port='1'/></sound>", "usb-0", True),
        (USB + "<sound model='usb'><address type='usb' port='1'/></sound>", "usb-1", False),
        (USB + "<sound model='usb'><address type='pci' bus='1'/></sound>", "usb-1", False),
    ],
)
def test_a_controller_of_usb_goes_when_its_devices_are_gone(devices: str, controller: str, used: bool) -> None:
    assert in_use(devices, controller) == used


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"controllers": [{"type": "scsi", "index": 0, "queues": 4}]}, []),
        (
            {
                "controllers": [
                    {"type": "scsi", "index": 2, "state": "absent"},
                    {"type": "scsi", "index": 1, "state": "absent"},
                ]
            },
            [],
        ),
        ({**TITLE, "disks": [{"name": "scsi-0", "state": "absent"}]}, []),
    ],
)
def test_a_controller_that_stays_can_have_devices(options: dict[str, t.Any], told: list[str]) -> None:
    assert problems(guest(SCSI + DISK.format("sda", "scsi", "")), options) == told


def test_a_disk_without_a_target_is_libvirts_to_refuse() -> None:
    options = {"xml": "<domain><devices><disk type='file'><source file='/a'/></disk></devices></domain>"}
    assert problems(guest(NAMED), options) == []


PORT = "<serial type='pty'><target port='0'/></serial>"
MIRROR = "<console type='pty'><target type='serial' port='0'/></console>"
VIRTIO_PORT = "<console type='pty'><target type='virtio' port='1'/></console>"
LOG = {"log": "/var/log/web1"}
FIRST = "this console is the first serial port; set it with serial, or use another port"
NUMBERS = "libvirt numbers consoles without gaps from 0, which is the first serial port if there is one; set port"


@pytest.mark.parametrize(
    ("devices", "options", "told"),
    [
        (PORT + MIRROR, {"consoles": [{"port": 0, **LOG}]}, [f"consoles[0] of web1: {FIRST}"]),
        (PORT + MIRROR, {"serial": LOG}, []),
        (PORT + MIRROR, TITLE, []),
        (MIRROR, {"consoles": [{"port": 0, **LOG}]}, []),
        (PORT + MIRROR + VIRTIO_PORT, {"consoles": [{"port": 1, **LOG}]}, []),
        (PORT + MIRROR, {"consoles": [{"port": 0, "state": "absent"}]}, [f"consoles[0] of web1: {FIRST}"]),
        (PORT, {**TITLE, "consoles": [{"port": 0, "state": "absent"}]}, [f"consoles[0] of web1: {FIRST}"]),
        (PORT, {**TITLE, "consoles": [{"port": 1, "state": "absent"}]}, []),
        (PORT, {"consoles": [{"port": 0}]}, [f"consoles[0] of web1: {NUMBERS} 1"]),
        (PORT, TITLE, []),
        ("", {**TITLE, "consoles": [{"port": 0, "state": "absent"}]}, []),
        (f"{PORT}<console type='pty'/>", {"consoles": [{"port": 1, **LOG}]}, []),
    ],
)
def test_the_console_that_is_the_first_serial_port(devices: str, options: dict[str, t.Any], told: list[str]) -> None:
    assert problems(guest(devices), options) == told


@pytest.mark.parametrize(
    ("devices", "options", "told"),
    [
        (VIRTIO_CONSOLE, {"consoles": [{"port": 0, **LOG}]}, []),
        (VIRTIO_CONSOLE, {"consoles": [{"port": 2}]}, [f"consoles[2] of web1: {NUMBERS} 1"]),
        (PORT + MIRROR, {"consoles": [{"port": 1}]}, []),
        (PORT + MIRROR, {"consoles": [{"port": 3}]}, [f"consoles[3] of web1: {NUMBERS} 1"]),
        (PORT + VIRTIO_PORT, {"serial": LOG}, []),
        (PORT + VIRTIO_CONSOLE, {"serial": LOG}, [f"consoles[0] of web1: {NUMBERS} 1"]),
        (PORT + VIRTIO_CONSOLE, TITLE, []),
        (VIRTIO_CONSOLE, {"serials": [{"port": 0}]}, [f"consoles[0] of web1: {NUMBERS} 1"]),
        (PORT + VIRTIO_CONSOLE, {"serials": [{"port": 0, **LOG}]}, []),
        (PORT + VIRTIO_CONSOLE, {"channels": [{"name": "a"}]}, []),
    ],
)
def test_consoles_are_numbered_without_gaps(devices: str, options: dict[str, t.Any], told: list[str]) -> None:
    assert problems(guest(devices), options) == told


def cells(*each: str, distances: str = "") -> str:
    """NUMA cells with these attributes; distances are of the first."""
    ends = [f">{distances}</cell>", *["/>"] * len(each)]
    found = "".join(f"<cell {attributes}{end}" for attributes, end in zip(each, ends))
    return f"<cpu><numa>{found}</numa></cpu>"


HALF, HALF_MIB = "memory='524288' unit='KiB'", {"memory": "1GiB"}
EVEN = cells(f"id='0' cpus='0-1' {HALF}", f"id='1' cpus='2-3' {HALF}")
DIMM = "<memory model='dimm'><target><size unit='KiB'>524288</size></target></memory>"


@pytest.mark.parametrize(
    ("xml", "options", "told"),
    [
        (guest(top=EVEN), {"memory": {"hard_limit": "2GiB"}}, []),
        (
            guest(top=EVEN),
            {"memory": {"maximum": "2GiB"}},
            [("numa.cells of web1: the cells have 1GiB together, and memory.maximum is 2GiB; make them equal")],
        ),
        (
            guest(top=EVEN),
            {"numa": {"cells": [{"id": 0, "memory": "1GiB"}]}},
            ["numa.cells of web1: the cells have 1536MiB together, and memory.maximum is 1GiB; make them equal"],
        ),
        (guest(DIMM, top=EVEN), {"memory": {"maximum": "2GiB"}}, []),
        (guest(top=cells("id='0' cpus='0-3'")), {"memory": {"maximum": "2GiB"}}, []),
        (
            guest(top=EVEN).replace("<memory unit='KiB'>1048576</memory>", "").replace("currentMemory", "x"),
            {"memory": {"hard_limit": "2GiB"}},
            [],
        ),
    ],
)
def test_cells_have_the_memory_of_the_guest(xml: str, options: dict[str, t.Any], told: list[str]) -> None:
    assert problems(xml, options) == told


ROOM = "<maxMemory slots='2' unit='KiB'>{}</maxMemory>"


@pytest.mark.parametrize(
    ("xml", "told"),
    [
        (guest(top=ROOM.format(1048576)), []),
        (guest(top=ROOM.format(2097152)), []),
        (
            guest(top=ROOM.format(524288)),
            ["memory.hotplug_maximum of web1: 512MiB is below memory.maximum, 1GiB; set more"],
        ),
        (guest(top=ROOM.format(524288)).replace("<memory unit='KiB'>1048576</memory>", ""), []),
    ],
)
def test_memory_cannot_be_above_what_can_be_plugged(xml: str, told: list[str]) -> None:
    assert problems(xml, {"memory": {"hard_limit": "2GiB"}}) == told


SIBLINGS = "<distances><sibling id='0' value='{}'/><sibling id='{}' value='{}'/></distances>"
DISTANT = "10 is the distance of a cell to itself, and to no other, not"
ONCE = "each of the 4 vcpus, numbered from 0, must be in one cell, not"
GONE = "there is no such cell; define it in numa.cells"


@pytest.mark.parametrize(
    ("top", "told"),
    [
        (EVEN, []),
        (
            cells(f"id='0' cpus='0-1' {HALF}", f"id='2' cpus='2-3' {HALF}"),
            ["numa.cells of web1: cells must be numbered from 0 without gaps, not 0, 2"],
        ),
        (cells(f"id='1' cpus='0-1' {HALF}", f"id='0' cpus='2-3' {HALF}"), []),
        (
            cells(f"id='0' cpus='0-1' {HALF}", f"id='0' cpus='2-3' {HALF}"),
            ["numa.cells of web1: cells must be numbered from 0 without gaps, not 0, 0"],
        ),
        (cells(f"id='0' {HALF}", f"id='1' {HALF}", distances=SIBLINGS.format(10, 1, 20)), []),
        (
            cells(f"id='0' {HALF}", f"id='1' {HALF}", distances=SIBLINGS.format(10, 7, 20)),
            [f"numa.cells[0].distances[7] of web1: {GONE}"],
        ),
        (
            cells(f"id='0' {HALF}", f"id='1' {HALF}", distances=SIBLINGS.format(11, 1, 10)),
            [
                f"numa.cells[0].distances[0] of web1: {DISTANT} 11",
                f"numa.cells[0].distances[1] of web1: {DISTANT} 10",
            ],
        ),
        (
            cells(f"id='0' cpus='0-1' {HALF}", f"id='1' cpus='1-2' {HALF}"),
            [f"numa.cells[1].cpus of web1: {ONCE} 1-2"],
        ),
        (cells(f"id='0' cpus='0-3' {HALF}", f"id='1' {HALF}"), []),
        (cells(f"id='0' cpus='0-4' {HALF}", f"id='1' {HALF}"), [f"numa.cells[0].cpus of web1: {ONCE} 0-4"]),
        (
            cells(f"id='0' cpus='0' {HALF}", f"id='1' cpus='1' {HALF}", "id='2' cpus='0' memory='0'"),
            [f"numa.cells[2].cpus of web1: {ONCE} 0"],
        ),
    ],
)
def test_cells_are_numbered_and_share_the_vcpus(top: str, told: list[str]) -> None:
    assert problems(guest(top=top), {"numa": {"cells": [{"id": 0, "access": "shared"}]}}) == told


def test_a_guest_of_one_vcpu_has_cells_without() -> None:
    xml = guest(top=cells(f"id='0' cpus='0' {HALF}", f"id='1' {HALF}")).replace(">4</vcpu>", ">1</vcpu>")
    assert problems(xml, {"numa": {"cells": [{"id": 1, "access": "shared"}]}}) == []


def test_vcpus_that_go_are_missed_in_their_cells() -> None:
    assert problems(guest(top=EVEN), {"vcpus": {"maximum": 3}}) == [
        "numa.cells[1].cpus of web1: each of the 3 vcpus, numbered from 0, must be in one cell, not 2-3"
    ]


def tuned(memory: str, *nodes: str) -> str:
    """A guest with two cells, where its memory is on the host."""
    inside = "".join(f"<memnode {node}/>" for node in nodes)
    return guest(top=f"{EVEN}<numatune>{memory and f'<memory {memory}/>'}{inside}</numatune>")


NODE, NODE_7 = "cellid='0' mode='strict' nodeset='0'", "cellid='7' mode='strict' nodeset='0'"
NO_NODES = (
    "numa.mode of web1: it requires nodes of the host; set numa.nodeset, or numa.placement: auto; to remove both, set "
    "only numa.nodeset: ''"
)
RESTRICTIVE = "cellid='0' mode='restrictive' nodeset='0'"


@pytest.mark.parametrize(
    ("xml", "options", "told"),
    [
        (tuned("nodeset='0'"), {"numa": {"mode": "strict"}}, []),
        (tuned("placement='auto'"), {"numa": {"mode": "strict"}}, []),
        (
            tuned(""),
            {"numa": {"mode": "strict"}},
            [NO_NODES],
        ),
        (tuned("mode='strict' nodeset='0'"), {"numa": {"mode": "strict", "nodeset": ""}}, [NO_NODES]),
        (tuned("mode='strict' nodeset='0'"), {"numa": {"mode": "preferred", "nodeset": ""}}, [NO_NODES]),
        (tuned("mode='strict' nodeset='0'"), {"numa": {"nodeset": ""}}, []),
        (tuned("mode='strict' placement='auto'"), {"numa": {"nodeset": ""}}, []),
        (tuned("", NODE), {"numa": {"nodes": [{"cell": 0, "nodeset": 1}]}}, []),
        (tuned("", NODE_7), {"numa": {"nodes": [{"cell": 7, "nodeset": 1}]}}, [f"numa.nodes[7] of web1: {GONE}"]),
        (
            tuned("mode='strict' placement='auto'", NODE),
            {"numa": {"nodes": [{"cell": 0, "nodeset": 1}]}},
            [
                (
                    "numa.nodes[0] of web1: numa.placement: auto chooses the nodes of all cells; set static, or omit "
                    "numa.nodes"
                )
            ],
        ),
        (
            tuned("mode='restrictive' nodeset='0'", NODE),
            {"numa": {"nodes": [{"cell": 0, "nodeset": 1}]}},
            ["numa.nodes[0].mode of web1: it must be restrictive, as numa.mode is, not strict"],
        ),
        (tuned("mode='restrictive' nodeset='0'", RESTRICTIVE), {"numa": {"nodes": [{"cell": 0, "nodeset": 1}]}}, []),
        (tuned("mode='strict' nodeset='0'", RESTRICTIVE), {"numa": {"nodes": [{"cell": 0, "nodeset": 1}]}}, []),
        (tuned("", NODE_7), TITLE, []),
    ],
)
def test_memory_of_cells_comes_from_nodes_of_the_host(xml: str, options: dict[str, t.Any], told: list[str]) -> None:
    assert problems(xml, options) == told


LOADER = "<loader>/usr/share/OVMF/OVMF_CODE.fd</loader>"
CHOSEN = "loader.path of web1: libvirt chooses the loader for firmware; omit one of the two"


@pytest.mark.parametrize(
    ("xml", "options", "told"),
    [
        (guest(boot=LOADER), {"firmware": "efi"}, [CHOSEN]),
        (guest(os=" firmware='efi'"), {"loader": {"path": "/a.fd"}}, [CHOSEN]),
        (guest(os=" firmware='efi'"), {"firmware": "bios"}, []),
        (guest(boot=LOADER), {"loader": {"path": "/a.fd"}}, []),
        (guest(boot=LOADER, os=" firmware='efi'"), TITLE, []),
    ],
)
def test_libvirt_or_the_user_chooses_the_firmware(xml: str, options: dict[str, t.Any], told: list[str]) -> None:
    assert problems(xml, options) == told


def video(model: str, more: str = "") -> str:
    """A guest with that screen."""
    return guest(f"<video><model type='{model}' heads='1'>{more}</model></video>")


@pytest.mark.parametrize(
    ("xml", "options", "told"),
    [
        (video("virtio"), {"video": {"accel3d": True}}, []),
        (video("qxl"), {"video": {"accel3d": False}}, []),
        (
            video("qxl"),
            {"video": {"accel3d": True}},
            ["video.accel3d of web1: it applies to video.model virtio, not qxl"],
        ),
        (video("virtio"), {"video": {"heads": 2}}, []),
        (video("qxl"), {"video": {"heads": 2}}, []),
        (video("vga"), {"video": {"vram": "32MiB"}}, []),
        (
            video("vga"),
            {"video": {"heads": 2}},
            ["video.heads of web1: video.model vga has only one; use virtio or qxl for more"],
        ),
        (
            guest("<video><model heads='2'/></video>"),
            {"video": {"heads": 3}},
            ["video.heads of web1: it requires video.model virtio, vga, qxl, bochs, cirrus or ramfb"],
        ),
        (
            video("xen"),
            {"video": {"heads": 2}},
            [
                "video.heads of web1: it applies to video.model virtio, vga, qxl, bochs, cirrus or ramfb, not xen",
                "video.heads of web1: video.model xen has only one; use virtio or qxl for more",
            ],
        ),
        (video("qxl", "<acceleration accel3d='yes'/>"), TITLE, []),
    ],
)
def test_a_screen_does_what_its_model_can(xml: str, options: dict[str, t.Any], told: list[str]) -> None:
    assert problems(xml, options) == told


NIC = (
    "<interface type='hostdev'><mac address='52:54:00:00:00:0{0}'/><source><address type='pci' domain='0x0000' "
    "bus='0x06' slot='0x00' function='0x{1}'/></source></interface>"
)
CARD = (
    "<hostdev type='pci'><alias name='ua-{0}'/><source><address domain='0x0000' bus='0x06' slot='0x00' "
    "function='0x{1}'/></source></hostdev>"
)
ASSIGNED = "0000:06:00.1 is already assigned to the guest; list it once"


@pytest.mark.parametrize(
    ("devices", "options", "told"),
    [
        (
            NIC.format(1, 1),
            {"hostdevs": [{"name": "gpu", "address": "0000:06:00.1"}]},
            [f"hostdevs[gpu].address of web1: {ASSIGNED}"],
        ),
        (NIC.format(1, 1), {"hostdevs": [{"name": "gpu", "address": "0000:06:00.2"}]}, []),
        (
            NIC.format(1, 1) + NIC.format(2, 1),
            {"interfaces": [{"name": "52:54:00:00:00:01", "mtu": 1400}]},
            [f"interfaces[52:54:00:00:00:02].address of web1: {ASSIGNED}"],
        ),
        (
            CARD.format("a", 1) + CARD.format("b", 1),
            {"hostdevs": [{"name": "a", "managed": False}]},
            [f"hostdevs[b].address of web1: {ASSIGNED}"],
        ),
        (CARD.format("a", 1) + CARD.format("b", 1), TITLE, []),
        (
            "<hostdev type='usb'><alias name='ua-a'/><source/></hostdev><hostdev type='usb'/>",
            {"hostdevs": [{"name": "c", "address": "0000:06:00.1"}]},
            [],
        ),
    ],
)
def test_a_device_of_the_host_is_assigned_once(devices: str, options: dict[str, t.Any], told: list[str]) -> None:
    assert problems(guest(devices), options) == told


@pytest.mark.parametrize(
    ("xml", "options", "told"),
    [
        (guest(DISK.format("vda", "virtio", "")), {"boot": {"order": ["cdrom"]}}, []),
        (
            guest(DISK.format("vda", "virtio", "<boot order='1'/>")),
            {"boot": {"order": ["cdrom"]}},
            ["boot.order of web1: devices have their own boot_order; omit one of the two"],
        ),
        (guest(DISK.format("vda", "virtio", "<boot order='1'/>")), {"boot": {"menu": True}}, []),
    ],
)
def test_devices_or_kinds_of_devices_have_an_order(xml: str, options: dict[str, t.Any], told: list[str]) -> None:
    assert problems(xml, options) == told


@pytest.mark.parametrize(
    ("cid", "told"),
    [
        (
            "<cid auto='yes'/>",
            ["vsock.cid of web1: libvirt assigns it with vsock.auto: true; set that to false, or omit cid"],
        ),
        ("<cid auto='no' address='4'/>", []),
        ("", []),
    ],
)
def test_libvirt_or_the_user_chooses_the_number_of_a_vsock(cid: str, told: list[str]) -> None:
    assert problems(guest(f"<vsock model='virtio'>{cid}</vsock>"), {"vsock": {"cid": 5}}) == told


def threads(count: int | str, ids: str = "", more: str = "", devices: str = "") -> str:
    """A guest with I/O threads."""
    return guest(devices, top=f"{count and f'<iothreads>{count}</iothreads>'}{ids}{more}")


ON_2 = DISK.format("vda", "virtio", "<driver type='raw' iothread='2'/>")
IDS = "<iothreadids><iothread id='2'/><iothread id='7'/></iothreadids>"
PINS = "<cputune><iothreadpin iothread='1' cpuset='0'/><iothreadpin iothread='3' cpuset='0'/></cputune>"
HBA = "<controller type='scsi' index='0' model='virtio-scsi'><driver iothread='4'/></controller>"


@pytest.mark.parametrize(
    ("xml", "options", "told"),
    [
        (threads(2, devices=ON_2), {"disks": [{"name": "vda", "iothread": 1}]}, []),
        (threads(2, devices=ON_2), {"disks": [{"name": "vda", "cache": "none"}]}, []),
        (
            threads(2, devices=ON_2),
            {"disks": [{"name": "vda", "iothread": 3}]},
            ["disks[vda].iothread of web1: there is no I/O thread 3; the guest has vcpus.iothreads: 2"],
        ),
        (threads(2, IDS, devices=ON_2), {"disks": [{"name": "vda", "iothread": 7}]}, []),
        (
            threads(2, IDS, devices=ON_2),
            {"disks": [{"name": "vda", "iothread": 1}]},
            ["disks[vda].iothread of web1: there is no I/O thread 1; the guest has vcpus.iothreads: 2"],
        ),
        (
            threads("", devices=ON_2),
            {"disks": [{"name": "vda", "iothread": 1}]},
            ["disks[vda].iothread of web1: there is no I/O thread 1; the guest has vcpus.iothreads: 0"],
        ),
        (
            threads(1, more=PINS, devices=ON_2 + HBA),
            {"vcpus": {"iothread_pinning": [{"iothread": 1, "cpuset": 1}]}},
            [
                "vcpus.iothread_pinning[3] of web1: there is no I/O thread 3; the guest has vcpus.iothreads: 1",
                "disks[vda].iothread of web1: there is no I/O thread 2; the guest has vcpus.iothreads: 1",
                "controllers[scsi-0].iothread of web1: there is no I/O thread 4; the guest has vcpus.iothreads: 1",
            ],
        ),
        (
            threads(3, devices=HBA),
            {"controllers": [{"type": "scsi", "index": 0, "queues": 2}]},
            ["controllers[scsi-0].iothread of web1: there is no I/O thread 4; the guest has vcpus.iothreads: 3"],
        ),
        (threads("", devices=ON_2), TITLE, []),
    ],
)
def test_an_io_thread_that_is_used_is_there(xml: str, options: dict[str, t.Any], told: list[str]) -> None:
    assert problems(xml, options) == told


TOPOLOGY = "<cpu><topology sockets='2' dies='3' clusters='5' cores='7' threads='11'/></cpu>"


@pytest.mark.parametrize(
    ("top", "maximum", "told"),
    [
        (TOPOLOGY, 2310, []),
        (
            TOPOLOGY,
            8,
            ["vcpus.topology of web1: it has 2310 vcpus, and vcpus.maximum is 8; make them equal"],
        ),
        ("<cpu><topology cores='8'/></cpu>", 8, []),
        ("<cpu><topology/></cpu>", 8, []),
        ("", 8, []),
        (
            "<cputune><vcpupin vcpu='7' cpuset='0'/><vcpupin vcpu='8' cpuset='0'/></cputune>",
            8,
            ["vcpus.pinning[8] of web1: the guest has 8 vcpus, numbered from 0"],
        ),
    ],
)
def test_topology_and_pinning_are_of_the_vcpus_that_there_are(top: str, maximum: int, told: list[str]) -> None:
    assert problems(guest(top=top), {"vcpus": {"maximum": maximum}}) == told


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"vcpus": {"topology": {"sockets": 3}}},
            ["vcpus.topology of web1: it has 6 vcpus, and vcpus.maximum is 3; make them equal"],
        ),
        (
            {"vcpus": {"topology": {"sockets": 2, "cores": 2}}},
            ["vcpus.topology of web1: it has 8 vcpus, and vcpus.maximum is 4; make them equal"],
        ),
        ({"vcpus": {"topology": {"sockets": 2, "dies": 2}}}, []),
        ({"vcpus": {"pinning": [{"vcpu": 3, "cpuset": 0}]}}, []),
        (
            {"vcpus": {"pinning": [{"vcpu": 4, "cpuset": 0}]}},
            ["vcpus.pinning[4] of web1: the guest has 4 vcpus, numbered from 0"],
        ),
    ],
)
def test_what_is_said_of_vcpus_fits_those_that_there_are(options: dict[str, t.Any], told: list[str]) -> None:
    assert problems(guest(top="<cpu><topology dies='2'/></cpu>"), options) == told


USED = "vda is already used; omit it to have one chosen"
BLANK = "<disk type='file'><source file='/{0}'/><target bus='virtio'/><alias name='ua-{0}'/></disk>"


@pytest.mark.parametrize(
    ("devices", "options", "told"),
    [
        (NAMED, {"disks": [{"name": "b", "source": "/b", "target": "vdb"}]}, []),
        (NAMED, {"disks": [{"name": "b", "source": "/b"}]}, []),
        (NAMED, {"disks": [{"name": "b", "source": "/b", "target": "vda"}]}, [f"disks[b].target of web1: {USED}"]),
        (BLANK.format("a") + BLANK.format("b"), {"disks": [{"name": "a", "cache": "none"}]}, []),
        (NAMED + DISK.format("vda", "virtio", ""), TITLE, []),
    ],
)
def test_each_disk_has_a_target_of_its_own(devices: str, options: dict[str, t.Any], told: list[str]) -> None:
    assert problems(guest(devices), options) == told


@pytest.mark.parametrize(
    ("disk", "told"),
    [
        (CDROM, ["disks[sda] of web1: a cdrom is always readonly; omit readonly"]),
        (
            CDROM.replace("cdrom", "disk").replace("'sata'", "'scsi'").replace("<target", "<source file='/a'/><target"),
            [],
        ),
    ],
)
def test_libvirt_lets_nobody_write_to_a_cdrom(disk: str, told: list[str]) -> None:
    assert problems(guest(disk), {"disks": [{"name": "sda", "readonly": False}]}) == told


FIRST_DISK = DISK.format("vda", "virtio", "<boot order='1'/>")
FIRST_NIC = "<interface type='user'><mac address='52:54:00:00:00:01'/><boot order='1'/></interface>"
FIRST_CARD = CARD.format("gpu", 1).replace("<source>", "<boot order='1'/><source>")
TAKEN = "1 is already used; number devices in the order in which they are tried"


@pytest.mark.parametrize(
    ("devices", "options", "told"),
    [
        (FIRST_DISK, {"disks": [{"name": "b", "source": "/b", "boot_order": 2}]}, []),
        (FIRST_DISK, {"disks": [{"name": "b", "source": "/b"}]}, []),
        (
            FIRST_DISK,
            {"disks": [{"name": "b", "source": "/b", "boot_order": 1}]},
            [f"disks[b].boot_order of web1: {TAKEN}"],
        ),
        (
            FIRST_DISK,
            {"interfaces": [{"name": "lan", "type": "user", "boot_order": 1}]},
            [f"interfaces[lan].boot_order of web1: {TAKEN}"],
        ),
        (
            FIRST_NIC,
            {"hostdevs": [{"name": "gpu", "address": "0000:06:00.1", "boot_order": 1}]},
            [f"hostdevs[gpu].boot_order of web1: {TAKEN}"],
        ),
        (
            FIRST_CARD,
            {"hostdevs": [{"name": "b", "address": "0000:06:00.2", "boot_order": 1}]},
            [f"hostdevs[b].boot_order of web1: {TAKEN}"],
        ),
        (FIRST_DISK + FIRST_NIC, TITLE, []),
    ],
)
def test_each_device_has_a_place_of_its_own_in_the_order(
    devices: str, options: dict[str, t.Any], told: list[str]
) -> None:
    assert problems(guest(devices), options) == told


MONITORED: dict[str, t.Any] = {"ha": {"mode": "restart", "monitor_agent": True}}
AGENT = "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>"
SILENT = (
    "ha.monitor_agent of web1: the guest has no channel org.qemu.guest_agent.0; list it in channels, or set it to false"
)
NO_CHANNEL = {"channels": [{"name": "org.qemu.guest_agent.0", "state": "absent"}]}


@pytest.mark.parametrize(
    ("devices", "options", "told"),
    [
        (AGENT, MONITORED, []),
        ("", MONITORED, [SILENT]),
        ("", {"ha": {"mode": "restart", "monitor_agent": False}}, []),
        ("", {**MONITORED, "channels": [{"name": "org.qemu.guest_agent.0"}]}, []),
        (AGENT, {**MONITORED, **NO_CHANNEL}, [SILENT]),
    ],
)
def test_an_agent_is_asked_by_a_channel(devices: str, options: dict[str, t.Any], told: list[str]) -> None:
    assert problems(guest(devices), options) == told


BROKEN: dict[str, tuple[str, dict[str, t.Any]]] = {
    "_memory": (guest(top=EVEN), {"memory": {"maximum": "2GiB"}}),
    "_cells": (
        guest(top=cells(f"id='0' cpus='0-1' {HALF}", f"id='2' cpus='2-3' {HALF}")),
        {"numa": {"cells": [{"id": 0, "discard": True}]}},
    ),
    "_nodes": (guest(), {"numa": {"mode": "strict"}}),
    "_firmware": (guest(boot=LOADER), {"firmware": "efi"}),
    "_video": (video("vga"), {"video": {"heads": 2}}),
    "_consoles": (guest(), {"consoles": [{"port": 2}]}),
    "_host_devices": (guest(NIC.format(1, 1)), {"hostdevs": [{"name": "gpu", "address": "0000:06:00.1"}]}),
    "_boot_order": (guest(FIRST_DISK), {"boot": {"order": ["cdrom"]}}),
    "_vsock": (guest("<vsock model='virtio'><cid auto='yes'/></vsock>"), {"vsock": {"cid": 5}}),
    "_iothreads": (guest(NAMED), {"disks": [{"name": "system", "iothread": 3}]}),
    "_pinning": (guest(), {"vcpus": {"pinning": [{"vcpu": 4, "cpuset": 0}]}}),
    "_topology": (guest(top=TOPOLOGY), {"vcpus": {"maximum": 8}}),
    "_targets": (guest(NAMED), {"disks": [{"name": "b", "source": "/b", "target": "vda"}]}),
    "_boot_orders": (guest(FIRST_DISK), {"disks": [{"name": "b", "source": "/b", "boot_order": 1}]}),
    "_monitored": (guest(), MONITORED),
}


@pytest.mark.parametrize("rule", xml_validate._RULES, ids=lambda rule: rule.__name__)
def test_every_rule_has_a_case_that_breaks_it(rule: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    xml, options = BROKEN[rule.__name__]
    every = problems(xml, options)
    others = {one: fields for one, fields in xml_validate._RULES.items() if one is not rule}
    monkeypatch.setattr(xml_validate, "_RULES", others)
    assert every and problems(xml, options) == [], "nothing is said by this rule, or another says it, too"
