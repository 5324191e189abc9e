"""Virtual networks on a host: dnsmasq runs, a guest is plugged in; judged by virsh, dig and dnsmasq's own files.

The guest has no operating system: its interface is plugged in all the same.
"""

from __future__ import annotations

import json
import re
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import Hypervisors, hypervisors

pytestmark = pytest.mark.lab

SUBNET = "192.168.150"
LAB: dict[str, t.Any] = {
    "name": "lab",
    "bridge": "virbr-lab",
    "domain": {"name": "lab.example", "local_only": True},
    "ips": [
        {
            "address": f"{SUBNET}.1",
            "prefix": 24,
            "dhcp": {"ranges": [{"start": f"{SUBNET}.100", "end": f"{SUBNET}.199"}]},
        }
    ],
}
MAC = "52:54:00:00:00:10"
HOSTS = {"address": f"{SUBNET}.1", "dhcp": {"hosts": [{"ip": f"{SUBNET}.10", "mac": MAC, "name": "db1"}]}}
LIVE: dict[str, t.Any] = {
    "name": "lab",
    "ips": [HOSTS],
    "dns": {
        "hosts": [{"ip": f"{SUBNET}.7", "hostnames": ["mail.lab.example"]}],
        "txts": [{"name": "site.lab.example", "value": "north"}],
    },
    "portgroups": [{"name": "slow", "bandwidth": {"inbound": {"average": 100}}}],
}


@pytest.fixture(scope="module")
def lab() -> Iterator[Hypervisors]:
    """One hypervisor."""
    with hypervisors("network") as lab:
        yield lab


def network(lab: Hypervisors, *, check: bool = False, **output: t.Any) -> dict[str, t.Any]:
    """What virt_network answers."""
    task = {"corral.virt.virt_network": output, "register": "told"}
    result = lab.tell(task, hosts="hyper1", check=check)
    return t.cast("dict[str, t.Any]", result["hyper1"])


def four_steps(lab: Hypervisors, said: dict[str, t.Any], look: t.Callable[[], str]) -> dict[str, t.Any]:
    """Check, do, check again, do again; what was done."""
    before = look()
    checked = network(lab, check=True, **said)
    assert checked["changed"] and look() == before
    done = network(lab, **said)
    assert {key: done[key] for key in ("steps", "pending", "notes", "diff", "network")} == {
        key: checked[key] for key in ("steps", "pending", "notes", "diff", "network")
    }
    after = look()
    assert after != before
    for check in (True, False):
        again = network(lab, check=check, **said)
        assert not again["changed"] and not again["steps"], again
    assert look() == after
    return done


def document(lab: Hypervisors, *flags: str) -> str:
    """What libvirt says of the network; nothing where there is none."""
    return lab.on("hyper1", f"virsh net-dumpxml lab {' '.join(flags)} 2>/dev/null || true")


def asked(lab: Hypervisors, name: str, kind: str = "A") -> str:
    """What the network's name server answers."""
    query = (
        "import sys, socket, struct; name, kind = sys.argv[1], int(sys.argv[2]); parts = b''.join(bytes([len(p)]) + "
        "p.encode() for p in name.split('.')) + bytes(1); s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
        "s.settimeout(5); s.sendto(struct.pack('>6H', 7, 256, 1, 0, 0, 0) + parts + struct.pack('>2H', kind, 1), "
        f"('{SUBNET}.1', 53)); answer = s.recv(999); count = struct.unpack('>H', answer[6:8])[0]; "
        "print(answer[-4:].hex() if count and kind == 1 else answer[-20:].decode('latin1') if count else '')"
    )
    number = {"A": 1, "TXT": 16}[kind]
    return lab.on("hyper1", f'python3 -c "{query}" {name} {number}')


def dnsmasq(lab: Hypervisors) -> str:
    """The process that serves the network."""
    return lab.on("hyper1", "pgrep -of 'dnsmasq.*/lab.conf' || true")


def test_a_network_is_made_and_updated_while_it_runs(lab: Hypervisors) -> None:
    done = four_steps(lab, LAB, lambda: document(lab))
    assert done["steps"] == [
        "define network lab (mode nat)",
        "set autostart of network lab on",
        "start network lab",
    ]
    assert "Autostart:      yes" in lab.on("hyper1", "virsh net-info lab")
    assert f"inet {SUBNET}.1/24" in lab.on("hyper1", "ip address show virbr-lab")
    assert f"{SUBNET}.100,{SUBNET}.199" in lab.on("hyper1", "cat /var/lib/libvirt/dnsmasq/lab.conf")
    assert dnsmasq(lab)
    uuid = lab.on("hyper1", "virsh net-uuid lab")

    done = four_steps(lab, LIVE, lambda: document(lab))
    assert not done["pending"] and "stop network lab" not in done["steps"]
    for flags in ((), ("--inactive",)):
        text = document(lab, *flags)
        for part in (MAC, "mail.lab.example", "north", "portgroup name='slow'"):
            assert part in text
    assert f"{MAC},{SUBNET}.10,db1" in lab.on("hyper1", "cat /var/lib/libvirt/dnsmasq/lab.hostsfile")
    assert asked(lab, "mail.lab.example") == bytes([192, 168, 150, 7]).hex()
    assert "north" in asked(lab, "site.lab.example", "TXT")
    assert lab.on("hyper1", "virsh net-uuid lab") == uuid

    moved = {"name": "lab", "ips": [{"address": f"{SUBNET}.1", "dhcp": {
        "ranges": [{"start": f"{SUBNET}.100", "end": f"{SUBNET}.199", "state": "absent"}, {"start": f"{SUBNET}.50", "end": f"{SUBNET}.60"}],
        "hosts": [{"ip": f"{SUBNET}.10", "mac": "52:54:00:00:00:11"}],
    }}]}  # fmt: skip
    assert not four_steps(lab, moved, lambda: document(lab))["pending"]
    conf = lab.on("hyper1", "cat /var/lib/libvirt/dnsmasq/lab.conf")
    assert f"{SUBNET}.50,{SUBNET}.60" in conf and f"{SUBNET}.100" not in conf
    assert f"52:54:00:00:00:11,{SUBNET}.10,db1" in lab.on("hyper1", "cat /var/lib/libvirt/dnsmasq/lab.hostsfile")


def test_a_guest_on_it_is_not_cut_off(lab: Hypervisors) -> None:
    nic = {"name": "eth0", "type": "network", "network": "lab"}
    wish: dict[str, t.Any] = {
        "name": "box",
        "vcpus": 1,
        "memory": "64MiB",
        "disks": [],
        "interfaces": [nic],
        "state": "running",
    }
    lab.module("corral.virt.virt_domain", **wish)
    assert "vnet" in lab.on("hyper1", "ls /sys/class/net/virbr-lab/brif")
    before, server = document(lab, "--inactive"), dnsmasq(lab)
    refused: list[dict[str, t.Any]] = [{"state": "inactive"}, {"state": "absent"}, {"mtu": 1400, "allow_restart": True}]
    for output in refused:
        for flags in (("--check",), ()):
            result = lab.module("corral.virt.virt_network", *flags, ok=False, name="lab", **output)
            assert "running guests would lose it: box" in result and "force: true" in result
    assert document(lab, "--inactive") == before and dnsmasq(lab) == server

    pending = network(lab, name="lab", mtu=1400)
    assert pending["pending"] == ["mtu: None -> 1400"] or "1400" in pending["pending"][0]
    assert "vnet" in lab.on("hyper1", "ls /sys/class/net/virbr-lab/brif")
    assert "<mtu" not in document(lab) and "<mtu" in document(lab, "--inactive")
    again = network(lab, name="lab", mtu=1400)
    assert not again["changed"] and again["pending"] == pending["pending"]

    lab.on("hyper1", "virsh destroy box")
    done = network(lab, name="lab", mtu=1400, allow_restart=True)
    assert done["steps"] == ["stop network lab", "start network lab"] and not done["pending"]
    assert "mtu 1400" in lab.on("hyper1", "ip link show virbr-lab")


@pytest.mark.deep
def test_a_guest_on_its_bridge_is_not_cut_off(lab: Hypervisors) -> None:
    """Neither one that names the bridge, nor one that is to be elsewhere at its next boot."""
    nics = {
        "bridge": {"name": "eth0", "type": "bridge", "bridge": "virbr-lab"},
        "moves": {"name": "eth0", "type": "network", "network": "lab"},
    }
    shape: dict[str, t.Any] = {"vcpus": 1, "memory": "64MiB", "disks": [], "state": "running"}
    for name, nic in nics.items():
        lab.module("corral.virt.virt_domain", name=name, interfaces=[nic], **shape)
    lab.on("hyper1", "virsh detach-interface moves network --config")
    ports = lab.on("hyper1", "ls /sys/class/net/virbr-lab/brif")
    assert ports.count("vnet") == 2
    for output in ({"state": "inactive"}, {"state": "absent"}, {"mtu": 1390, "allow_restart": True}):
        result = lab.module("corral.virt.virt_network", ok=False, name="lab", **output)
        assert "running guests would lose it: bridge, moves; shut them down" in result
    assert lab.on("hyper1", "ls /sys/class/net/virbr-lab/brif") == ports
    for name in nics:
        lab.on("hyper1", f"virsh destroy {name}; virsh undefine {name}")


@pytest.mark.deep
def test_a_mode_that_waits_cuts_nobody_off(lab: Hypervisors) -> None:
    """The definition says that guests are on a bridge of the host; what runs is as it was started."""
    before, uuid = document(lab, "--inactive"), lab.on("hyper1", "virsh net-uuid lab")
    bridged = f"<network><name>lab</name><uuid>{uuid}</uuid><forward mode='bridge'/><bridge name='br7'/></network>"
    lab.on("hyper1", "cat >lab.xml && virsh net-define lab.xml", given=bridged)
    assert "mode='bridge'" in document(lab, "--inactive") and "mode='nat'" in document(lab)
    lab.on("hyper1", "virsh start box")
    assert "vnet" in lab.on("hyper1", "ls /sys/class/net/virbr-lab/brif")
    for state in ("inactive", "absent"):
        for flags in (("--check",), ()):
            result = lab.module("corral.virt.virt_network", *flags, ok=False, name="lab", state=state)
            assert "running guests would lose it: box; shut them down" in result
    assert "vnet" in lab.on("hyper1", "ls /sys/class/net/virbr-lab/brif")
    lab.on("hyper1", "virsh destroy box; cat >lab.xml && virsh net-define lab.xml", given=before)


def test_what_is_there_is_described(lab: Hypervisors) -> None:
    lab.on("hyper1", "virsh net-update lab delete dns-txt '<txt name=\"site.lab.example\"/>' --live --config")
    found = lab.tell(
        {"corral.virt.virt_network_info": {"name": "lab", "arguments": True}, "register": "told"}, hosts="hyper1"
    )["hyper1"]["networks"][0]
    assert found["uuid"] == lab.on("hyper1", "virsh net-uuid lab")
    leases = lab.on("hyper1", "virsh -q net-dhcp-leases lab")  # firmware asks, and the host's firewall lets it
    assert {lease["mac"] for lease in found["leases"]} == set(re.findall(r"52:54:00(?::[0-9a-f]{2}){3}", leases))
    assert "txts" not in found["dns"] and found["mtu"] == 1400
    output = json.loads(json.dumps(found["arguments"]))
    assert not network(lab, **output)["changed"]


def test_a_network_on_a_bridge_needs_the_bridge(lab: Hypervisors) -> None:
    output: dict[str, t.Any] = {"name": "lan", "mode": "bridge", "bridge": "br7"}
    result = lab.module("corral.virt.virt_network", ok=False, **output)
    assert "this host has no such bridge" in result and "role corral.virt.bridge" in result
    lab.on("hyper1", "ip link add br7 type bridge")
    try:
        assert network(lab, **output)["changed"]
        text = lab.on("hyper1", "virsh net-dumpxml lan")
        assert re.search(r"<forward mode='bridge'/>\s*<bridge name='br7'/>", text)
        assert not network(lab, **output)["changed"]
        network(lab, name="lan", state="absent")
    finally:
        lab.on("hyper1", "ip link delete br7")
    assert "lan" not in lab.on("hyper1", "virsh net-list --all --name").split()


def test_it_goes_without_its_guest(lab: Hypervisors) -> None:
    done = network(lab, name="lab", state="absent")
    assert done["steps"] == ["stop network lab", "undefine network lab"]
    assert done["notes"] == ["guests that use network lab cannot start without it: box"]
    assert "lab" not in lab.on("hyper1", "virsh net-list --all --name").split()
    assert "virbr-lab" not in lab.on("hyper1", "ls /sys/class/net")
    assert not network(lab, name="lab", state="absent")["changed"]
    assert "box" in lab.on("hyper1", "virsh list --all --name")


HOLDS_DHCP = "import socket, time; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('', 67)); time.sleep(3600)"


@pytest.fixture
def no_dhcp(lab: Hypervisors) -> Iterator[None]:
    """Another program serves DHCP on all interfaces, which no check sees: libvirt's dnsmasq ends at once."""
    lab.on("hyper1", f'systemd-run --unit=other-dhcp python3 -c "{HOLDS_DHCP}"')
    until(lambda: lab.on("hyper1", "ss -Hlun 'sport = :67'"))
    yield
    lab.on("hyper1", "systemctl stop other-dhcp")


@pytest.mark.deep
def test_a_network_that_cannot_start_leaves_what_was_there(lab: Hypervisors, no_dhcp: None) -> None:
    """Nothing of a new one; of one that is there its former definition, off and without autostart."""
    places = "/etc/libvirt/qemu/networks /etc/libvirt/qemu/networks/autostart /sys/class/net"
    there = f"virsh -q net-list --all; ls {places}"
    dhcp = {"ranges": [{"start": "192.168.151.100", "end": "192.168.151.199"}]}
    late: dict[str, t.Any] = {
        "name": "late",
        "bridge": "virbr-late",
        "ips": [{"address": "192.168.151.1", "prefix": 24, "dhcp": dhcp}],
    }
    before = lab.on("hyper1", there)
    assert network(lab, check=True, **late)["changed"]
    refused = lab.module("corral.virt.virt_network", ok=False, **late)
    assert "cannot start network late" in refused and "Address already in use" in refused
    assert lab.on("hyper1", there) == before

    network(lab, **late, state="inactive")
    before = lab.on("hyper1", f"{there}; virsh net-info late; virsh net-dumpxml --inactive late")
    assert "virbr-late" not in lab.on("hyper1", "ls /sys/class/net") and "Autostart:      no" in before
    wish: dict[str, t.Any] = {**late, "domain": {"name": "late.example"}, "autostart": True, "state": "active"}
    refused = lab.module("corral.virt.virt_network", ok=False, **wish)
    assert "Address already in use" in refused
    assert lab.on("hyper1", f"{there}; virsh net-info late; virsh net-dumpxml --inactive late") == before
    network(lab, name="late", state="absent")
