"""The role firewall's script: which chains, which rules, which text."""

from __future__ import annotations

import importlib.util
import typing as t
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "roles/firewall/files/firewall.py"


@pytest.fixture(scope="module")
def firewall() -> t.Any:
    spec = importlib.util.spec_from_file_location("firewall", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wanted(firewall: t.Any, *sources: str) -> t.Any:
    return firewall.Wanted({"ports": ["16514/tcp", "49152-49215/tcp"], "sources": list(sources)})


def chain(**fields: str) -> dict[str, t.Any]:
    known = {"family": "inet", "table": "filter", "name": "input", "type": "filter", "hook": "input", "policy": "accept"}
    return {"chain": {**known, **fields}}


def rule(verdict: str, **fields: str) -> dict[str, t.Any]:
    return {"rule": {"family": "inet", "table": "filter", "chain": "input", "expr": [{verdict: None}], **fields}}


@pytest.mark.parametrize(
    ("ruleset", "count"),
    [
        ([chain(policy="drop")], 1),
        ([chain(), rule("accept")], 0),
        ([chain(), rule("reject")], 1),
        ([chain(), rule("jump")], 1),
        ([chain(), rule("drop", chain="forward")], 0),
        ([chain(policy="drop", hook="forward")], 0),
        ([chain(policy="drop", family="bridge")], 0),
    ],
)
def test_only_chains_that_may_drop_are_opened(firewall: t.Any, ruleset: list[dict[str, t.Any]], count: int) -> None:
    assert len(firewall.closed_chains(ruleset)) == count


@pytest.mark.parametrize(
    ("text", "found"),
    [("table inet filter {", True), ("  table filter {", False), ("add table inet filter", True), ("# table inet filter", False)],
)
def test_a_table_is_ours_to_open_when_the_file_defines_it(firewall: t.Any, text: str, found: bool) -> None:
    assert firewall.defines(text, "inet", "filter") is found


def test_rules_of_nftables(firewall: t.Any) -> None:
    some = wanted(firewall, "192.0.2.7", "192.0.2.0/30", "2001:db8::/64")
    tail = f'tcp dport {{ 16514, 49152-49215 }} accept comment "corral.virt {some.digest}"'
    assert firewall.nft_rules(some, "inet") == [
        f"ip saddr {{ 192.0.2.0/30, 192.0.2.7 }} {tail}",
        f"ip6 saddr {{ 2001:db8::/64 }} {tail}",
    ]
    assert len(firewall.nft_rules(some, "ip6")) == 1
    assert "saddr" not in firewall.nft_rules(wanted(firewall), "ip")[0]


def test_a_digest_tells_rules_apart(firewall: t.Any) -> None:
    now, before = wanted(firewall, "192.0.2.7"), wanted(firewall)
    live = [rule("accept", comment=one.comment, handle="1") for one in (now, before)] + [rule("accept", comment="else")]
    ours, stale = firewall.nft_ours(live, now.comment)
    assert len(ours) == len(stale) == 1


def test_an_iptables_file_holds_our_rules_first_and_once(firewall: t.Any) -> None:
    text = "# by hand\n*nat\n-A INPUT -j ACCEPT\nCOMMIT\n*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp --dport 22 -j ACCEPT\nCOMMIT\n"
    rules = firewall.iptables_rules(wanted(firewall, "192.0.2.7"), 4)
    once = firewall.iptables_text(text, rules)
    assert once.splitlines()[6].startswith("-A INPUT -s 192.0.2.7/32 -p tcp -m multiport --dports 16514,49152:49215")
    assert firewall.iptables_text(once, rules) == once
    assert firewall.iptables_text(once, []) == text


@pytest.mark.parametrize("port", ["16514", "0/tcp", "9-1/tcp", "70000/tcp", "1/icmp", "1/tcp; drop"])
def test_bad_ports_are_refused(firewall: t.Any, port: str) -> None:
    with pytest.raises(firewall.Problem, match="firewall_ports"):
        firewall.Wanted({"ports": [port], "sources": []})


def test_bad_sources_are_refused(firewall: t.Any) -> None:
    with pytest.raises(firewall.Problem, match="firewall_sources"):
        wanted(firewall, "hyper1")
