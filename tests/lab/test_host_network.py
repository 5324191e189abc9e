"""The bridge and the firewall of bare hosts, in each way that a host can have them.

Judged by ip, bridge, nft, iptables, ufw and firewall-cmd.
"""

from __future__ import annotations

import json
import re
import sys
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.lab.hypervisors import HERE, Hypervisors, until

pytestmark = pytest.mark.lab

NAME, HOST = "hostnet", "hyper1"
BRIDGE: dict[str, t.Any] = {"ansible.builtin.include_role": {"name": "corral.virt.bridge"}}
FILES = "find /etc /run/systemd/network /run/netplan -xdev -newer /etc/machine-id -type f 2>/dev/null"
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


def changed(printed: str) -> int:
    """`changed=` of the host in the recap."""
    (count,) = re.findall(rf"^{HOST}\s+: ok=\d+\s+changed=(\d+)", printed, re.MULTILINE)
    return int(count)


def network(lab: Hypervisors) -> str:
    """Addresses and routes."""
    return lab.on(HOST, "ip -o -4 addr show | awk '{print $2, $4}'; ip route show default")


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
    until(lambda: lab.on(HOST, f"cat {result} 2>/dev/null || true"), timeout_s=60)
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
    mended = lab.play(BRIDGE)
    assert "switch off stp of br0" in mended and "Come back" not in changed_tasks(mended)
    assert lab.on(HOST, "cat /sys/class/net/br0/bridge/stp_state") == "0"


def changed_tasks(printed: str) -> str:
    """Names of tasks that changed something."""
    blocks = re.split(r"^TASK ", printed, flags=re.MULTILINE)
    return "\n".join(block.splitlines()[0] for block in blocks if "\nchanged: " in block)


def test_a_bridge_where_ifupdown_configures(ifupdown: Hypervisors) -> None:
    check_a_bridge(ifupdown)
    text = ifupdown.on(HOST, "cat /etc/network/interfaces")
    assert "auto br0" in text and "iface br0 inet static" in text and "iface host0 inet manual" in text
    # What is loaded at boot, read by its own program.
    assert "bridge_ports: host0" in ifupdown.on(HOST, "ifquery br0")


CONVERGE: dict[str, t.Any] = {"sources": ["192.0.2.7", "2001:db8::/64"]}


def check_a_firewall(lab: Hypervisors, manager: str, rules: str) -> str:
    """Predicted, done, predicted and done again, replaced; what `rules` printed after the first time."""
    before = lab.on(HOST, rules)
    call = "corral.virt.virt_firewall"
    predicted = lab.module(call, "--check", **CONVERGE)
    assert f"manager: {manager}" in predicted and "changed: true" in predicted
    assert lab.on(HOST, rules) == before
    assert "changed: true" in lab.module(call, **CONVERGE)
    opened = lab.on(HOST, rules)
    assert opened.count("16514") > before.count("16514")
    for flags in (["--check"], []):
        assert "changed: false" in lab.module(call, *flags, **CONVERGE)
    assert lab.on(HOST, rules) == opened
    replaced = lab.module(call, sources=["192.0.2.8"])
    assert "changed: true" in replaced
    now = lab.on(HOST, rules)
    assert "192.0.2.8" in now and ("192.0.2.7" in now) is (manager == "firewalld")
    lab.module(call, sources=["192.0.2.9"], purge=False)
    assert "192.0.2.8" in lab.on(HOST, rules)
    lab.module(call, sources=[])
    if manager != "firewalld":
        assert lab.on(HOST, rules) == before
    return opened


def install(lab: Hypervisors, *packages: str) -> None:
    words = f"apt-get install -qq -y --no-install-recommends {' '.join(packages)}"
    lab.on(HOST, f"DEBIAN_FRONTEND=noninteractive {words}")


def test_nftables(ifupdown: Hypervisors) -> None:
    opened = check_a_firewall(ifupdown, "nftables", "nft list ruleset; cat /etc/corral-virt/* | grep -v '^#'; true")
    assert opened.count("16514") == 4, "two families, running and in the file"


@pytest.mark.deep
def test_iptables(ifupdown: Hypervisors) -> None:
    install(ifupdown, "iptables-persistent")
    ifupdown.on(HOST, "systemctl disable --now nftables; nft flush ruleset")
    for tool, path in (("iptables", "rules.v4"), ("ip6tables", "rules.v6")):
        ifupdown.on(HOST, f"{tool} -A INPUT -p tcp --dport 22 -j ACCEPT")
        ifupdown.on(HOST, f"{tool}-save > /etc/iptables/{path}")
    rules = "iptables -S; ip6tables -S; grep -v '^#' /etc/iptables/rules.v4 /etc/iptables/rules.v6 | sed 's/\\[.*\\]//'"
    opened = check_a_firewall(ifupdown, "iptables", rules)
    assert opened.count("16514") == 4
    # What is loaded at boot is what runs.
    ifupdown.module("corral.virt.virt_firewall", **CONVERGE)
    running = ifupdown.on(HOST, "iptables -S; ip6tables -S")
    ifupdown.on(HOST, "iptables -F; ip6tables -F; netfilter-persistent start")
    assert ifupdown.on(HOST, "iptables -S; ip6tables -S") == running


@pytest.mark.deep
def test_ufw(ifupdown: Hypervisors) -> None:
    ifupdown.on(HOST, "systemctl disable --now netfilter-persistent; iptables -F; ip6tables -F")
    install(ifupdown, "ufw")
    ifupdown.on(HOST, "ufw allow 22/tcp && ufw --force enable")
    opened = check_a_firewall(ifupdown, "ufw", "ufw show added; iptables -S; ip6tables -S")
    assert opened.count("16514") == 4


@pytest.mark.deep
def test_firewalld(ifupdown: Hypervisors) -> None:
    ifupdown.on(HOST, "ufw --force disable")
    install(ifupdown, "firewalld")
    ifupdown.on(HOST, "systemctl enable --now firewalld")
    rules = " ; ".join(f"firewall-cmd {lasting} --list-rich-rules" for lasting in ("", "--permanent"))
    opened = check_a_firewall(ifupdown, "firewalld", rules)
    assert opened.count("16514") == 4


def test_a_bridge_where_networkd_configures(networkd: Hypervisors) -> None:
    check_a_bridge(networkd)
    files = networkd.on(HOST, "ls /etc/systemd/network")
    assert {"05-corral-br0.netdev", "05-corral-br0.network", "05-corral-br0-host0.network"} <= set(files.split())
    networkd.on(HOST, "systemctl restart systemd-networkd")
    until(lambda: "br0" in network(networkd))
