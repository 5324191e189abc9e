"""virt_firewall and the kernel's nftables, in a network of their own: predicted, done, done again; judged by nft."""

from __future__ import annotations

import os
import shutil
import subprocess
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._host import files_firewall, plan_nftables, run_firewall

NFT = shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin")
REAL, CHECK = Gate(check_mode=False), Gate(check_mode=True)
CONFIG = """flush ruleset
table inet filter {
    chain input {
        type filter hook input priority 0; policy drop;
        tcp dport 22 accept
    }
    chain forward {
        type filter hook forward priority 0; policy drop;
    }
}
"""


class Host:
    """A network namespace with a firewall, and the files of that firewall."""

    def __init__(self, place: Path, pid: int) -> None:
        self.place, self.prefix = place, ["nsenter", "--net", f"--target={pid}"]
        self.config, self.drop_in = place / "nftables.conf", place / "corral/firewall.nft"

    def nft(self, *words: str) -> str:
        """What nft prints there."""
        command = [*self.prefix, str(NFT), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def boot(self) -> None:
        """Load the configuration as the unit does."""
        self.nft("-f", str(self.config))

    def chain(self) -> list[str]:
        """Rules of the chain input."""
        lines = self.nft("list", "chain", "inet", "filter", "input").splitlines()
        return [line.strip() for line in lines if "accept" in line]

    def state(self) -> list[str]:
        """All that a run may change."""
        texts = [one.read_text() if one.exists() else "" for one in (self.config, self.drop_in)]
        return [self.nft("list", "ruleset"), *texts]

    def converge(self, gate: Gate, *sources: str, **more: t.Any) -> dict[str, t.Any]:
        """The module's answer."""
        known = {"ports": run_firewall.DEFAULT_PORTS, "source_names": [], "purge": True}
        return run_firewall.converge({**known, "sources": list(sources), **more}, gate)


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    if os.geteuid() or not NFT:
        pytest.skip("needs root and nft for a network namespace")
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 600"], stdout=subprocess.PIPE)
    assert holder.stdout and holder.stdout.readline() == b"\n"
    host = Host(tmp_path, holder.pid)
    programs = tmp_path / "bin"
    programs.mkdir()
    _program(programs / "nft", f'exec {" ".join(host.prefix)} {NFT} "$@"')
    shown = f"ExecStart={{ path=/usr/sbin/nft ; argv[]=/usr/sbin/nft -f {host.config} ; }}"
    _program(
        programs / "systemctl",
        f'case "$*" in is-enabled*nftables) echo enabled;; show*) echo "{shown}";; *) exit 1;; esac',
    )
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    for module in (files_firewall, plan_nftables):
        monkeypatch.setattr(module, "DROP_IN", str(host.drop_in))
    host.config.write_text(CONFIG)
    host.boot()
    yield host
    holder.kill()
    holder.wait()


def test_what_is_predicted_is_done_once_and_lasts(host: Host) -> None:
    before = host.state()
    predicted = host.converge(CHECK, "192.0.2.7", "2001:db8::/64")
    assert host.state() == before
    assert (predicted["manager"], predicted["changed"], len(predicted["steps"])) == (
        "nftables",
        True,
        3,
    )
    assert host.converge(REAL, "192.0.2.7", "2001:db8::/64") == predicted
    rules = host.chain()
    assert sorted(line.split(" accept")[0] for line in rules) == [
        "ip saddr 192.0.2.7 tcp dport { 16514, 49152-49215 }",
        "ip6 saddr 2001:db8::/64 tcp dport { 16514, 49152-49215 }",
        "tcp dport 22",
    ]
    assert rules[-1].startswith("tcp dport 22"), "ours come first"
    for gate in (CHECK, REAL):
        again = host.converge(gate, "192.0.2.7", "2001:db8::/64")
        assert (again["changed"], again["steps"], again["diff"]) == (
            False,
            [],
            {"before": {}, "after": {}},
        )
    host.boot()
    assert sorted(host.chain()) == sorted(rules), "as before, after a boot"


def test_rules_are_replaced_kept_and_removed(host: Host) -> None:
    before = host.nft("list", "ruleset")
    host.converge(REAL, "any")
    host.converge(REAL, "192.0.2.7")
    assert [line.split(" accept")[0] for line in host.chain()[:-1]] == [
        "ip saddr 192.0.2.7 tcp dport { 16514, 49152-49215 }"
    ]
    host.converge(REAL, "192.0.2.0/24", "192.0.2.8", purge=False)
    assert len(host.chain()) == 3
    host.boot()
    assert len(host.chain()) == 3
    removed = host.converge(REAL)
    assert removed["diff"]["after"] == {} and len(removed["diff"]["before"]["nftables.running"]) == 2
    assert host.nft("list", "ruleset") == before
    host.boot()
    assert host.nft("list", "ruleset") == before


def test_a_name_without_an_address_removes_nothing(host: Host) -> None:
    host.converge(REAL, "any")
    result = host.converge(REAL, source_names=["corral.invalid"])
    assert (result["changed"], result["unknown"], len(host.chain())) == (
        False,
        ["corral.invalid"],
        2,
    )


def test_a_configuration_that_nft_refuses_stays(host: Host) -> None:
    host.config.write_text(f"{CONFIG}nonsense\n")
    before = host.config.read_text()
    with pytest.raises(Failed, match=r"nonsense(.|\n)*already done: open 16514"):
        host.converge(REAL, "any")
    assert host.config.read_text() == before and [one.name for one in host.place.glob("*.corral-new")] == []


def test_a_table_that_no_file_defines_is_refused_and_nothing_done(host: Host) -> None:
    host.config.write_text("")
    before = host.state()
    with pytest.raises(Refused, match="inet filter input drops"):
        host.converge(REAL, "any")
    assert host.state() == before
    assert host.converge(REAL, ports=[])["changed"] is False


@pytest.mark.parametrize("renamed", ["table inet filter", "chain input"])
def test_a_table_or_chain_that_is_renamed_later_keeps_the_firewall_loading(host: Host, renamed: str) -> None:
    """One file is loaded as a whole or not at all: a rule for a chain that is gone would leave the host open."""
    host.converge(REAL, "any")
    host.config.write_text(host.config.read_text().replace(renamed, f"{renamed}2"))
    host.boot()
    names = ("filter2", "input") if "table" in renamed else ("filter", "input2")
    assert "policy drop" in host.nft("list", "chain", "inet", *names)
    assert host.converge(REAL, "any")["changed"] and not host.converge(REAL, "any")["changed"]
    assert "16514" in host.nft("list", "chain", "inet", *names)
    host.boot()
    assert "16514" in host.nft("list", "chain", "inet", *names)


GUARD = """table inet guard {
    chain input {
        type filter hook input priority 10; policy drop;
    }
}
"""


@pytest.mark.parametrize("included", [False, True])
def test_a_table_that_is_added_below_our_include_keeps_the_firewall_loading(host: Host, *, included: bool) -> None:
    """Our file makes the chains that it has rules for, so it comes after whatever gives them a hook."""
    host.converge(REAL, "any")
    more = host.place / "guard.nft"
    more.write_text(GUARD)
    added = f'include "{more}"\n' if included else GUARD
    ours = f'include "{host.drop_in}"\n'
    host.config.write_text(f"{host.config.read_text()}# mine\n{added}")
    host.boot()
    predicted = host.converge(CHECK, "any")
    assert predicted["steps"][1:] == [
        f"write {host.drop_in}",
        f"write {host.config} (include {host.drop_in} at its end)",
    ]
    assert host.converge(REAL, "any") == predicted and not host.converge(REAL, "any")["changed"]
    assert host.config.read_text() == f"{CONFIG}# mine\n{added}{ours}"
    host.boot()
    for table in ("filter", "guard"):
        assert "16514" in host.nft("list", "chain", "inet", table, "input")


def test_comments_below_our_include_stay(host: Host) -> None:
    host.converge(REAL, "any")
    host.config.write_text(f"{host.config.read_text()}\n  # the end\n")
    assert not host.converge(REAL, "any")["changed"]


def test_rules_that_the_configuration_cannot_be_loaded_with_are_not_written(host: Host) -> None:
    host.converge(REAL, "any")
    before = host.drop_in.read_text()
    host.config.write_text(host.config.read_text().replace("flush", "nonsense\nflush"))
    with pytest.raises(Failed, match=r"nonsense(.|\n)*already done: open 16514"):
        host.converge(REAL, "192.0.2.7")
    assert host.drop_in.read_text() == before


def test_a_base_chain_stays_as_the_configuration_has_it(host: Host) -> None:
    before = host.nft("list", "chain", "inet", "filter", "input")
    host.converge(REAL, "any")
    host.boot()
    lines = host.nft("list", "chain", "inet", "filter", "input").splitlines()
    assert [line for line in lines if "corral" not in line] == before.splitlines()


def test_a_chain_that_a_program_makes_after_the_boot_is_left_to_it(host: Host) -> None:
    """In a table of the configuration, too: that program could not make a chain that is there already."""
    host.config.write_text("flush ruleset\ntable inet filter {\n}\n")
    host.boot()
    makes = ("add", "chain", "inet", "filter", "late", "{ type filter hook input priority 0; policy accept; }")
    host.nft(*makes)
    host.nft("add", "rule", "inet", "filter", "late", "udp", "dport", "9", "drop")
    assert not host.converge(REAL, ports=[], bridges=["virbr*"])["changed"]
    host.boot()
    host.nft(*makes)
    host.nft("add", "rule", "inet", "filter", "late", "drop")
    with pytest.raises(Refused, match=r"inet filter late drops .*neither .* defines it"):
        host.converge(REAL, "any")


def test_what_an_earlier_version_wrote_is_rewritten_once(host: Host) -> None:
    host.converge(REAL, "any")
    text = host.drop_in.read_text()
    host.drop_in.write_text("".join(line for line in text.splitlines(keepends=True) if not line.startswith("add ")))
    assert host.converge(REAL, "any")["steps"] == [f"write {host.drop_in}"]
    assert host.drop_in.read_text() == text and not host.converge(REAL, "any")["changed"]


def test_what_our_file_makes_is_not_taken_for_the_configuration(host: Host) -> None:
    host.converge(REAL, "any")
    host.config.write_text(f'flush ruleset\ninclude "{host.drop_in}"\n')
    with pytest.raises(Refused, match="inet filter input drops"):
        host.converge(REAL, "any")


DISCOVER = """
import socket, struct, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for option in (socket.SO_BROADCAST, socket.SO_REUSEADDR):
    sock.setsockopt(socket.SOL_SOCKET, option, 1)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
sock.bind(("", 68))
sock.settimeout(1)
head = struct.pack("!BBBBIHH16x6s202x", 1, 1, 6, 0, 7, 0, 0x8000, bytes.fromhex("525400000001"))
for _attempt in range(8):
    sock.sendto(head + bytes.fromhex("638253633501 01ff".replace(" ", "")), ("255.255.255.255", 67))
    try:
        answer = sock.recv(2000)
    except TimeoutError:
        continue
    print(socket.inet_ntoa(answer[16:20]))
    break
"""


@pytest.fixture
def guest(host: Host) -> Iterator[list[str]]:
    """A network namespace on a bridge of the host, which has a DHCP server there; how a program runs in it."""
    server = shutil.which("dnsmasq", path="/usr/sbin:/sbin:/usr/bin")
    if not server:
        pytest.skip("needs dnsmasq")
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 600"], stdout=subprocess.PIPE)
    assert holder.stdout and holder.stdout.readline() == b"\n"
    commands = (
        "link set lo up",
        "link add virbr7 type bridge",
        "addr add 192.0.2.1/24 dev virbr7",
        f"link add port7 type veth peer name eth0 netns {holder.pid}",
        "link set port7 master virbr7 up",
        "link set virbr7 up",
    )
    for command in commands:
        subprocess.run([*host.prefix, "ip", *command.split()], check=True)
    inside = ["nsenter", "--net", f"--target={holder.pid}"]
    subprocess.run([*inside, "ip", "link", "set", "eth0", "up"], check=True)
    options = "--keep-in-foreground --conf-file=/dev/null --interface=virbr7 --bind-interfaces --except-interface=lo"
    options += (
        f" --port=0 --user=root --pid-file= --dhcp-range=192.0.2.50,192.0.2.60 --dhcp-leasefile={host.place}/leases"
    )
    serves = subprocess.Popen([*host.prefix, server, *options.split()], stderr=subprocess.DEVNULL)
    yield inside
    for process in (serves, holder):
        process.kill()
        process.wait()


def test_a_guest_behind_a_drop_gets_an_address_once_its_bridge_is_admitted(host: Host, guest: list[str]) -> None:
    def offered() -> str:
        found = subprocess.run([*guest, "python3", "-c", DISCOVER], check=True, capture_output=True, text=True)
        return found.stdout.strip()

    assert not offered(), "the firewall drops the request"
    for gate in (CHECK, REAL):
        assert host.converge(gate, ports=[], bridges=["virbr*"])["changed"]
    assert offered().startswith("192.0.2.5")
    assert not host.converge(REAL, ports=[], bridges=["virbr*"])["changed"]
    host.boot()
    assert offered(), "it lasts"
    forward = host.nft("list", "chain", "inet", "filter", "forward")
    assert 'iifname "virbr*" accept' in forward and 'oifname "virbr*" ct state established,related accept' in forward
    assert host.converge(REAL, ports=[])["changed"]
    assert "virbr" not in host.nft("list", "ruleset")
