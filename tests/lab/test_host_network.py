"""The bridge and the firewall of bare hosts, in each way that a host can have them.

Judged by ip, bridge, nft, iptables, ufw and firewall-cmd.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import (
    HERE,
    Hypervisors,
)

pytestmark = pytest.mark.lab

NAME, HOST = "hostnet", "hyper1"
BRIDGE: dict[str, t.Any] = {"ansible.builtin.include_role": {"name": "corral.virt.bridge"}}
WITHOUT_STP = {**BRIDGE, "vars": {"virt_bridges": [{"name": "br0", "switch_off_stp": True}]}}
RUN = "/run/systemd/network /run/netplan /run/NetworkManager/system-connections"
FILES = f"find /etc {RUN} -xdev -newer /etc/machine-id -type f 2>/dev/null"
MULTIPATH = "198.18.7.0/24"  # a route over two next hops
SUMS = f"{FILES} | grep -v -e /etc/apt -e ld.so.cache | sort | xargs -r md5sum"


def up(network: str) -> Iterator[Hypervisors]:
    """A bare host."""
    lab = Hypervisors(NAME)
    here = ("--name", NAME)
    lab.run(sys.executable, HERE / "lab.py", "down", *here)
    words = ("--hosts", "1", "--no-image", "--network", network)
    lab.run(sys.executable, HERE / "lab.py", "up", *here, *words, timeout_s=900)
    lab.run(sys.executable, HERE / "demo.py", "config", *here)
    yield lab
    lab.run(sys.executable, HERE / "lab.py", "down", *here)


@pytest.fixture(scope="module")
def ifupdown() -> Iterator[Hypervisors]:
    yield from up("ifupdown")


@pytest.fixture(scope="module")
def networkd() -> Iterator[Hypervisors]:
    yield from up("networkd")


@pytest.fixture(scope="module")
def networkmanager() -> Iterator[Hypervisors]:
    yield from up("networkmanager")


def changed(printed: str) -> int:
    """`changed=` of the host in the recap."""
    (count,) = re.findall(rf"^{HOST}\s+: ok=\d+\s+changed=(\d+)", printed, re.MULTILINE)
    return int(count)


def network(lab: Hypervisors) -> str:
    """Addresses and routes."""
    routes = f"ip route show default; ip -o route show {MULTIPATH}"
    return lab.on(HOST, f"ip -o -4 addr show | awk '{{print $2, $4}}' | sort; {routes}; ip rule")


def check_a_bridge(lab: Hypervisors) -> None:
    """Predicted; taken back when nobody confirms; made, once; and still there from its files."""
    before, files = network(lab), lab.on(HOST, SUMS)
    assert "br0" not in before
    predicted = lab.play(BRIDGE, flags=["--check", "--diff"])
    assert changed(predicted) >= 1 and "br0.port" in predicted
    assert (network(lab), lab.on(HOST, SUMS)) == (before, files)
    if "bridge-utils" in predicted:
        printed = lab.module("corral.virt.virt_bridge", name="br0", ok=False)
        assert "install bridge-utils first" in printed
        assert (network(lab), lab.on(HOST, SUMS)) == (before, files)
        lab.on(HOST, "DEBIAN_FRONTEND=noninteractive apt-get install -qq -y bridge-utils")
    files = lab.on(HOST, f"{SUMS} | grep -v 80-corral-bridge")

    begun = lab.module("corral.virt.virt_bridge", name="br0", timeout=5)
    assert "switches: true" in begun
    result = "/run/corral-bridge/result.json"
    until(lambda: lab.on(HOST, f"cat {result} 2>/dev/null || true"), timeout_s=120)
    assert json.loads(lab.on(HOST, f"cat {result}"))["why"] == "no connection came back over the bridge"
    until(lambda: network(lab) == before)
    assert lab.on(HOST, f"{SUMS} | grep -v 80-corral-bridge") == files
    late = lab.module("corral.virt.virt_bridge", name="br0", state="confirmed", ok=False)
    assert "it was rolled back and the host is as before: no connection came back" in late

    made = lab.play(BRIDGE, flags=["--diff"])
    assert changed(made) >= 2
    after = network(lab)
    assert after == before.replace("host0", "br0")
    assert re.search(r"host0.*master br0", lab.on(HOST, "bridge link"))
    assert lab.on(HOST, "cat /sys/class/net/br0/bridge/stp_state") == "0"
    assert lab.on(HOST, "cat /sys/class/net/br0/address /sys/class/net/host0/address | uniq | wc -l") == "1"
    assert (
        lab.on(
            HOST,
            "ls -A /run/systemd/network/*corral* /run/corral-bridge/interfaces 2>/dev/null; true",
        )
        == ""
    )
    assert lab.on(HOST, "stat -c '%a %U' /run/corral-bridge") == "700 root"
    for flags in (["--check", "--diff"], []):
        assert changed(lab.play(BRIDGE, flags=flags)) == 0
    lab.on(HOST, "ip link set br0 type bridge stp_state 1")
    assert changed(lab.play(BRIDGE)) == 0, "it is somebody's own setting"
    mended = lab.play(WITHOUT_STP)
    assert "switch off stp of br0" in mended and "Come back" not in changed_tasks(mended)
    assert lab.on(HOST, "cat /sys/class/net/br0/bridge/stp_state") == "0"


def changed_tasks(printed: str) -> str:
    """Names of tasks that changed something."""
    blocks = re.split(r"^TASK ", printed, flags=re.MULTILINE)
    return "\n".join(block.splitlines()[0] for block in blocks if "\nchanged: " in block)


ALIAS = r"""
auto host0:0
iface host0:0 inet static
\taddress 192.0.2.6/24
"""


def test_a_bridge_where_ifupdown_configures(ifupdown: Hypervisors) -> None:
    """With an address of an alias, and one with a rule and a route over two next hops that somebody has added by hand."""
    ifupdown.on(HOST, f"printf {shlex.quote(ALIAS)} >> /etc/network/interfaces && ifup host0:0")
    ifupdown.on(
        HOST, "ip addr add 198.51.100.9/24 dev host0; ip rule add prio 99 from 198.51.100.9 oif host0 lookup main"
    )
    hops = "nexthop via 198.51.100.1 dev host0 weight 1 nexthop via 198.51.100.2 dev host0 weight 2"
    ifupdown.on(HOST, f"ip route add {MULTIPATH} {hops}")
    check_a_bridge(ifupdown)
    assert ifupdown.on(HOST, f"ip -o route show {MULTIPATH}").count(" dev br0 weight ") == 2
    assert "inet 192.0.2.6/24 " in ifupdown.on(HOST, "ip addr show br0 | grep 'br0:0$'")
    text = ifupdown.on(HOST, "cat /etc/network/interfaces")
    assert "auto br0" in text and "iface br0 inet static" in text and "iface host0 inet manual" in text
    # What is loaded at boot, read by its own program.
    assert "bridge_ports: host0" in ifupdown.on(HOST, "ifquery br0")


CONVERGE: dict[str, t.Any] = {"sources": ["192.0.2.7", "2001:db8::/64"]}


def check_a_firewall(lab: Hypervisors, manager: str, rules: str) -> str:
    """Predicted, done, predicted and done again, replaced; what `rules` printed after the first time.

    Rules of others are there all the time, in their order.
    """
    before = lab.on(HOST, rules)
    call = "corral.virt.virt_firewall"

    def keeps_others(now: str) -> bool:
        lines = iter(now.splitlines())
        return all(line in lines for line in before.splitlines())

    predicted = lab.module(call, "--check", **CONVERGE)
    assert f"manager: {manager}" in predicted and "changed: true" in predicted
    assert lab.on(HOST, rules) == before
    assert "changed: true" in lab.module(call, **CONVERGE)
    opened = lab.on(HOST, rules)
    assert opened.count("16514") > before.count("16514") and keeps_others(opened)
    for flags in (["--check"], []):
        assert "changed: false" in lab.module(call, *flags, **CONVERGE)
    assert lab.on(HOST, rules) == opened
    replaced = lab.module(call, sources=["192.0.2.8"])
    assert "changed: true" in replaced
    now = lab.on(HOST, rules)
    assert "192.0.2.8" in now and ("192.0.2.7" in now) is (manager == "firewalld") and keeps_others(now)
    lab.module(call, sources=["192.0.2.9"], purge=False)
    now = lab.on(HOST, rules)
    assert "192.0.2.8" in now and keeps_others(now)
    lab.module(call, sources=["any"])
    assert keeps_others(lab.on(HOST, rules))
    for flags in (["--check"], []):
        assert "changed: false" in lab.module(call, *flags, sources=["any"])
    lab.module(call, sources=[])
    assert keeps_others(lab.on(HOST, rules))
    if manager != "firewalld":
        assert lab.on(HOST, rules) == before
    return opened


DISCOVER = """
import socket, struct
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for option in (socket.SO_BROADCAST, socket.SO_REUSEADDR):
    sock.setsockopt(socket.SOL_SOCKET, option, 1)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
sock.bind(("", 68))
sock.settimeout(2)
head = struct.pack("!BBBBIHH16x6s202x", 1, 1, 6, 0, 7, 0, 0x8000, bytes.fromhex("525400000001"))
for attempt in range(5):
    sock.sendto(head + bytes.fromhex("63825363350101ff"), ("255.255.255.255", 67))
    try:
        print(socket.inet_ntoa(sock.recv(2000)[16:20]))
        break
    except TimeoutError:
        pass
"""


def check_a_lease(lab: Hypervisors) -> None:
    """A guest on a bridge of libvirt's gets an address once its bridge is admitted, and not before."""
    install(lab, "dnsmasq-base")
    lab.on(
        HOST,
        "ip netns del guest 2>/dev/null; ip link del virbr7 2>/dev/null; kill $(cat /run/leases.pid 2>/dev/null); true",
    )
    lab.on(HOST, "ip netns add guest && ip link add virbr7 type bridge && ip addr add 198.51.100.1/24 dev virbr7")
    lab.on(HOST, "ip link add port7 type veth peer name eth0 netns guest && ip link set port7 master virbr7 up")
    lab.on(HOST, "ip link set virbr7 up && ip netns exec guest ip link set eth0 up")
    options = "--conf-file=/dev/null --interface=virbr7 --bind-interfaces --except-interface=lo --port=0 --user=root"
    options += " --pid-file=/run/leases.pid --dhcp-leasefile=/run/leases --dhcp-range=198.51.100.50,198.51.100.60"
    lab.on(HOST, f"dnsmasq {options}")
    offer = f"ip netns exec guest python3 -c {shlex.quote(DISCOVER)}"
    assert lab.on(HOST, offer) == "", "the firewall drops the request"
    served: dict[str, t.Any] = {"ports": [], "sources": [], "bridges": ["virbr*"]}
    for flags in (["--check"], []):
        assert "changed: true" in lab.module("corral.virt.virt_firewall", *flags, **served)
    assert lab.on(HOST, offer).startswith("198.51.100.")
    for flags in (["--check"], []):
        assert "changed: false" in lab.module("corral.virt.virt_firewall", *flags, **served)
    lab.module("corral.virt.virt_firewall", sources=[])


def install(lab: Hypervisors, *packages: str) -> None:
    words = f"apt-get install -qq -y --no-install-recommends {' '.join(packages)}"
    lab.on(HOST, f"DEBIAN_FRONTEND=noninteractive {words}")


def test_nftables(ifupdown: Hypervisors) -> None:
    opened = check_a_firewall(ifupdown, "nftables", "nft list ruleset; cat /etc/corral-virt/* | grep -v '^#'; true")
    assert opened.count("16514") == 4, "two families, running and in the file"
    check_a_lease(ifupdown)


@pytest.mark.deep
def test_iptables(ifupdown: Hypervisors) -> None:
    install(ifupdown, "iptables-persistent")
    ifupdown.on(HOST, "systemctl disable --now nftables; nft flush ruleset")
    for tool, path in (("iptables", "rules.v4"), ("ip6tables", "rules.v6")):
        ifupdown.on(HOST, f"{tool} -A INPUT -p tcp --dport 22 -j ACCEPT")
        ifupdown.on(HOST, f"{tool} -A INPUT -p udp --dport 67 -j DROP")
        ifupdown.on(HOST, f"{tool}-save > /etc/iptables/{path}")
    rules = "iptables -S; ip6tables -S; grep -v '^#' /etc/iptables/rules.v4 /etc/iptables/rules.v6 | sed 's/\\[.*\\]//'"
    opened = check_a_firewall(ifupdown, "iptables", rules)
    assert opened.count("16514") == 4
    # What is loaded at boot is what runs.
    ifupdown.module("corral.virt.virt_firewall", **CONVERGE)
    running = ifupdown.on(HOST, "iptables -S; ip6tables -S")
    ifupdown.on(HOST, "iptables -F; ip6tables -F; netfilter-persistent start")
    assert ifupdown.on(HOST, "iptables -S; ip6tables -S") == running
    check_a_lease(ifupdown)


@pytest.mark.deep
def test_ufw(ifupdown: Hypervisors) -> None:
    off = "systemctl disable --now nftables netfilter-persistent; nft flush ruleset; iptables -F; ip6tables -F"
    ifupdown.on(HOST, f"({off}) 2>/dev/null; true")  # whichever of the others ran before
    install(ifupdown, "ufw")
    same = "from 192.0.2.8 to any port 16514,49152:49215 proto tcp"
    ifupdown.on(HOST, f"ufw deny 25/tcp; ufw allow 22/tcp; ufw allow {same} comment mine; ufw --force enable")
    opened = check_a_firewall(ifupdown, "ufw", "ufw show added; iptables -S; ip6tables -S")
    assert opened.count("16514") == 6, "three of ours, of which one was there, as added and in its chain"
    ifupdown.on(HOST, f"ufw deny {same}")
    printed = ifupdown.module("corral.virt.virt_firewall", sources=["192.0.2.8"], ok=False)
    assert f"remove it with `ufw delete deny {same}`" in printed
    ifupdown.on(HOST, f"ufw delete deny {same}")
    check_a_lease(ifupdown)


@pytest.mark.deep
def test_firewalld(ifupdown: Hypervisors) -> None:
    off = "ufw --force disable; systemctl disable --now nftables netfilter-persistent; nft flush ruleset"
    ifupdown.on(HOST, f"({off}) 2>/dev/null; true")
    install(ifupdown, "firewalld")
    ifupdown.on(HOST, "systemctl enable --now firewalld")
    both = ("", "--permanent")
    for rule in ("port=49000-50000/tcp", "service=http", "rich-rule='rule family=ipv4 source address=192.0.2.99 drop'"):
        ifupdown.on(HOST, " && ".join(f"firewall-cmd {lasting} --add-{rule}" for lasting in both))
    lists = ("--list-rich-rules", "--list-ports | tr ' ' '\\n'", "--list-services")
    rules = " ; ".join(f"firewall-cmd {lasting} {one}" for lasting in both for one in lists)
    opened = check_a_firewall(ifupdown, "firewalld", rules)
    assert opened.count("16514") == 4
    zone = "usr/lib/firewalld/zones/libvirt.xml"
    download = "apt-get -o Acquire::Retries=5 download -qq libvirt-daemon-system"
    unpack = f"cd /tmp && {download} && dpkg-deb -x libvirt-daemon-system*.deb zone"
    ifupdown.on(HOST, f"{unpack} && cp zone/{zone} /{zone}")  # firewalld ran before libvirt was installed
    until(lambda: "libvirt" in ifupdown.on(HOST, "firewall-cmd --permanent --get-zones").split())
    for more in ("--add-port=9/udp", "--zone=work --add-source=198.18.7.0/24"):
        ifupdown.on(HOST, f"firewall-cmd {more}")
    printed = ifupdown.module("corral.virt.virt_firewall", ports=[], sources=[], bridges=["virbr*"], ok=False)
    assert "a reload would lose" in printed and "9/udp" in printed
    assert "work: sources 198.18.7.0/24" in printed
    for more in ("--remove-port=9/udp", "--zone=work --remove-source=198.18.7.0/24"):
        ifupdown.on(HOST, f"firewall-cmd {more}")
    check_a_lease(ifupdown)


@pytest.mark.deep
def test_a_bridge_where_networkd_configures(networkd: Hypervisors) -> None:
    check_a_bridge(networkd)
    files = networkd.on(HOST, "ls /etc/systemd/network")
    assert {"05-corral-br0.netdev", "05-corral-br0.network", "05-corral-br0-host0.network"} <= set(files.split())
    networkd.on(HOST, "systemctl restart systemd-networkd")
    until(lambda: "br0" in network(networkd))


def test_a_bridge_where_networkmanager_configures(networkmanager: Hypervisors) -> None:
    check_a_bridge(networkmanager)
    files = networkmanager.on(HOST, f"cd {PROFILES} && stat -c '%a %U %n' *")
    assert files.splitlines() == ["600 root corral-br0.nmconnection", "600 root host0.nmconnection"]
    networkmanager.on(HOST, "systemctl restart NetworkManager")
    until(lambda: networkmanager.on(HOST, ON_DISK) == f"br0:{PROFILES}/corral-br0.nmconnection")


PROFILES = "/etc/NetworkManager/system-connections"
ON_DISK = "nmcli -t -f DEVICE,FILENAME connection show --active | grep ^br0"
OFFICE = """[connection]
id=office
uuid=6f2b0b3c-5d2c-4e55-9a57-0d8f60a4a1c1
type=ethernet
interface-name=host0
autoconnect-priority=20
zone=trusted

[ethernet]
mtu=1400
cloned-mac-address=52:54:00:11:22:33

[ipv4]
method=manual
address1={address}/24,{gateway}
dns={gateway};
dns-search=lab.example;
route1=198.18.7.0/24,{gateway},50
routing-rule1=priority 77 from 0.0.0.0/0 iif host0 table 254

[ipv6]
method=manual
address1=fd00:5::11/64
addr-gen-mode=eui64
"""
RIVAL = """[connection]
id=rival
uuid=0e8a3cf9-0b63-4f8c-9b1e-52c2a4b4d1d2
type=ethernet
interface-name=host0

[ipv4]
method=auto
"""
ALL_OF_IT = " ; ".join((
    "ip -o addr show scope global | awk '{print $2, $3, $4}' | sort; ip route; ip -6 route show fd00:5::/64; ip rule",
    "cat /etc/resolv.conf; cat /sys/class/net/$(ip route show default | sed 's/.* dev \\([^ ]*\\).*/\\1/')/{mtu,address}",
))  # fmt: skip


def inside(lab: Hypervisors, command: str) -> str:
    """A shell command on the host, past its network."""
    here = ("--name", NAME, HOST, "--", "bash", "-c", command)
    return lab.run(sys.executable, HERE / "lab.py", "exec", *here)


def cut_power(lab: Hypervisors, *before: str) -> None:
    """Of the host, after commands; it is up again."""
    inside(lab, "; ".join((*before, "touch /run/old; sync; (sleep 1; systemctl reboot -ff) >/dev/null 2>&1 &")))
    asked = "test ! -e /run/old && systemctl is-system-running"
    ssh = f"timeout 10 ssh -F {lab.folder}/ssh_config {HOST} {shlex.quote(asked)} || true"
    until(lambda: lab.run("sh", "-c", ssh).strip() in ("running", "degraded"), timeout_s=120, every_s=0.5)


def begin_with(lab: Hypervisors, **profiles: str) -> None:
    """Boot the host with these profiles alone."""
    address = lab.on(HOST, "hostname -i")
    texts = {name: text.format(address=address, gateway=lab.gateway) for name, text in profiles.items()}
    writes = [f"printf %s {shlex.quote(text)} > {PROFILES}/{name}.nmconnection" for name, text in texts.items()]
    cut_power(lab, f"rm -f {PROFILES}/*; umask 077", *writes)


@pytest.mark.deep
def test_all_that_a_profile_has_moves_to_the_bridge_and_a_boot_keeps_it(networkmanager: Hypervisors) -> None:
    lab = networkmanager
    begin_with(lab, office=OFFICE, rival=RIVAL)
    before = lab.on(HOST, ALL_OF_IT)
    assert "1400" in before and "fd00:5::11" in before and "198.18.7.0/24" in before and "lab.example" in before
    lab.play(BRIDGE)
    after = before.replace("host0", "br0")
    until(lambda: lab.on(HOST, ALL_OF_IT) == after)
    cut_power(lab)
    until(lambda: lab.on(HOST, ALL_OF_IT) == after)
    assert lab.on(HOST, "nmcli -g connection.zone,ipv4.dns-search connection show br0").split() == [
        "trusted",
        "lab.example",
    ]
    assert lab.on(HOST, "nmcli -t -f NAME,AUTOCONNECT connection show | sort") == "br0:yes\nlo:no\noffice:yes\nrival:no"
    assert changed(lab.play(BRIDGE)) == 0


@pytest.mark.deep
def test_a_trial_survives_networkmanager_and_not_the_host(networkmanager: Hypervisors) -> None:
    lab = networkmanager
    begin_with(lab, office=OFFICE)
    before, files = lab.on(HOST, ALL_OF_IT), lab.on(HOST, f"md5sum {PROFILES}/*")
    call = "corral.virt.virt_bridge"
    lab.module(call, name="br0")
    until(lambda: "br0" in inside(lab, "ip -4 -o addr show dev br0; true"))
    cut_power(lab)
    assert (lab.on(HOST, ALL_OF_IT), lab.on(HOST, f"md5sum {PROFILES}/*")) == (before, files)

    lab.module(call, name="br0", timeout=15)
    until(lambda: "br0" in inside(lab, "ip -4 -o addr show dev br0; true"))
    inside(lab, "systemctl stop NetworkManager")
    until(lambda: inside(lab, "cat /run/corral-bridge/result.json 2>/dev/null; true"), timeout_s=120)
    assert "the host is as before" in lab.module(call, name="br0", state="confirmed", ok=False)
    until(lambda: lab.on(HOST, ALL_OF_IT) == before)
    assert lab.on(HOST, f"systemctl is-active NetworkManager; md5sum {PROFILES}/*") == f"active\n{files}"

    lab.module(call, name="br0")
    until(lambda: "br0" in inside(lab, "ip -4 -o addr show dev br0; true"))
    inside(lab, "systemctl kill -s KILL NetworkManager; sleep 3; systemctl restart NetworkManager; sleep 3")
    lab.module(call, name="br0", state="confirmed")
    assert lab.on(HOST, ALL_OF_IT) == before.replace("host0", "br0")
    cut_power(lab)
    until(lambda: lab.on(HOST, ALL_OF_IT) == before.replace("host0", "br0"))


@pytest.mark.deep
@pytest.mark.parametrize("profiles", [{}, {"dhcp": RIVAL.replace("=auto", "=auto\ndhcp-client-id=stable")}])
def test_a_lease_moves_to_the_bridge(networkmanager: Hypervisors, profiles: dict[str, str]) -> None:
    """Also with the profile that NetworkManager makes for a link which has none, in memory."""
    lab = networkmanager
    begin_with(lab, office=OFFICE.replace("cloned-mac-address=52:54:00:11:22:33\n", ""))
    mac = lab.on(HOST, "cat /sys/class/net/host0/address")
    lab.run(sys.executable, HERE / "lab.py", "reserve", "--name", NAME, mac, lab.on(HOST, "hostname -i"))
    begin_with(lab, **profiles)
    identity = "nmcli -t -f DHCP4 device show {} | sed -n 's/.*dhcp_client_identifier = //p'"
    before, known = network(lab), lab.on(HOST, identity.format("host0"))
    assert known.startswith("00:" if profiles else "01:") and "proto dhcp" in before
    lab.module("corral.virt.virt_bridge", name="br0", timeout=30)
    until(lambda: inside(lab, "cat /run/corral-bridge/result.json 2>/dev/null; true"), timeout_s=120)
    until(lambda: network(lab) == before)
    for power in (lambda: lab.play(BRIDGE), lambda: cut_power(lab)):
        power()
        until(lambda: network(lab) == before.replace("host0", "br0"))
        assert lab.on(HOST, identity.format("br0")) == known
    assert changed(lab.play(BRIDGE)) == 0


# A Linux of its own has bonds and VLANs.
MACHINE = ("--hosts", "1", "--no-image", "--uml", "--network", "networkd")
WITH = "bridge-utils,ifenslave,ifupdown,isc-dhcp-client,netplan.io,network-manager,python3-yaml,vlan"
BONDED: dict[str, dict[str, str]] = {
    "networkd": {
        "systemd/network/20-bond0.netdev": "[NetDev]\nName=bond0\nKind=bond\n\n[Bond]\nMode=active-backup\n"
        "MIIMonitorSec=0.1\n",
        "systemd/network/20-host0.network": "[Match]\nName=host0\n\n[Network]\nBond=bond0\n",
        "systemd/network/20-bond0.network": "[Match]\nName=bond0\n\n[Network]\nAddress={address}/24\n"
        "Gateway={gateway}\n",
    },
    "ifupdown": {
        "network/interfaces": "auto lo\niface lo inet loopback\n\nauto bond0\niface bond0 inet static\n"
        "\taddress {address}/24\n\tgateway {gateway}\n\tbond-slaves host0\n\tbond-mode active-backup\n"
        "\tbond-miimon 100\n",
    },
    "netplan": {
        "netplan/10-lab.yaml": "network:\n  version: 2\n  renderer: networkd\n  ethernets: {{host0: {{}}}}\n  bonds:\n"
        "    bond0:\n      interfaces: [host0]\n      parameters: {{mode: active-backup, mii-monitor-interval: 100}}\n"
        "      addresses: [{address}/24]\n      routes: [{{to: default, via: {gateway}}}]\n",
    },
    "networkmanager": {
        "NetworkManager/system-connections/bond0.nmconnection": "[connection]\nid=bond0\n"
        "uuid=0f3a3a0e-5c0b-4a8e-9f0e-1d5a3c7e2b11\ntype=bond\ninterface-name=bond0\n\n[bond]\nmode=active-backup\n"
        "miimon=100\n\n[ipv4]\nmethod=manual\naddress1={address}/24,{gateway}\n",
        "NetworkManager/system-connections/host0.nmconnection": "[connection]\nid=host0\n"
        "uuid=1b6d5f0c-8a52-4a41-9a63-6a2f0e9b7c22\ntype=ethernet\ninterface-name=host0\nmaster=bond0\nslave-type=bond\n",
    },
}
UNITS = {"ifupdown": "networking", "networkmanager": "NetworkManager"}
BRIDGES = {
    **BRIDGE,
    "vars": {"virt_bridges": [{"name": "br0", "port": "bond0"}, {"name": "br42", "port": "bond0", "vlan": 42}]},
}
LINKS = (
    "ip -o -d link show type bridge_slave | sed 's/^[0-9]*: //' | awk '{print $1}' | LC_ALL=C sort -r | tr '\\n' ' '"
)


@pytest.fixture
def machine() -> Iterator[Hypervisors]:
    """A host that is a process with a Linux of its own."""
    lab = Hypervisors("hostuml")
    here = (sys.executable, HERE / "lab.py")
    if not lab.kept:
        lab.run(*here, "down", "--name", lab.name)
    power_on(lab)
    lab.run(sys.executable, HERE / "demo.py", "config", "--name", lab.name)
    yield lab
    if not lab.kept:
        lab.run(*here, "down", "--name", lab.name)


def power_on(lab: Hypervisors) -> None:
    words = ("up", "--name", lab.name, *MACHINE, "--packages", WITH)
    lab.run(sys.executable, HERE / "lab.py", *words, timeout_s=900)


def power_cycle(lab: Hypervisors, *before: str) -> None:
    """Cut its power after commands, and have it up again."""
    lab.on(HOST, "; ".join((*before, "sync; (sleep 1; systemctl poweroff -ff) >/dev/null 2>&1 &")))
    alive = f"timeout 3 ssh -F {lab.folder}/ssh_config {HOST} true && echo yes || true"
    until(lambda: "yes" not in lab.run("sh", "-c", alive))
    power_on(lab)


def begin_as(lab: Hypervisors, provider: str, files: t.Mapping[str, str]) -> None:
    """Boot with these files of that provider alone."""
    values = {"address": lab.variable("ansible_host"), "gateway": lab.gateway}
    texts = {path: text.format(**values) for path, text in files.items()}
    own = "find /etc/systemd/network /etc/netplan /etc/NetworkManager/system-connections -type f -not -name '*.link' -delete"
    off = "systemctl -q disable networking systemd-networkd NetworkManager 2>/dev/null"
    on = f"systemctl -q enable {UNITS.get(provider, 'systemd-networkd')}"
    loopback = "printf 'auto lo\\niface lo inet loopback\\n' > /etc/network/interfaces"
    writes = [f"printf %s {shlex.quote(text)} > /etc/{path}" for path, text in texts.items()]
    private = "chmod 600 /etc/netplan/* /etc/NetworkManager/system-connections/* 2>/dev/null"
    power_cycle(lab, own, off, on, loopback, "mkdir -p /etc/netplan", *writes, private)


@pytest.mark.deep
@pytest.mark.parametrize("provider", BONDED)
def test_bridges_on_a_bond_and_on_its_vlan(machine: Hypervisors, provider: str) -> None:
    """Each is taken back, made, once, and there after a power cut; the bond keeps its member and options."""
    lab, call = machine, "corral.virt.virt_bridge"
    begin_as(lab, provider, BONDED[provider])
    before = network(lab)
    bond = "cat /sys/class/net/bond0/bonding/{slaves,mode,miimon}"
    of_bond = lab.on(HOST, bond)
    assert "bond0" in before and "host0" in of_bond and "active-backup" in of_bond

    def is_taken_back(expected: str) -> None:
        until(lambda: lab.on(HOST, "cat /run/corral-bridge/result.json 2>/dev/null || true"), timeout_s=180)
        assert json.loads(lab.on(HOST, "cat /run/corral-bridge/result.json"))["why"].startswith("no connection came")
        until(lambda: (network(lab), lab.on(HOST, bond)) == (expected, of_bond))

    if provider == "networkmanager":
        assert "ifenslave deletes bond0" in lab.module(call, name="br0", port="bond0", ok=False)
        lab.on(HOST, "dpkg --purge ifenslave")
    assert f"manager: {provider}" in lab.module(call, name="br0", port="bond0", timeout=30)
    is_taken_back(before)
    made = lab.play(BRIDGES)
    after = before.replace("bond0", "br0")
    assert changed(made) >= 4 and network(lab) == after and lab.on(HOST, LINKS).split() == ["bond0:", "bond0.42@bond0:"]
    assert "vlan protocol 802.1Q id 42" in lab.on(HOST, "ip -d link show bond0.42") and "master br42" in lab.on(
        HOST, "ip link show bond0.42"
    )
    assert lab.on(HOST, bond) == of_bond and lab.on(HOST, "ip -o addr show br42") == ""
    for flags in (["--check"], []):
        assert changed(lab.play(BRIDGES, flags=flags)) == 0
    files = lab.on(HOST, SUMS)
    lab.module(call, name="br43", vlan=43, timeout=30)
    is_taken_back(after)
    assert "43" not in lab.on(HOST, "ip -br link") and lab.on(HOST, SUMS) == files
    power_cycle(lab)
    until(lambda: network(lab) == after)
    assert lab.on(HOST, bond) == of_bond and lab.on(HOST, LINKS).split() == ["bond0:", "bond0.42@bond0:"]
    assert changed(lab.play(BRIDGES)) == 0


MODULE = "corral.virt.virt_bridge"
PLAIN: dict[str, dict[str, str]] = {
    "networkd": {
        "systemd/network/20-host0.network": "[Match]\nName=host0\n\n[Network]\nAddress={address}/24\nGateway={gateway}\n"
    },
    "ifupdown": {
        "network/interfaces": "auto lo\niface lo inet loopback\n\nauto host0\niface host0 inet static\n"
        "\taddress {address}/24\n\tgateway {gateway}\n",
    },
    "netplan": {
        "netplan/10-lab.yaml": "network:\n  version: 2\n  renderer: networkd\n  ethernets:\n    host0:\n"
        "      addresses: [{address}/24]\n      routes: [{{to: default, via: {gateway}}}]\n",
    },
    "networkmanager": {
        "NetworkManager/system-connections/host0.nmconnection": "[connection]\nid=host0\n"
        "uuid=1b6d5f0c-8a52-4a41-9a63-6a2f0e9b7c22\ntype=ethernet\ninterface-name=host0\n\n[ipv4]\nmethod=manual\n"
        "address1={address}/24,{gateway}\n",
    },
}


TRUNK = {**BRIDGE, "vars": {"virt_bridges": [{"name": "br0", "port": "host0", "vlan_filtering": True}]}}


@pytest.mark.deep
@pytest.mark.parametrize("provider", ["networkd", "ifupdown", "networkmanager"])
def test_a_bridge_that_filters_vlans_has_all_on_its_port(machine: Hypervisors, provider: str) -> None:
    """Also after a power cut; the host itself stays in the VLAN without a tag."""
    lab = machine
    begin_as(lab, provider, PLAIN[provider])
    after = network(lab).replace("host0", "br0")

    def is_trunk() -> bool:
        shown = lab.on(HOST, "ip -d link show br0; bridge -compressvlans vlan show dev host0")
        return "vlan_filtering 1" in shown and {"1", "2-4094"} <= {*shown.split()} and "PVID Egress Untagged" in shown

    assert changed(lab.play(TRUNK)) >= 1 and network(lab) == after and is_trunk()
    for flags in (["--check"], []):
        assert changed(lab.play(TRUNK, flags=flags)) == 0
    power_cycle(lab)
    until(lambda: network(lab) == after and is_trunk())
    assert changed(lab.play(TRUNK)) == 0


class Pulse:
    """Pings the host all the time, from an address behind its gateway: how long nobody answered, at most."""

    def __init__(self, address: str) -> None:
        self.address, self.longest_s, self._over = address, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._ping)

    def _ping(self) -> None:
        answered = time.monotonic()
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
            raw.bind((BEHIND, 0))
            raw.settimeout(0.2)
            while not self._over.wait(0.1):
                with contextlib.suppress(OSError):  # of the device, while there is none
                    raw.sendto(bytes.fromhex("0800f7ff00000000"), (self.address, 0))
                    while raw.recvfrom(99)[1][0] != self.address:
                        pass
                    answered = time.monotonic()
                self.longest_s = max(self.longest_s, time.monotonic() - answered)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()


BEHIND = "198.18.8.9"  # of this machine, in no network of the host


@pytest.fixture
def behind() -> Iterator[None]:
    subprocess.run(["ip", "addr", "add", f"{BEHIND}/32", "dev", "lo"], check=True)
    yield
    subprocess.run(["ip", "addr", "del", f"{BEHIND}/32", "dev", "lo"], check=True)


@dataclasses.dataclass
class Trials:
    """Bridges that nobody confirms, and how long the host does not answer until it is as before."""

    lab: Hypervisors
    provider: str
    address: str
    before: str
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)

    def measure(self, case: str, act: t.Callable[[], object]) -> None:
        """Do something, and wait until the host's network is as before."""
        with Pulse(self.address) as pulse:
            act()
            until(lambda: self.seen(lambda: network(self.lab)) == self.before, timeout_s=180)
        self.seconds[case] = round(pulse.longest_s, 1)
        print(f"{self.provider}: {case}: {self.seconds[case]} s", flush=True)

    def try_it(self, *, then: t.Callable[[], object] = lambda: None, **options: t.Any) -> None:
        """Begin with a bridge, which nobody confirms."""
        lab, result = self.lab, "cat /run/corral-bridge/result.json 2>/dev/null || true"
        lab.on(HOST, "rm -f /run/corral-bridge/result.json")
        lab.module(MODULE, **{"name": "br0", "timeout": 12, **options})
        then()
        until(lambda: '"ok": false' in self.seen(lambda: lab.on(HOST, result)), timeout_s=180)

    @staticmethod
    def seen(look: t.Callable[[], str]) -> str:
        """What a look at the host shows; nothing while its network resets connections."""
        try:
            return look()
        except AssertionError:
            return ""

    def on_trial(self) -> None:
        """Wait until the bridge has an address."""
        until(lambda: "br0" in self.lab.on(HOST, "ip -4 -o addr show dev br0 2>/dev/null || true"))


@pytest.mark.deep
@pytest.mark.parametrize("provider", PLAIN)
def test_the_host_is_back_whatever_happens(
    machine: Hypervisors, behind: None, provider: str, record_property: t.Callable[[str, object], None]
) -> None:
    """As before, after each of these; the seconds without an answer are those of guide_networks."""
    lab = machine
    begin_as(lab, provider, PLAIN[provider])
    sums = f"{SUMS} | grep -v -e 80-corral-bridge -e /lo.nmconnection"  # NetworkManager makes that one at each boot
    files, unit = lab.on(HOST, sums), UNITS.get(provider, "systemd-networkd")
    trials = Trials(lab, provider, lab.variable("ansible_host"), network(lab))

    def restart() -> None:
        trials.on_trial()
        lab.on(HOST, f"systemctl restart {unit} || true")  # ifupdown's own unit fails, as host0 is in the bridge

    def second_run() -> None:
        assert "br0" in lab.module(MODULE, name="br1", ok=False)

    def cut() -> None:
        lab.module(MODULE, name="br0")
        trials.on_trial()
        power_cycle(lab)

    trials.measure("missing device", lambda: lab.module(MODULE, name="br0", port="eth9", ok=False))
    trials.measure("controller gone", trials.try_it)
    trials.measure("restarted", lambda: trials.try_it(then=restart, timeout=20))
    trials.measure("second run", lambda: trials.try_it(then=second_run, timeout=20))
    trials.measure("wrong VLAN", lambda: trials.try_it(name="br43", vlan=43))
    trials.measure("power cut", cut)
    assert lab.on(HOST, sums) == files
    record_property("seconds", trials.seconds)


LEASED = {
    "networkd": ("Address={address}/24\nGateway={gateway}", "DHCP=ipv4"),
    "ifupdown": ("static\n\taddress {address}/24\n\tgateway {gateway}", "dhcp"),
    "netplan": ("addresses: [{address}/24]\n      routes: [{{to: default, via: {gateway}}}]", "dhcp4: true"),
    "networkmanager": ("method=manual\naddress1={address}/24,{gateway}", "method=auto"),
}


@pytest.mark.deep
@pytest.mark.parametrize("provider", PLAIN)
def test_the_host_is_back_although_its_file_or_its_server_is_not_as_before(
    machine: Hypervisors, behind: None, provider: str, record_property: t.Callable[[str, object], None]
) -> None:
    """Its file has another gateway, and the DHCP server does not answer any more."""
    lab = machine
    begin_as(lab, provider, PLAIN[provider])
    address = lab.variable("ansible_host")
    trials = Trials(lab, provider, address, network(lab))
    places = " ".join(f"/etc/{path}" for path in PLAIN[provider])
    lab.on(HOST, f"sed -i 's/{re.escape(lab.gateway)}\\b/{lab.gateway}53/' {places}")
    trials.measure("wrong gateway", trials.try_it)

    mac = lab.on(HOST, "cat /sys/class/net/host0/address")
    lab.run(sys.executable, HERE / "lab.py", "reserve", "--name", lab.name, mac, address)
    begin_as(lab, provider, {path: text.replace(*LEASED[provider]) for path, text in PLAIN[provider].items()})
    until(lambda: lab.on(HOST, "ip route show default"))
    trials.before = network(lab)
    assert "dynamic" in lab.on(HOST, "ip addr show dev host0")
    trials.measure("leased", trials.try_it)
    leases = f"dhcp-leasefile=/var/lib/corral-lab/{lab.name}/"
    (server,) = subprocess.run(["pgrep", "-f", leases], check=True, capture_output=True, text=True).stdout.split()
    os.kill(int(server), signal.SIGSTOP)
    try:
        trials.measure("DHCP server gone", trials.try_it)
    finally:
        os.kill(int(server), signal.SIGCONT)
    record_property("seconds", trials.seconds)


def leased(lab: Hypervisors) -> list[str]:
    """The address and the client's identity in the leases of the lab's DHCP server."""
    rows = Path(f"/var/lib/corral-lab/{lab.name}/dhcp-leases").read_text().splitlines()
    ((_until, _mac, address, _name, identity),) = map(str.split, rows)
    return [address, identity]


@pytest.mark.deep
@pytest.mark.parametrize("provider", PLAIN)
def test_a_lease_and_its_client_move_to_the_bridge(machine: Hypervisors, provider: str) -> None:
    """Also after a power cut; to the server the bridge is the client that the port was."""
    lab = machine
    begin_as(lab, provider, PLAIN[provider])
    mac, address = lab.on(HOST, "cat /sys/class/net/host0/address"), lab.variable("ansible_host")
    lab.run(sys.executable, HERE / "lab.py", "reserve", "--name", lab.name, mac, address)
    begin_as(lab, provider, {path: text.replace(*LEASED[provider]) for path, text in PLAIN[provider].items()})
    until(lambda: lab.on(HOST, "ip route show default"))
    before, known = network(lab), leased(lab)
    for act in (lambda: lab.play(BRIDGE), lambda: power_cycle(lab)):
        act()
        until(lambda: network(lab) == before.replace("host0", "br0"))
        assert leased(lab) == known
        if provider == "ifupdown":
            assert "br0" in lab.on(HOST, "pgrep -fa dhclient"), "nobody renews the lease"
        assert changed(lab.play(BRIDGE)) == 0
