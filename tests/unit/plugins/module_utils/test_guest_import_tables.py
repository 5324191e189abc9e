"""What an import takes out of a guest's document, and what it reads first: each case in a moment, free of Ansible."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._noun import guest_import
from ansible_collections.corral.virt.plugins.module_utils._noun.guest_import_withheld import withhold
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
    given, first, notes = guest_import._withheld(document(devices))
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
    guest_import._leave_one_of_serials(given)
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
    guest_import._leave_one_of_firmware(given, by_libvirt=by_libvirt)
    assert set(given) == left and "template" not in given.get("nvram", {})
