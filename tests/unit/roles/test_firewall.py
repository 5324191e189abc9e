"""The role firewall's script: which chains, which rules, which text."""

from __future__ import annotations

import importlib.util
import json
import shlex
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, value

SCRIPT = Path(__file__).parents[3] / "roles/firewall/files/firewall.py"


@pytest.fixture(scope="module")
def firewall() -> t.Any:
    spec = importlib.util.spec_from_file_location("firewall", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wanted(firewall: t.Any, *sources: str) -> t.Any:
    """What is asked for; everybody is admitted where no source is named."""
    sources = sources or ("any",)
    return firewall.Wanted({"ports": ["16514/tcp", "49152-49215/tcp"], "sources": list(sources)})


def chain(**fields: str) -> dict[str, t.Any]:
    known = {"family": "inet", "table": "filter", "name": "input", "type": "filter", "hook": "input", "policy": "accept"}
    return {"chain": {**known, **fields}}


def rule(verdict: str, **fields: t.Any) -> dict[str, t.Any]:
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


def test_includes_are_followed(firewall: t.Any, tmp_path: Path) -> None:
    conf, tables = tmp_path / "sysconfig/nftables.conf", tmp_path / "nftables"
    for folder in (conf.parent, tables, tmp_path / "path"):
        folder.mkdir()
    conf.write_text(
        f'include "{tables}/*.nft"\n  include "near.nft"\ninclude "far.nft"; # comment\n'
        f'# include "{tables}/not"\ninclude "none.nft"\ninclude "{tables}/sub/"\n'
    )
    (tables / "main.nft").write_text(f'include "{conf}"\ntable inet filter {{\n}}\n')  # a ring
    (tables / "not").write_text("table inet not {\n}\n")
    (tables / "sub").mkdir()
    (conf.parent / "near.nft").write_text("table ip near {\n}\n")
    (tmp_path / "path/far.nft").write_text("table ip6 far {\n}\n")
    text = firewall.with_includes(str(conf), (str(tmp_path / "path"),))
    assert all(firewall.defines(text, *table) for table in (("inet", "filter"), ("ip", "near"), ("ip6", "far")))
    assert not firewall.defines(text, "inet", "not")


DROPPED = [chain(policy="drop")]


@pytest.fixture
def nftables(firewall: t.Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Any:
    """What the script would do on a host with these chains, whose configuration is conf."""
    conf, drop_in = tmp_path / "nftables.conf", tmp_path / "firewall.nft"
    monkeypatch.setattr(firewall, "DROP_IN", str(drop_in))

    def steps(request: t.Any, ruleset: list[dict[str, t.Any]], text: str) -> list[str]:
        answers = {"systemctl": f"argv[]=/sbin/nft -f {conf} ;", "nft": json.dumps({"nftables": ruleset})}
        monkeypatch.setattr(firewall, "output", lambda *command, **_more: answers[command[0]])
        ran: list[str] = []
        monkeypatch.setattr(firewall, "run", lambda *_command, stdin="": ran.append(stdin))
        conf.write_text(text)
        for _said, do in firewall.nftables(request):
            do()
        return [*"\n".join(ran).splitlines(), *(drop_in.read_text().splitlines() if drop_in.exists() else [])]

    return steps


@pytest.mark.parametrize("ruleset", [DROPPED, [chain(), rule("reject")], [chain(), rule("jump", expr=[{"jump": {"target": "x"}}])]])
def test_a_chain_that_drops_and_is_in_no_file_is_told(firewall: t.Any, nftables: t.Any, ruleset: list[dict[str, t.Any]]) -> None:
    ruleset = [*ruleset, rule("drop", chain="x")]
    with pytest.raises(firewall.Problem, match="inet filter input drops"):
        nftables(wanted(firewall), ruleset, "")
    assert nftables(firewall.Wanted({"ports": [], "sources": []}), ruleset, "") == []


def test_a_chain_made_at_run_time_that_drops_only_some_is_passed_over(firewall: t.Any, nftables: t.Any) -> None:
    some = rule("reject", expr=[{"match": {}}, {"reject": None}])
    assert nftables(wanted(firewall), [chain(), some, rule("jump", expr=[{"jump": {"target": "x"}}])], "") == []


def test_nothing_is_removed_while_an_address_is_unknown(firewall: t.Any, nftables: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = "table inet filter {\n}\n"
    before, after = wanted(firewall, "192.0.2.1", "192.0.2.2"), wanted(firewall, "192.0.2.1")
    monkeypatch.setattr(firewall.socket, "getaddrinfo", lambda *_args, **_more: [(2, 1, 6, "", ("127.0.1.1", 0))])
    unsure = firewall.Wanted({"ports": ["16514/tcp"], "sources": ["192.0.2.1"], "names": ["hyper2"]})
    assert (unsure.keep, unsure.unknown) == (True, ["hyper2"])
    nftables(before, DROPPED, table)
    live = [*DROPPED, rule("accept", comment=before.comment, handle="1")]
    assert not [line for line in nftables(unsure, live, table) if line.startswith("delete")]
    kept = nftables(unsure, [*live, rule("accept", comment=unsure.comment, handle="2")], table)
    assert [line for line in kept if before.comment in line], "at boot, too"
    assert [line for line in kept if unsure.comment in line]
    sure = nftables(after, live, table)
    assert [line for line in sure if line.startswith("delete")]
    assert not [line for line in sure if before.comment in line]


@pytest.mark.parametrize("names", [[], ["hyper2"]])
def test_no_source_admits_nobody(firewall: t.Any, nftables: t.Any, monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    """Whether none is named, or none is known."""
    monkeypatch.setattr(firewall, "resolve", lambda _name: [])
    nobody = firewall.Wanted({"ports": ["16514/tcp"], "sources": [], "names": names})
    assert firewall.nft_rules(nobody, "inet") == list(firewall.ufw_rules(nobody)) == list(firewall.firewalld_rules(nobody)) == []
    assert firewall.iptables_rules(nobody, 4) == firewall.iptables_rules(nobody, 6) == []
    before = wanted(firewall)
    live = [*DROPPED, rule("accept", comment=before.comment, handle="1")]
    did = nftables(nobody, live, "table inet filter {\n}\n")
    assert bool([line for line in did if line.startswith("delete")]) is (not names), "the rule for everybody goes, unless a peer is unknown"
    assert not [line for line in did if nobody.comment in line]


def test_any_admits_everybody_and_nothing_else_does(firewall: t.Any) -> None:
    for sources in (["any"], ["192.0.2.1", "any"]):
        everybody = firewall.Wanted({"ports": ["16514/tcp"], "sources": sources})
        assert (everybody.everybody, everybody.families(), everybody.comment) == (True, [4, 6], wanted_comment(firewall))
        assert not [line for line in firewall.nft_rules(everybody, "inet") if "saddr" in line]
    assert not wanted(firewall, "0.0.0.0/0").everybody


def test_a_text_admits_whom_it_names(firewall: t.Any) -> None:
    """A list that was written without brackets; `any` inside a word is nobody."""
    assert firewall.Wanted({"ports": [], "sources": "any"}).everybody
    listed = firewall.Wanted({"ports": [], "sources": "192.0.2.1, 2001:db8::/64"})
    assert not listed.everybody and listed.sources == {4: ["192.0.2.1"], 6: ["2001:db8::/64"]}
    with pytest.raises(firewall.Problem, match="firewall_sources: "):
        firewall.Wanted({"ports": [], "sources": "company.example.org"})


def wanted_comment(firewall: t.Any) -> str:
    """By which a rule for everybody is known."""
    return str(firewall.Wanted({"ports": ["16514/tcp"], "sources": ["any"]}).comment)


def test_an_empty_list_does_not_cut_the_hypervisors_from_each_other(tmp_path: Path) -> None:
    """The role refuses it: it may have meant everybody, which it did once, or nobody."""
    (check,) = (
        one["ansible.builtin.assert"] for one in yaml.safe_load((ROLES / "firewall/tasks/main.yml").read_text()) if "Refuse" in one["name"]
    )
    for said, passes in (({"firewall_sources": []}, False), ({"firewall_sources": ["any"]}, True), ({}, True)):
        assert value(tmp_path, f"({check['that']})", [], said) is passes
    assert "[any]" in check["fail_msg"]


def test_unknown_peers_do_not_admit_everybody(firewall: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firewall, "resolve", lambda _name: [])
    nobody = firewall.Wanted({"ports": ["16514/tcp"], "sources": [], "names": ["hyper2"]})
    assert firewall.nft_rules(nobody, "inet") == list(firewall.ufw_rules(nobody)) == firewall.iptables_rules(nobody, 4) == []


def test_names_become_addresses_of_others(firewall: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ["127.0.1.1", "192.0.2.2", "2001:db8::2", "fe80::1%eth0"]
    monkeypatch.setattr(firewall.socket, "getaddrinfo", lambda *_args, **_more: [(0, 0, 0, "", (one, 0)) for one in found])
    assert firewall.resolve("hyper2") == ["192.0.2.2", "2001:db8::2"]


def test_ufw_and_iptables_keep_what_may_be_a_peers(firewall: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before, now = wanted(firewall, "192.0.2.1", "192.0.2.2"), wanted(firewall, "192.0.2.1")
    now.keep = True
    added = [shlex.join(["ufw", *firewall.ufw_words(one)]) for one in firewall.ufw_rules(before)]
    live = ["-A INPUT " + one for one in firewall.iptables_rules(before, 4)]
    answers = {"ufw": "\n".join(added), "iptables": "\n".join(live), "ip6tables": ""}
    monkeypatch.setattr(firewall, "output", lambda *command, **_more: answers[command[0]])
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(firewall, "run", lambda *command: ran.append(command))
    monkeypatch.setattr(firewall.os.path, "exists", lambda _path: False)
    assert firewall.ufw(now) == []
    for _said, do in firewall.iptables(now):
        do()
    assert ran
    assert not [command for command in ran if "-D" in command]
    text = "*filter\n:INPUT DROP [0:0]\nCOMMIT\n"
    old = firewall.iptables_text(text, firewall.iptables_rules(before, 4))
    kept = firewall.iptables_text(old, firewall.iptables_rules(now, 4), keep=True)
    assert all(line in kept.splitlines() for line in old.splitlines())
    assert firewall.iptables_text(kept, firewall.iptables_rules(now, 4), keep=True) == kept


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
    with pytest.raises(firewall.Problem, match=r"firewall_sources: .*any for everybody"):
        wanted(firewall, "hyper1")


def test_nobody_else_reads_rules_while_they_are_written(firewall: t.Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file keeps its permissions from the first byte; a link that lies where the new one is written is not followed."""
    modes: list[int] = []
    sync = firewall.os.fsync

    def noted(descriptor: int) -> None:
        modes.append(firewall.os.fstat(descriptor).st_mode & 0o777)
        sync(descriptor)

    monkeypatch.setattr(firewall.os, "fsync", noted)
    path, victim = tmp_path / "rules.v4", tmp_path / "victim"
    path.write_text("old")
    path.chmod(0o640)
    victim.write_text("kept")
    (tmp_path / "rules.v4.corral-new").symlink_to(victim)
    firewall.write(str(path), "new")
    firewall.write(str(tmp_path / "fresh/firewall.nft"), "new")
    assert (modes, path.stat().st_mode & 0o777, path.read_text()) == ([0o640, 0o644], 0o640, "new")
    assert victim.read_text() == "kept"
