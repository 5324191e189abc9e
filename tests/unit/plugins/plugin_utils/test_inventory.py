"""Guests as hosts: which of two, what they are called, and how to get in."""

from __future__ import annotations

import shlex
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils import _inventory

ADDRESSES = ["fd00::5", "10.1.2.3/24", "192.168.0.5", "nonsense"]


def guest(name: str = "web1", state: str = "running", uuid: str = "1", **more: t.Any) -> dict[str, t.Any]:
    empty = {"title": "", "tags": [], "vcpus": 1, "memory_mib": 64, "macs": [], "addresses": [], "ssh_host_key": None}
    return {"name": name, "state": state, "uuid": uuid, **empty, **more}


@pytest.mark.parametrize(
    ("first", "second", "shown", "words"),
    [
        (guest(state="shutdown"), guest(), "b", "web1 is on b (running) and a (shutdown); shown is the one on b"),
        (guest(state="shutdown"), guest(state="paused"), "b", "web1 is on b (paused) and a (shutdown)"),
        (guest(), guest(state="paused"), "a", "web1 is on a (running) and b (paused)"),
        (guest(), guest(), "a", "GUEST web1 RUNS TWICE, on a and b"),
        (guest(), guest(uuid="2"), "a", "TWO GUESTS NAMED web1 RUN, on a and b"),
    ],
)
def test_one_of_two(first: dict[str, t.Any], second: dict[str, t.Any], shown: str, words: str) -> None:
    guests, warnings = _inventory.chosen({"b": [second, guest("alone")], "a": [first]})
    assert (list(guests), guests["web1"][0]) == (["alone", "web1"], shown)
    assert len(warnings) == 1 and words in warnings[0]


@pytest.mark.parametrize(
    ("prefer", "best"),
    [
        (["ipv4", "ipv6"], "10.1.2.3"),
        (["ipv6"], "fd00::5"),
        (["192.168.0.0/16", "ipv4"], "192.168.0.5"),
        (["172.16.0.0/12"], "fd00::5"),
    ],
)
def test_preferred_address(prefer: list[str], best: str) -> None:
    assert _inventory.address(ADDRESSES, prefer) == best


def test_what_is_no_address_leads_nowhere() -> None:
    assert "ansible_host" not in _inventory.variables("hyper1", guest(addresses=["-oProxyCommand=id"]), ["ipv4"])


def test_groups() -> None:
    assert _inventory.groups("hyper1", guest(tags=["web", "eu"])) == ["on_hyper1", "guests_running", "tag_web", "tag_eu"]


def test_ssh_reads_back_what_was_meant() -> None:
    words = shlex.split(_inventory.ssh_args("/it's my/100% place", "web1"))
    assert words[1::2] == ['UserKnownHostsFile="/it\'s my/100%% place"', 'HostKeyAlias="web1"', "StrictHostKeyChecking=yes"]


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("qemu+tls://h1/system?pkipath=/x", ("h1", 16514)),
        ("qemu+tls://[fd00::1]:17000/system", ("fd00::1", 17000)),
        ("qemu+tcp://h1/system", ("h1", 16509)),
        ("qemu://h1/system", ("h1", 16514)),
        ("qemu+ssh://root@h1/system", None),
        ("qemu:///system", None),
        ("test:///default", None),
    ],
)
def test_where_a_uri_leads(uri: str, place: tuple[str, int] | None) -> None:
    assert _inventory.endpoint(uri) == place


@pytest.mark.parametrize(
    ("uri", "after"),
    [
        ("qemu+ssh://root@h1/system", "qemu+ssh://root@h1/system?no_tty=1"),
        ("qemu+ssh://h1/system?keyfile=/k", "qemu+ssh://h1/system?keyfile=/k&no_tty=1"),
        ("qemu+ssh://h1/system?no_tty=0", "qemu+ssh://h1/system?no_tty=0"),
        ("qemu+tls://h1/system", "qemu+tls://h1/system"),
    ],
)
def test_ssh_asks_nobody(uri: str, after: str) -> None:
    assert _inventory.unattended(uri) == after


def test_addresses_in_uris() -> None:
    assert [_inventory.in_uri(host) for host in ("h1", "10.0.0.1", "fd00::1")] == ["h1", "10.0.0.1", "[fd00::1]"]
