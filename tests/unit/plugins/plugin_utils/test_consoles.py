"""Commands that open a guest's consoles from where the user sits."""

from __future__ import annotations

import shlex
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils._report.consoles import Way, beyond, display, serial

PLAIN, LOCAL = Way("hyper2"), Way("localhost", local=True)
ROOT = Way("192.0.2.12", user="root", port=22)
ADMIN = Way("192.0.2.12", user="admin", port=2222, key="/keys/a b", options=("-o", "ProxyJump=gate"), sudo=True)
URI = "qemu:///system"
TO_ADMIN = "-o ProxyJump=gate -p 2222 -i '/keys/a b' admin@192.0.2.12"


@pytest.mark.parametrize(
    ("way", "command"),
    [
        (PLAIN, f"ssh -t hyper2 virsh --connect {URI} console web1"),
        (ROOT, f"ssh -t root@192.0.2.12 virsh --connect {URI} console web1"),
        (ADMIN, f"ssh -t {TO_ADMIN} sudo virsh --connect {URI} console web1"),
        (LOCAL, f"virsh --connect {URI} console web1"),
        (Way("localhost", local=True, sudo=True), f"sudo virsh --connect {URI} console web1"),
    ],
)
def test_serial(way: Way, command: str) -> None:
    assert serial(way, URI, "web1") == command


@pytest.mark.parametrize("way", [LOCAL, PLAIN, ADMIN])
@pytest.mark.parametrize("name", ["a; reboot", "it's", "$(reboot)", "two words"])
def test_a_name_is_one_word(way: Way, name: str) -> None:
    """Also for the host's shell, which gets what ssh joins."""
    words = shlex.split(serial(way, URI, name))
    if not way.local:
        words = shlex.split(" ".join(words[words.index("virsh") :]))
    assert words[-2:] == ["console", name]


VNC = {"type": "vnc", "port": 5900, "listen": "127.0.0.1"}


@pytest.mark.parametrize(
    ("way", "found", "commands"),
    [
        (PLAIN, VNC, ["ssh -L 5901:127.0.0.1:5900 hyper2", "vncviewer localhost:5901"]),
        (ADMIN, VNC, [f"ssh -L 5901:127.0.0.1:5900 {TO_ADMIN}", "vncviewer localhost:5901"]),
        (PLAIN, {**VNC, "listen": None}, ["ssh -L 5901:127.0.0.1:5900 hyper2", "vncviewer localhost:5901"]),
        (PLAIN, {**VNC, "listen": "0.0.0.0"}, ["ssh -L 5901:127.0.0.1:5900 hyper2", "vncviewer localhost:5901"]),
        (PLAIN, {**VNC, "listen": "::"}, ["ssh -L '5901:[::1]:5900' hyper2", "vncviewer localhost:5901"]),
        (PLAIN, {**VNC, "listen": "192.0.2.99"}, ["ssh -L 5901:192.0.2.99:5900 hyper2", "vncviewer localhost:5901"]),
        (PLAIN, {**VNC, "port": 65535}, ["ssh -L 65534:127.0.0.1:65535 hyper2", "vncviewer localhost:65534"]),
        (LOCAL, VNC, ["vncviewer localhost:5900"]),
        (LOCAL, {**VNC, "listen": "0.0.0.0"}, ["vncviewer localhost:5900"]),
        (LOCAL, {**VNC, "listen": "192.0.2.99"}, ["vncviewer 192.0.2.99:5900"]),
        (
            PLAIN,
            {**VNC, "type": "spice"},
            ["ssh -L 5901:127.0.0.1:5900 hyper2", "remote-viewer spice://localhost:5901"],
        ),
        (LOCAL, {"type": "spice", "port": -1, "tls_port": 5903}, ["remote-viewer 'spice://localhost?tls-port=5903'"]),
        (PLAIN, {**VNC, "port": -1}, []),
        (PLAIN, {"type": "vnc"}, []),
        (PLAIN, {"type": "egl-headless", "port": 5900}, []),
        *((PLAIN, {**VNC, "port": odd}, []) for odd in ("5900", [5900], 5900.5, 2**16, None)),
    ],
)
def test_display(way: Way, found: dict[str, t.Any], commands: list[str]) -> None:
    assert display(way, found) == commands


@pytest.mark.parametrize(
    ("uri", "way"),
    [
        ("qemu:///system", ADMIN),
        ("qemu+tls://localhost/system", ADMIN),
        ("test:////tmp/a.xml", ADMIN),
        ("qemu+tls://hyper9/system", Way("hyper9")),
        ("qemu+tls://root@hyper9:16514/system", Way("hyper9")),
        ("qemu+ssh://root@hyper9:2222/system?keyfile=/k", Way("hyper9", user="root", port=2222)),
    ],
)
def test_a_display_is_where_its_libvirt_is(uri: str, way: Way) -> None:
    assert beyond(ADMIN, uri) == way
