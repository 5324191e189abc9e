"""A network filter that does nothing is not taken for one that protects."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._domain import xml_hotplug
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import NetworkFilter
from ansible_collections.corral.virt.plugins.module_utils._network.plan_nwfilter import CALLS, problems
from ansible_collections.corral.virt.plugins.module_utils._system.locks import bridge_calls

# As libvirt 9.0 shows them: one that comes with it, and one of a user.
CLEAN = """<filter name='clean-traffic' chain='root' priority='0'>
  <uuid>8ed4c0e0-0c0e-4d3e-9b7c-9f8b1a1e0001</uuid>
  <filterref filter='no-mac-spoofing'/>
  <rule action='accept' direction='out' priority='-650'>
    <mac protocolid='0x800'/>
  </rule>
  <filterref filter='no-ip-spoofing'/>
  <rule action='accept' direction='inout' priority='-500'>
    <mac protocolid='0x806'/>
  </rule>
</filter>"""
WEB = """<filter name='web' chain='root' priority='0'>
  <uuid>8ed4c0e0-0c0e-4d3e-9b7c-9f8b1a1e0002</uuid>
  <!-- comment -->
  <rule action='accept' direction='in' priority='500'>
    <tcp dstportstart='80'/>
  </rule>
  <rule action='accept' direction='in' priority='500'>
    <tcp-ipv6 dstportstart='80'/>
  </rule>
  <rule action='drop' direction='inout' priority='1000'>
    <all/>
  </rule>
</filter>"""
ON = {"bridge-nf-call-iptables": True, "bridge-nf-call-ip6tables": True}
OFF = dict.fromkeys(ON, False)
EBTABLES = ("mac", "vlan", "stp", "arp", "rarp", "ip", "ipv6")
IPV4 = ("tcp", "udp", "udplite", "esp", "ah", "sctp", "all", "icmp", "igmp")
IPV6 = ("tcp-ipv6", "udp-ipv6", "udplite-ipv6", "esp-ipv6", "ah-ipv6", "sctp-ipv6", "all-ipv6", "icmpv6")


def idle(*protocols: str, calls: dict[str, bool] | None) -> list[str]:
    """What is said of a filter with rules for these."""
    return problems("web1", {"eth0": "own"}, {"own": NetworkFilter(frozenset(protocols))}, calls)


@pytest.mark.parametrize("protocol", EBTABLES)
def test_rules_that_always_work_are_taken(protocol: str) -> None:
    assert idle(protocol, calls=OFF) == idle(protocol, calls={}) == []


@pytest.mark.parametrize(("protocol", "call"), [
    *((protocol, "bridge-nf-call-iptables") for protocol in IPV4), *((protocol, "bridge-nf-call-ip6tables") for protocol in IPV6)
])  # fmt: skip
def test_rules_that_no_packet_meets_are_refused(protocol: str, call: str) -> None:
    for calls in ({}, OFF, {**ON, call: False}):
        (problem,) = idle(protocol, "mac", calls=calls)
        assert f"the rules of own for {protocol} have no effect on this host" in problem
        assert "clean-traffic" in problem and f"net.bridge.{call}=1" in problem and "bridge_filter_guests" in problem
    assert idle(protocol, calls={**OFF, call: True}) == idle(protocol, calls=None) == []


def test_filters_that_are_referred_to_count() -> None:
    """However far, in a ring, and where one of them is missing."""
    filters = {
        "own": NetworkFilter(frozenset({"mac"}), ("next", "gone")),
        "next": NetworkFilter(frozenset(), ("last", "own")),
        "last": NetworkFilter(frozenset({"udp"})),
        "other": NetworkFilter(frozenset({"tcp"})),
    }
    (problem,) = problems("web1", {"eth0": "own"}, filters, OFF)
    assert "the rules of own for udp have no effect" in problem


def test_a_filter_that_is_missing_is_told_before_a_start_fails() -> None:
    (problem,) = problems("web1", {"eth0": "typo"}, {"clean-traffic": NetworkFilter(frozenset())}, ON)
    assert problem == (
        "filterref of interface eth0 of web1: this host has no network filter typo; define it (virsh nwfilter-define), "
        "or choose one of: clean-traffic"
    )


def test_each_interface_has_its_own_problem_and_a_host_without_filters_says_so() -> None:
    first, second = problems("web1", {"eth0": "typo", "eth1": "other"}, {}, ON)
    assert first.endswith("define it (virsh nwfilter-define), or choose one of: none")
    assert second.startswith("filterref of interface eth1 of web1: this host has no network filter other")


def test_a_filter_is_read() -> None:
    assert xml_hotplug.read(CLEAN) == (
        "clean-traffic",
        NetworkFilter(frozenset({"mac"}), ("no-mac-spoofing", "no-ip-spoofing")),
    )
    assert xml_hotplug.read(WEB) == ("web", NetworkFilter(frozenset({"tcp", "tcp-ipv6", "all"})))


def test_what_the_kernel_shows_to_packet_filters(tmp_path: Path) -> None:
    assert bridge_calls(CALLS, str(tmp_path / "absent")) == {}
    (tmp_path / "bridge-nf-call-iptables").write_text("1\n")
    (tmp_path / "bridge-nf-call-ip6tables").write_text("0\n")
    assert bridge_calls(CALLS, str(tmp_path)) == {"bridge-nf-call-iptables": True, "bridge-nf-call-ip6tables": False}
