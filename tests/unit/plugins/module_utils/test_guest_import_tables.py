"""What an import takes out of a guest's document, and what it reads first: each case in a moment, free of Ansible."""

from __future__ import annotations

import copy
import json
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._guest import plan_import
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_import import minimal, withhold
from ansible_collections.corral.virt.plugins.module_utils._xml.remainder import stripped
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

VNC, OPEN = "<graphics type='vnc' port='5901'/>", "<graphics type='vnc' listen='0.0.0.0'/>"
SECRET = "<graphics type='vnc' passwd='x'/>"
SPICE = "<graphics type='spice' autoport='yes'><listen type='address' address='127.0.0.1'/></graphics>"
OPEN_SPICE = SPICE.replace("127.0.0.1", "0.0.0.0")
AGENT = "<channel type='spicevmc'><target type='virtio' name='com.redhat.spice.0'/></channel>"
DISK = "<disk type='network'><auth username='a'><secret type='ceph' uuid='1'/></auth><target dev='vda'/></disk>"


def document(devices: str, os: str = "") -> t.Any:
    """A definition."""
    return parse(f"<domain type='kvm'><name>web1</name><os>{os}</os><devices>{devices}</devices></domain>")


@pytest.mark.parametrize(
    ("devices", "gone"),
    [
        ("", []),
        (VNC, []),
        (SPICE + AGENT, []),
        (SECRET, ["it has a password, and would be open without it"]),
        (OPEN, ["others than its host may reach it"]),
        (SECRET + AGENT, ["it has a password, and would be open without it"]),
        (OPEN_SPICE + AGENT, ["others than its host may reach it", "it needs a display by SPICE"]),
        (OPEN_SPICE + SPICE + AGENT, ["others than its host may reach it"]),
        (DISK, []),
    ],
)
def test_what_is_withheld(devices: str, gone: list[str]) -> None:
    root = document(devices)
    before = len(root.findall("devices/*"))
    assert [note["why"] for note in withhold(root, None)] == gone
    assert len(root.findall("devices/*")) == before - len(gone)


def pci(slot: int, bus: int = 0, function: int = 0) -> str:
    """A place on PCI."""
    return f"<address type='pci' domain='0x0000' bus='{bus:#04x}' slot='{slot:#04x}' function='{function:#x}'/>"


def port(index: int, place: str, target: str = "", model: str = "pcie-root-port") -> str:
    """A controller of PCI."""
    return f"<controller type='pci' index='{index}' model='{model}'>{target}{place}</controller>"


def disk(place: str) -> str:
    """A disk there."""
    return f"<disk type='file'><source file='/a'/><target dev='vda' bus='virtio'/>{place}</disk>"


VIDEO, BALLOON = "<video><model type='vga'/>{}</video>", "<memballoon model='virtio'>{}</memballoon>"
CHASSIS = "<target chassis='1' port='0x10'/>"
Q35 = (
    VIDEO.format(pci(1))
    + port(1, pci(2), CHASSIS)
    + port(2, pci(2, 0, 1))
    + disk(pci(0, 1))
    + BALLOON.format(pci(0, 2))
)
TABLET = "<input type='tablet' bus='usb'><address type='usb' bus='0' port='{}'/></input>"


@pytest.mark.parametrize(
    ("machine", "devices", "kept"),
    [
        # as libvirt gives them out
        ("pc-i440fx-7.2", VIDEO.format(pci(2)) + disk(pci(3)) + BALLOON.format(pci(4)), False),
        ("pc", disk(pci(2)) + BALLOON.format(pci(3)), False),
        ("pc-q35-7.2", Q35, False),
        ("pc", TABLET.format(1), False),
        # a gap, another order, another chassis, a bridge, a second display, a port of USB, a machine that is not known
        ("pc", VIDEO.format(pci(2)) + disk(pci(4)) + BALLOON.format(pci(5)), True),
        ("pc", VIDEO.format(pci(2)) + disk(pci(4)) + BALLOON.format(pci(3)), True),
        ("pc-q35-7.2", Q35.replace("chassis='1'", "chassis='40'"), True),
        ("pc-q35-6.0", port(14, pci(0x17), model="pci-bridge"), True),
        ("pc", VIDEO.format(pci(2)) + VIDEO.format(pci(3)), True),
        ("pc", TABLET.format(3), True),
        ("virt-7.2", disk(pci(3)), True),
    ],
)
def test_places_that_libvirt_would_not_choose_are_kept(machine: str, devices: str, kept: bool) -> None:
    root = document(devices, os=f"<type arch='x86_64' machine='{machine}'>hvm</type>")
    found = stripped(root).xpath("devices/*/address | devices/*/target[@chassis]")
    assert len(found) == (len(root.xpath("devices/*/address | devices/*/target[@chassis]")) if kept else 0)


def test_of_the_display_that_an_option_describes_it_is_said_which() -> None:
    root = document(SECRET + SECRET)
    notes = withhold(root, root.find("devices/graphics"))
    assert [note.get("option") for note in notes] == ["graphics", None]


@pytest.mark.parametrize(
    ("devices", "withheld", "shown", "options"),
    [
        ("", {}, {}, []),
        (VNC, {}, {"graphics": {"type": "vnc", "port": 5901}}, []),
        (SECRET, {"graphics": {"type": "vnc"}}, {}, ["graphics"]),
        (OPEN, {}, {}, [None]),
        (
            "<graphics type='spice' autoport='yes' port='5900' tlsPort='5901'/>",
            {},
            {"graphics": {"type": "spice", "tls": False}},
            [],
        ),
        ("<graphics type='vnc' port='-1'/>", {}, {"graphics": {"type": "vnc"}}, []),
        ("<graphics type='vnc' autoport='no' port='5902'/>", {}, {"graphics": {"type": "vnc", "port": 5902}}, []),
        ("<graphics type='sdl'/>", {}, {}, []),
    ],
)
def test_the_first_display(
    devices: str, withheld: dict[str, t.Any], shown: dict[str, t.Any], options: list[str | None]
) -> None:
    given, first, notes = plan_import._withheld(document(devices))
    assert (given, first, [note.get("option") for note in notes]) == (withheld, shown, options)


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({}, {"consoles": []}),
        ({"serial": 1}, {"serial": 1, "consoles": []}),
        ({"serials": [1], "serial": 1}, {"serials": [1], "consoles": []}),
        ({"consoles": [{"target": "virtio"}, {"target": None}]}, {"consoles": [{"target": "virtio"}]}),
    ],
)
def test_a_serial_port_is_told_once(given: dict[str, t.Any], left: dict[str, t.Any]) -> None:
    plan_import._leave_one_of_serials(given)
    assert given == left


@pytest.mark.parametrize(
    ("given", "by_libvirt", "left"),
    [
        ({"firmware": "efi", "loader": {}, "nvram": {"template": "a", "b": 1}}, True, {"firmware", "nvram"}),
        ({"firmware": "efi", "loader": {}, "secure_boot": True, "nvram": {}}, False, {"loader", "nvram"}),
        ({"firmware": "efi", "secure_boot": True}, False, {"firmware", "secure_boot"}),
        ({"firmware": "efi"}, True, {"firmware"}),
    ],
)
def test_firmware_is_told_once(given: dict[str, t.Any], by_libvirt: bool, left: set[str]) -> None:
    plan_import._leave_one_of_firmware(given, by_libvirt=by_libvirt)
    assert set(given) == left and "template" not in given.get("nvram", {})


ANYWAY = "as it is"  # what a guest has of which nobody says it
IDE, DISK_IDE = {"type": "ide", "index": 0}, {"name": "a", "bus": "ide"}
SERIAL_BUS = {"type": "virtio-serial", "index": 0}
ROOT = {"type": "pci", "index": 0, "model": "pcie-root"}
PORTS = [ROOT, *({"type": "pci", "index": number, "model": "pcie-root-port"} for number in range(1, 17))]


def _told(said: t.Any) -> t.Any:
    if isinstance(said, dict):
        told = {key: _told(value) for key, value in said.items() if value not in (ANYWAY, "disk", "cdrom")}
        return {key: value for key, value in told.items() if value not in ({}, [])}
    return [_told(one) for one in said] if isinstance(said, list) else said


def made(given: t.Mapping[str, t.Any]) -> t.Any:
    """A document of all that is said and that a guest has not anyway."""
    root = parse("<domain/>")
    root.text = json.dumps(_told(given), sort_keys=True)
    return root


def told(document: t.Any) -> t.Any:
    """What that says."""
    return json.loads(document.text)


def disks(count: int, *needing: int, **more: t.Any) -> list[dict[str, t.Any]]:
    """Some disks, of which some need what others have anyway."""
    return [{"name": str(one), "io": "native" if one in needing else ANYWAY, **more} for one in range(count)]


def pruned(count: int, *kept: int) -> list[dict[str, t.Any]]:
    """The same, of which some keep what they say."""
    return [{"name": str(one), **({"io": "native"} if one in kept else {})} for one in range(count)]


@pytest.mark.parametrize(
    ("given", "left"),
    [
        # what libvirt writes where nobody says anything, and something else
        ({"on_poweroff": "destroy", "on_reboot": "restart", "on_crash": "destroy"}, {}),
        ({"on_poweroff": "restart", "on_reboot": "destroy", "on_crash": "preserve"}, None),
        ({"balloon": {"model": "virtio"}, "autostart": False, "consoles": [], "inputs": [], "controllers": []}, {}),
        ({"balloon": {"model": "none"}, "autostart": True, "consoles": [{"target": "virtio"}]}, None),
        ({"vcpus": {"current": 2, "maximum": 2, "placement": "static"}}, {"vcpus": 2}),
        ({"vcpus": {"current": 2, "maximum": 2, "placement": "auto"}}, None),
        ({"vcpus": {"current": 2, "maximum": 4}}, None),
        ({"memory": {"current": "1GiB", "maximum": "1GiB"}}, {"memory": "1GiB"}),
        ({"memory": {"current": "1GiB", "maximum": "1GiB", "slots": 4}}, None),
        ({"memory": {"maximum": "1GiB"}}, None),
        (
            {"serials": [{"port": 0, "target": "isa-serial"}, {"port": 1, "target": "usb-serial"}]},
            {"serials": [{"port": 0}, {"port": 1, "target": "usb-serial"}]},
        ),
        ({"inputs": [{"type": "mouse", "bus": "ps2"}, {"type": "keyboard", "bus": "ps2"}]}, {}),
        ({"inputs": [{"type": "mouse", "bus": "usb"}, {"type": "tablet", "bus": "ps2"}]}, None),
        # controllers for what hangs on them
        ({"disks": [DISK_IDE], "controllers": [IDE]}, {"disks": [DISK_IDE]}),
        ({"disks": [DISK_IDE], "controllers": [{**IDE, "model": "piix3"}]}, None),
        ({"disks": [DISK_IDE], "controllers": [IDE], "xml": "<a><controller/></a>"}, None),
        ({"disks": [DISK_IDE], "controllers": [IDE], "xml": "<a/>"}, {"disks": [DISK_IDE], "xml": "<a/>"}),
        ({"disks": [{"name": "a", "bus": "sata"}], "controllers": [IDE]}, None),
        ({"disks": [{"name": "a", "bus": "scsi"}], "controllers": [{"type": "scsi", "index": 0}]}, None),
        *(
            (
                {"disks": [{"name": "a", "bus": bus}], "controllers": [{"type": bus, "index": 0}]},
                {"disks": [{"name": "a", "bus": bus}]},
            )
            for bus in ("sata", "fdc")
        ),
        ({"channels": [{"name": "a"}], "controllers": [SERIAL_BUS]}, {"channels": [{"name": "a"}]}),
        ({"channels": [{"name": "a", "state": "absent"}], "controllers": [SERIAL_BUS]}, None),
        ({"controllers": [SERIAL_BUS]}, None),
        (
            {"disks": [DISK_IDE], "channels": [{"name": "a"}], "controllers": [IDE, SERIAL_BUS]},
            {"disks": [DISK_IDE], "channels": [{"name": "a"}]},
        ),
        # ports of a guest that was just made
        ({"controllers": PORTS}, {}),
        ({"controllers": PORTS[:-1]}, None),
        ({"controllers": [*PORTS[:-1], {**ROOT, "index": 16}]}, None),
        ({"controllers": [{**ROOT, "model": "pci-root"}]}, {}),
        ({"controllers": [{**ROOT, "model": "pci-root", "index": 1}]}, None),
        ({"controllers": [{**ROOT, "state": "absent"}]}, {}),
        ({"controllers": [*PORTS[:-1], {**PORTS[-1], "state": "absent"}]}, None),
        # what the guest has anyway
        ({"title": ANYWAY, "description": "x"}, {"description": "x"}),
        (
            {"cpu": {"mode": "custom", "model": ANYWAY, "cache": {"mode": "emulate", "level": ANYWAY}}},
            {"cpu": {"mode": "custom", "cache": {"mode": "emulate"}}},
        ),
        ({"cpu": {"features": [{"name": "a", "policy": ANYWAY}]}}, None),
        ({"interfaces": [{"name": "a", "filterref": {"parameters": [{"name": ANYWAY, "values": ["1"]}]}}]}, None),
        ({"filesystems": [{"name": "a", "state": ANYWAY}]}, None),
        ({"filesystems": [{"name": "a", "driver": ANYWAY}]}, {"filesystems": [{"name": "a"}]}),
        ({"name": ANYWAY, "virt_type": ANYWAY, "machine": ANYWAY, "uuid": ANYWAY, "xml": ANYWAY}, None),
        ({"disks": [{"name": "a", "iotune": {"a": ANYWAY, "b": 1}}]}, {"disks": [{"name": "a", "iotune": {"b": 1}}]}),
        ({"interfaces": [{"name": ANYWAY, "mtu": ANYWAY}]}, {"interfaces": [{"name": ANYWAY}]}),
        (
            {"disks": [{"name": "a", "source": ANYWAY, "device": "cdrom"}, {"name": "b", "device": "disk"}]},
            {"disks": [{"name": "a", "source": ANYWAY, "device": "cdrom"}, {"name": "b"}]},
        ),
        ({"disks": [{"name": "disk"}]}, None),
        # of many entries, only those that need it keep it
        ({"disks": disks(17, 0)}, {"disks": pruned(17, 0)}),
        ({"disks": disks(17, 9)}, {"disks": pruned(17, 9)}),
    ],
)
def test_the_least_of_what_is_said(given: dict[str, t.Any], left: dict[str, t.Any] | None) -> None:
    said = {"name": "web1", "disks": [], "interfaces": [], **copy.deepcopy(given)}
    found = minimal(said, made, told)
    assert found == {"name": "web1", "disks": [], "interfaces": [], **(given if left is None else left)}
    assert said == {"name": "web1", "disks": [], "interfaces": [], **given}  # which others go on to use


def test_what_stays_keeps_its_order() -> None:
    said = {"io": "native", "name": "a", "cache": ANYWAY, "bus": "sata"}
    [disk] = minimal({"name": "web1", "disks": [said], "interfaces": []}, made, told)["disks"]
    assert list(disk) == ["io", "name", "bus"]


def test_disks_and_interfaces_may_be_left_out() -> None:
    """They are where an option refuses what libvirt holds."""
    assert minimal({"name": "web1", "title": ANYWAY}, made, told) == {"name": "web1"}
