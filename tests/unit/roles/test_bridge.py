"""The role bridge's script: how each kind of configuration is turned into that of a bridge."""

from __future__ import annotations

import importlib.util
import re
import typing as t
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "roles/bridge/files/bridge.py"
MAC = "52:54:00:12:34:56"


@pytest.fixture(scope="module")
def bridge() -> t.Any:
    spec = importlib.util.spec_from_file_location("bridge", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_ifupdown_moves_the_address_and_keeps_the_link(bridge: t.Any) -> None:
    before = """\
auto lo
iface lo inet loopback

allow-hotplug eth0
iface eth0 inet static
\taddress 192.0.2.7/24
\tgateway 192.0.2.1
\tup ip route add 198.51.100.0/24 via 192.0.2.2 dev eth0
\tup ethtool -K eth0 gro off
\tethernet-wol g
iface eth0 inet6 auto

auto eth1
iface eth1 inet dhcp
"""
    assert (
        bridge.bridged(before, "eth0", "br0", MAC)
        == f"""\
auto lo
iface lo inet loopback

auto br0
iface br0 inet static
\tbridge_ports eth0
\tbridge_stp off
\tbridge_fd 0
\tbridge_maxwait 0
\tbridge_hw {MAC}
\taddress 192.0.2.7/24
\tgateway 192.0.2.1
\tup ip route add 198.51.100.0/24 via 192.0.2.2 dev br0
\tup ethtool -K eth0 gro off
iface br0 inet6 auto

auto eth1
iface eth1 inet dhcp

iface eth0 inet manual
\tethernet-wol g
"""
    )


def test_ifupdown_leaves_names_that_only_begin_alike(bridge: t.Any) -> None:
    before = "auto eth0 eth0.5\niface eth0 inet dhcp\niface eth0.5 inet manual\n"
    after = bridge.bridged(before, "eth0", "br0", MAC)
    assert "auto br0 eth0.5\n" in after
    assert "iface eth0.5 inet manual\n" in after


def test_ifupdown_follows_what_is_sourced(bridge: t.Any, tmp_path: Path) -> None:
    (tmp_path / "interfaces").write_text("auto lo\nsource interfaces.d/*.cfg\n")
    (tmp_path / "interfaces.d").mkdir()
    (tmp_path / "interfaces.d/eth0.cfg").write_text("auto eth0\niface eth0 inet dhcp\n")
    assert bridge.flat(str(tmp_path / "interfaces")) == "auto lo\nauto eth0\niface eth0 inet dhcp\n"


def test_networkd_gives_the_bridge_the_ports_network(bridge: t.Any) -> None:
    text = "[Match]\nName=en*\n[Link]\nMACAddress=52:54:00:00:00:01\nMTUBytes=9000\n[Network]\nDHCP=yes\n"
    identity = re.search("IAID:(0x[0-9a-f]+)", "IAID:0xff")
    after = bridge.network_of_bridge(text, "br0", identity)
    assert after == "[Match]\nName=br0\n\n[Link]\nMTUBytes=9000\n[Network]\nDHCP=yes\n\n[DHCPv4]\nIAID=255\n"


@pytest.mark.parametrize("match", [{}, {"match": {"macaddress": MAC.upper()}, "set-name": "eth0"}])
def test_netplan_moves_all_but_the_link(bridge: t.Any, match: dict[str, t.Any]) -> None:
    key = "nic" if match else "eth0"
    network = {"ethernets": {key: {**match, "mtu": 9000, "dhcp4": True, "nameservers": {"addresses": ["192.0.2.1"]}}}}
    assert bridge.netplan_bridged(network, "eth0", "br0", MAC)
    assert network["ethernets"][key] == {**match, "mtu": 9000, "dhcp4": False, "dhcp6": False, "link-local": []}
    assert network["bridges"]["br0"] == {
        "dhcp4": True,
        "nameservers": {"addresses": ["192.0.2.1"]},
        "interfaces": [key],
        "macaddress": MAC,
        "parameters": {"stp": False, "forward-delay": 0},
    }


def test_netplan_says_when_the_port_is_not_there(bridge: t.Any) -> None:
    assert not bridge.netplan_bridged({"ethernets": {"eth1": {}}}, "eth0", "br0", MAC)


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ({"linkinfo": {"info_kind": "bridge"}}, "is a bridge already"),
        ({"master": "bond0"}, "belongs to bond0"),
        ({"link_type": "none"}, "no Ethernet"),
    ],
)
def test_ports_that_cannot_be_bridged_are_refused(bridge: t.Any, link: dict[str, t.Any], reason: str) -> None:
    with pytest.raises(bridge.Problem, match=reason):
        bridge.check_port("eth0", {"eth0": {"link_type": "ether", **link}}, "br0")


def test_nobody_reads_the_passwords_in_netplans_files_while_they_are_written(
    bridge: t.Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is private when its first byte is written, whatever mode an earlier one had; a link that lies there is not followed."""
    modes: list[int] = []
    sync = bridge.os.fsync

    def noted(descriptor: int) -> None:
        modes.append(bridge.os.fstat(descriptor).st_mode & 0o777)
        sync(descriptor)

    monkeypatch.setattr(bridge.os, "fsync", noted)
    path, victim = tmp_path / "etc/netplan/50-wifi.yaml", tmp_path / "victim"
    path.parent.mkdir(parents=True)
    path.write_text("old")
    path.chmod(0o644)
    victim.write_text("kept")
    (path.parent / "50-wifi.yaml.corral-new").symlink_to(victim)
    bridge.write(str(path), "password: secret")
    assert (modes, path.stat().st_mode & 0o777, path.read_text()) == ([0o600], 0o600, "password: secret")
    assert victim.read_text() == "kept"


def test_other_files_keep_their_permissions(bridge: t.Any, tmp_path: Path) -> None:
    (tmp_path / "interfaces").write_text("old")
    (tmp_path / "interfaces").chmod(0o640)
    for name, mode in (("interfaces", 0o640), ("new", 0o644)):
        bridge.write(str(tmp_path / name), "text")
        assert (tmp_path / name).stat().st_mode & 0o777 == mode
