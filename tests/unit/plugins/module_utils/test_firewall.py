"""The host's firewall: who is admitted, by which rules, in which chains and files."""

from __future__ import annotations

import dataclasses
import shlex
import socket
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._host import (
    files_firewall,
    plan_firewall,
    plan_firewall_steps,
    plan_host_steps,
    plan_iptables,
    plan_nftables,
)
from ansible_collections.corral.virt.plugins.module_utils._host.model_firewall import (
    DROP_IN,
    Firewalld,
    FirewallSpec,
    Iptables,
    IptablesFamily,
    Nftables,
    Services,
    Ufw,
)

PORTS = ("16514/tcp", "49152-49215/tcp")
CONFIG = "/etc/nftables.conf"
INCLUDE = f'include "{DROP_IN}"'
TABLE = "table inet filter {\n  chain input {\n  }\n  chain forward {\n  }\n  chain strict {\n  }\n}\n"
HEAD = f"# Written by the role corral.virt.firewall; included by {CONFIG}.\n"
MADE = ["add table inet filter", "add chain inet filter input"]  # before our rules, if it is gone
OPEN = "16514/tcp 49152-49215/tcp"


def spec(
    *sources: str,
    ports: t.Sequence[str] = PORTS,
    names: t.Mapping[str, t.Sequence[str]] | None = None,
    purge: bool = True,
) -> FirewallSpec:
    return plan_firewall.spec(ports, sources, names or {}, purge=purge)


def chain(**fields: str) -> dict[str, t.Any]:
    known = {"family": "inet", "table": "filter", "name": "input", "type": "filter"}
    return {"chain": {**known, "hook": "input", "policy": "accept", **fields}}


def rule(*verdicts: str, **fields: t.Any) -> dict[str, t.Any]:
    known = {"family": "inet", "table": "filter", "chain": "input"}
    return {"rule": {**known, "expr": [{verdict: None} for verdict in verdicts], **fields}}


def jump(verdict: str = "jump", target: str = "x", **fields: t.Any) -> dict[str, t.Any]:
    return rule(expr=[{verdict: {"target": target}}], **fields)


def ours(wanted: FirewallSpec, handle: int) -> dict[str, t.Any]:
    return rule("accept", comment=wanted.comment, handle=handle)


def found(*ruleset: dict[str, t.Any], text: str = TABLE, drop_in: str = "", all_text: str = "") -> Nftables:
    return Nftables(ruleset, CONFIG, text, all_text or text, drop_in)


def place(address: str) -> dict[str, str]:
    """A chain by its address."""
    return dict(zip(("family", "table", "name"), address.split()))


DROPPED = chain(policy="drop")


# What is wanted


def test_ports_and_sources_are_as_firewalls_print_them() -> None:
    ports = [*PORTS, "24007-24007/udp", "053/udp", " 53/udp "]
    wanted = spec("192.0.2.7", " 192.0.2.0/30", "2001:db8::/64", "192.0.2.7/32", ports=ports)
    assert wanted.ports == {"tcp": ("16514", "49152-49215"), "udp": ("24007", "53")}
    assert wanted.sources == {4: ("192.0.2.0/30", "192.0.2.7"), 6: ("2001:db8::/64",)}
    assert (wanted.everybody, wanted.purge, wanted.text) == (
        False,
        True,
        f"{OPEN} 24007/udp 53/udp",
    )
    assert spec("any", ports=[]).text == "no port"


@pytest.mark.parametrize("port", ["1/tcp", "65535/udp", "1-65535/tcp"])
def test_all_ports_can_be_opened(port: str) -> None:
    assert spec("any", ports=[port]).text == port


@pytest.mark.parametrize(
    "port",
    [
        *("16514", "0/tcp", "0-5/tcp", "9-1/tcp", "65536/tcp", "1-65536/tcp", "1/icmp"),
        *("1/tcp; drop", "1/tcp\n2", "\u0661/tcp", "-1/tcp", "1-/tcp", ""),
    ],
)
def test_bad_ports_are_refused(port: str) -> None:
    with pytest.raises(BadInput, match=r"ports: cannot read .*; write it as 16514/tcp"):
        spec("any", ports=[port])


@pytest.mark.parametrize(
    "source", ["hyper1", "192.0.2.7/24", "company.example.org", "fe80::1%eth0", "", "0.0.0.0/0", "::/0"]
)
def test_bad_sources_are_refused(source: str) -> None:
    """`any` inside a word is nobody; the address of a link means another host on each link."""
    with pytest.raises(BadInput, match=r"sources: .*any for everyone") as caught:
        spec(source)
    assert ("'fe80::1%eth0' is valid on one link only" in str(caught.value)) is ("%" in source)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(BadInput, match=r"ports: .*sources: ") as caught:
        spec("hyper1", "hyper2", "any", ports=["1", "2/tcp", "3"])
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "ports",
        "ports",
        "sources",
        "sources",
    ]


def test_any_admits_everybody_and_nothing_else_does() -> None:
    for sources in (["any"], [" any "], ["192.0.2.1", "any"]):
        everybody = spec(*sources, names={"hyper2": ["192.0.2.2"]})
        assert (everybody.everybody, everybody.sources) == (True, {4: (), 6: ()})
        assert everybody.admits(4) and everybody.admits(6)
        assert not [line for line in plan_nftables.rules(everybody, "inet") if "saddr" in line]
    half = spec("0.0.0.0/1")
    assert (half.everybody, half.admits(4), half.admits(6)) == (False, True, False)


def test_names_are_admitted_by_the_addresses_of_others() -> None:
    resolved = ["2001:db8::2", "127.0.1.1", "192.0.2.2", "fe80::1%eth0", "::1", "192.0.2.2"]
    wanted = spec("192.0.2.1", names={"hyper2": resolved, "hyper3": ["127.0.1.1"]})
    assert wanted.sources == {4: ("192.0.2.1", "192.0.2.2"), 6: ("2001:db8::2",)}
    assert plan_firewall.unknown({"hyper2": resolved, "hyper3": ["127.0.1.1"], "x": []}) == [
        "hyper3",
        "x",
    ]


@pytest.mark.parametrize(
    ("names", "purge", "expected"),
    [({}, True, True), ({}, False, False), ({"a": []}, True, False), ({"a": []}, False, False)],
)
def test_a_guess_removes_nothing(names: dict[str, list[str]], purge: bool, expected: bool) -> None:
    assert spec("192.0.2.1", names=names, purge=purge).purge is expected


def test_a_comment_tells_rules_apart() -> None:
    """It is as earlier versions wrote it, so that their rules are found."""
    comment = spec("192.0.2.7", "2001:db8::/64").comment
    assert comment == "corral.virt 56656cb3"
    others = [spec("192.0.2.7"), spec("any"), spec("192.0.2.7", "2001:db8::/64", ports=["1/tcp"])]
    assert comment not in [other.comment for other in others]


@pytest.mark.parametrize(
    ("services", "expected"),
    [
        (Services(), None),
        (Services(iptables=True), "iptables"),
        (Services(nftables=True, iptables=True), "nftables"),
        (Services(ufw=True, nftables=True, iptables=True), "ufw"),
        (Services(firewalld=True, ufw=True, nftables=True, iptables=True), "firewalld"),
    ],
)
def test_the_firewall_that_rules(services: Services, expected: str | None) -> None:
    assert plan_firewall.manager(services) == expected


def test_without_a_firewall_there_is_nothing_to_open() -> None:
    assert plan_firewall.decide(spec("any"), None) == ([], [])


# nftables


@pytest.mark.parametrize(
    ("ruleset", "count"),
    [
        ([chain(policy="drop")], 1),
        ([chain(policy="drop", family="ip")], 1),
        ([chain(policy="drop", family="ip6")], 1),
        ([chain(), rule("accept")], 0),
        ([chain(), rule("drop")], 1),
        ([chain(), rule("reject")], 1),
        ([chain(), rule("jump")], 1),
        ([chain(), rule("goto")], 1),
        ([chain(), rule("match", "vmap")], 1),
        ([chain(), rule("drop", chain="forward")], 0),
        ([chain(), rule("drop", table="other")], 0),
        ([chain(), rule("drop", family="ip")], 0),
        ([chain(policy="drop", hook="forward")], 0),
        ([chain(policy="drop", family="bridge")], 0),
        ([chain(policy="drop", type="nat")], 0),
        ([{"metainfo": {}}, {"table": {}}], 0),
    ],
)
def test_only_chains_that_may_drop_are_opened(ruleset: list[dict[str, t.Any]], count: int) -> None:
    assert len(plan_nftables.closed_chains(ruleset)) == count


@pytest.mark.parametrize(
    ("ruleset", "expected"),
    [
        ([DROPPED], True),
        ([chain(), rule("drop")], True),
        ([chain(), rule("counter", "log", "reject")], True),
        ([chain(), rule("match", "drop")], False),
        ([chain(), rule("accept")], False),
        ([chain(), jump(), rule("drop", chain="x")], True),
        ([chain(), jump("goto"), rule("drop", chain="x")], True),
        ([chain(), jump(), rule("accept", chain="x")], False),
        ([chain(), jump(), rule("drop", chain="y")], False),
        ([chain(), rule("accept"), rule("drop")], True),
        ([chain(), jump(), rule("accept", chain="x"), rule("drop")], True),
    ],
)
def test_a_chain_that_drops_the_rest(ruleset: list[dict[str, t.Any]], expected: bool) -> None:
    assert plan_nftables.drops_the_rest(ruleset, ruleset[0]["chain"]) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("table inet filter {", True),
        ("add table inet filter", True),
        ("flush ruleset; create table inet filter", True),
        ("flush ruleset\n\ttable inet filter {", True),
        ("  table filter {", False),
        ("table ip filter {", False),
        ("table inet filter2 {", False),
        ("# table inet filter", False),
    ],
)
def test_a_table_is_ours_to_open_when_the_file_defines_it(text: str, expected: bool) -> None:
    assert plan_nftables.defines(f"{text}\nchain input {{\n}}\n", place("inet filter input")) is expected


def test_a_table_without_a_family_is_ip() -> None:
    assert plan_nftables.defines("table filter {\nchain input {\n}\n}\n", place("ip filter input"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("table inet filter { chain input { type filter hook input priority 0; }; }", True),
        ("table inet filter {\n\tchain input\n\t{\n\t}\n}", True),
        ("table inet filter\nadd chain inet filter input { type filter hook input priority 0; }", True),
        ("table inet filter\ncreate chain inet filter input; flush chain inet filter input", True),
        ("table inet filter\nadd chain inet filter input", True),
        ("table inet filter {\n  chain input # of guests\n  {\n  }\n}", True),
        ('table inet filter\nadd chain inet filter input comment "x"', True),
        ("table inet filter { chain input2 { jump input; } }", False),
        ("table inet filter {\n}", False),
    ],
)
def test_a_chain_is_ours_to_open_when_the_file_defines_it(text: str, expected: bool) -> None:
    """One that a program makes later in a table of the file is that program's."""
    assert plan_nftables.defines(text, place("inet filter input")) is expected


def test_rules_of_nftables() -> None:
    some = spec("192.0.2.7", "192.0.2.0/30", "2001:db8::/64")
    tail = f'tcp dport {{ 16514, 49152-49215 }} accept comment "{some.comment}"'
    four = f"ip saddr {{ 192.0.2.0/30, 192.0.2.7 }} {tail}"
    six = f"ip6 saddr {{ 2001:db8::/64 }} {tail}"
    assert plan_nftables.rules(some, "inet") == [four, six]
    assert (plan_nftables.rules(some, "ip"), plan_nftables.rules(some, "ip6")) == ([four], [six])
    everybody = spec("any", ports=["16514/tcp", "53/udp"])
    mark = f'accept comment "{everybody.comment}"'
    assert plan_nftables.rules(everybody, "ip") == [
        f"tcp dport {{ 16514 }} {mark}",
        f"udp dport {{ 53 }} {mark}",
    ]


def test_nftables_is_opened_now_and_at_boot() -> None:
    wanted = spec("192.0.2.7")
    insert = f"insert rule inet filter input {plan_nftables.rules(wanted, 'inet')[0]}"
    written = "".join(f"{line}\n" for line in (*MADE, insert))
    steps, changes = plan_nftables.decide(wanted, found(DROPPED))
    include = f'include "{DROP_IN}"'
    assert steps == [
        plan_firewall_steps.ChangeNftables(OPEN, (insert,)),
        plan_host_steps.WriteFile(
            DROP_IN, f"{HEAD}{written}", checked_by="nft", checked_within=(CONFIG, f"{TABLE}{HEAD}{written}")
        ),
        plan_host_steps.WriteFile(CONFIG, f"{TABLE}{include}\n", f"include {DROP_IN}", checked_by="nft"),
    ]
    assert [str(step) for step in steps] == [
        f"open {OPEN} in the running nftables",
        f"write {DROP_IN}",
        f"write {CONFIG} (include {DROP_IN})",
    ]
    assert changes == [
        Change("nftables.running", None, [insert[len("insert rule ") :]]),
        Change(DROP_IN, None, [*MADE, insert]),
        Change(CONFIG, None, [include]),
    ]
    again = found(DROPPED, ours(wanted, 1), text=f"{TABLE}{include}\n", drop_in=f"{HEAD}{written}")
    assert plan_nftables.decide(wanted, again) == ([], [])


@pytest.mark.parametrize("text", [TABLE, TABLE.rstrip("\n")])
def test_the_include_is_a_line_of_its_own(text: str) -> None:
    steps, _changes = plan_nftables.decide(spec("any"), found(DROPPED, text=text))
    (include,) = (one for one in steps if isinstance(one, plan_host_steps.WriteFile) and one.path == CONFIG)
    assert include.content == f'{TABLE}include "{DROP_IN}"\n'


def test_an_empty_configuration_is_only_the_include() -> None:
    facts = found(DROPPED, text="", all_text=TABLE)
    steps, _changes = plan_nftables.decide(spec("any"), facts)
    (include,) = (one for one in steps if isinstance(one, plan_host_steps.WriteFile) and one.path == CONFIG)
    assert include.content == f'include "{DROP_IN}"\n'


@pytest.mark.parametrize(
    ("below", "before", "after"),
    [
        ("table ip guard\n", [INCLUDE, "table ip guard"], ["table ip guard", INCLUDE]),
        ("# a\n\ntable ip a # b", [INCLUDE, "# a", "", "table ip a # b"], ["# a", "", "table ip a # b", INCLUDE]),
        (f"  {INCLUDE}\n", [INCLUDE, f"  {INCLUDE}"], [INCLUDE]),
        ("", None, None),
        ("\n \n# a\n  # b", None, None),
    ],
)
def test_the_include_is_the_last_statement_of_the_configuration(
    below: str, before: list[str] | None, after: list[str] | None
) -> None:
    _steps, changes = plan_nftables.decide(spec("any"), found(DROPPED, text=f"{TABLE}{INCLUDE}\n{below}"))
    moved = [(change.before, change.after) for change in changes if change.where == CONFIG]
    assert moved == ([(before, after)] if after else [])


def test_rules_of_before_are_replaced_at_once() -> None:
    before, after = spec("192.0.2.1", "192.0.2.2"), spec("192.0.2.1")
    (insert,) = plan_nftables.rules(after, "inet")
    strangers = [rule("accept", comment=text, handle=9) for text in ("corral.virtual 1", "corral.virt by hand", "")]
    facts = found(DROPPED, ours(before, 4), *strangers, rule("accept"), drop_in=f"{HEAD}old\n")
    steps, changes = plan_nftables.decide(after, facts)
    delete = "delete rule inet filter input handle 4"
    assert steps[0] == plan_firewall_steps.ChangeNftables(OPEN, (delete, f"insert rule inet filter input {insert}"))
    assert changes[0] == Change(
        "nftables.running",
        [f"inet filter input: {before.comment}"],
        [f"inet filter input {insert}"],
    )
    assert changes[1] == Change(DROP_IN, ["old"], [*MADE, f"insert rule inet filter input {insert}"])


def test_a_rule_that_is_there_twice_is_made_anew() -> None:
    wanted = spec("192.0.2.1")
    (step, *_others), _changes = plan_nftables.decide(wanted, found(DROPPED, ours(wanted, 1), ours(wanted, 2)))
    assert isinstance(step, plan_firewall_steps.ChangeNftables)
    assert [line.split(" ")[0] for line in step.commands] == ["delete", "delete", "insert"]


def test_a_rule_in_a_chain_that_no_longer_drops_does_not_stand_for_the_one_that_does() -> None:
    wanted = spec("192.0.2.1")
    (insert,) = plan_nftables.rules(wanted, "inet")
    facts = found(chain(), chain(name="strict", policy="drop"), ours(wanted, 4))
    (step, *_others), changes = plan_nftables.decide(wanted, facts)
    assert isinstance(step, plan_firewall_steps.ChangeNftables)
    assert step.commands == ("delete rule inet filter input handle 4", f"insert rule inet filter strict {insert}")
    assert changes[0].before == [f"inet filter input: {wanted.comment}"]


def test_rules_in_all_chains_that_drop_are_enough() -> None:
    wanted = spec("192.0.2.1", "2001:db8::1")
    strict = rule("accept", comment=wanted.comment, handle=2, chain="strict")
    chains = DROPPED, chain(name="strict", policy="drop")
    steps, _changes = plan_nftables.decide(wanted, found(*chains, strict, strict, ours(wanted, 1), ours(wanted, 1)))
    assert not [step for step in steps if isinstance(step, plan_firewall_steps.ChangeNftables)]


def test_nothing_is_removed_while_an_address_is_unknown() -> None:
    before, after = spec("192.0.2.1", "192.0.2.2"), spec("192.0.2.1")
    unsure = spec("192.0.2.1", ports=["16514/tcp"], names={"hyper2": ["127.0.1.1"]})
    lines = [f"insert rule inet filter input {line}" for line in plan_nftables.rules(before, "inet")]
    elsewhere = "insert rule inet other input tcp dport 1 accept"
    facts = found(DROPPED, ours(before, 1), drop_in=HEAD + "\n".join([*lines, elsewhere]))
    (running, drop_in, _include), changes = plan_nftables.decide(unsure, facts)
    (insert,) = plan_nftables.rules(unsure, "inet")
    assert isinstance(running, plan_firewall_steps.ChangeNftables) and isinstance(drop_in, plan_host_steps.WriteFile)
    assert running.commands == (f"insert rule inet filter input {insert}",)
    assert drop_in.content.splitlines()[1:] == [*MADE, *running.commands, *lines], "at boot, too"
    assert changes[0].before is None
    sure, _changes = plan_nftables.decide(after, facts)
    assert isinstance(sure[0], plan_firewall_steps.ChangeNftables) and isinstance(sure[1], plan_host_steps.WriteFile)
    assert sure[0].commands[0].startswith("delete rule") and before.comment not in sure[1].content


def test_what_is_kept_is_not_written_twice() -> None:
    wanted = spec("192.0.2.1", purge=False)
    (insert,) = plan_nftables.rules(wanted, "inet")
    text = HEAD + "".join(f"{line}\n" for line in (*MADE, f"insert rule inet filter input {insert}"))
    config = f'{TABLE}include "{DROP_IN}"\n'
    facts = found(DROPPED, ours(wanted, 1), text=config, drop_in=text)
    assert plan_nftables.decide(wanted, facts) == ([], [])


@pytest.mark.parametrize("names", [{}, {"hyper2": []}])
def test_no_source_admits_nobody(names: dict[str, list[str]]) -> None:
    """Whether none is named, or none is known."""
    nobody, before = spec(names=names), spec("any")
    assert plan_nftables.rules(nobody, "inet") == []
    assert plan_iptables.rules(nobody, 4) == plan_iptables.rules(nobody, 6) == []
    assert plan_firewall.ufw(nobody, Ufw()) == plan_firewall.firewalld(nobody, Firewalld("public")) == ([], [])
    lines = (*MADE, f"insert rule inet filter input {plan_nftables.rules(before, 'inet')[0]}")
    drop_in = HEAD + "".join(f"{line}\n" for line in lines)
    text = f'{TABLE}include "{DROP_IN}"\n'
    steps, changes = plan_nftables.decide(nobody, found(DROPPED, ours(before, 1), text=text, drop_in=drop_in))
    if names:
        assert (steps, changes) == ([], [])
    else:
        delete = ("delete rule inet filter input handle 1",)
        assert steps == [
            plan_firewall_steps.ChangeNftables("", delete),
            plan_host_steps.WriteFile(DROP_IN, HEAD),
        ]
        assert str(steps[0]) == "remove 1 rule of corral.virt from the running nftables"
        assert [change.after for change in changes] == [None, None]


@pytest.mark.parametrize(
    "ruleset",
    [[DROPPED], [chain(), rule("reject")], [chain(), jump(), rule("drop", chain="x")]],
)
def test_a_chain_that_drops_and_is_in_no_file_is_refused(ruleset: list[dict[str, t.Any]]) -> None:
    facts = found(*ruleset, text="")
    with pytest.raises(Refused, match=f"inet filter input drops .*neither {CONFIG} nor .*firewall_ports"):
        plan_firewall.decide(spec("any"), facts)
    for nothing_to_open in (spec("any", ports=[]), spec(), spec(ports=[])):
        assert plan_firewall.decide(nothing_to_open, facts) == ([], [])
    for_the_other = found(chain(policy="drop", family="ip6"), text="")
    assert plan_firewall.decide(spec("192.0.2.7"), for_the_other) == ([], [])
    with pytest.raises(Refused, match="ip6 filter input drops"):
        plan_firewall.decide(spec("2001:db8::1"), for_the_other)


def test_a_step_that_only_removes_rules_says_so() -> None:
    """Of several sources one goes: nothing is opened."""
    before, wanted = spec("192.0.2.1", "192.0.2.2", "192.0.2.3"), spec("192.0.2.1")
    old = [tuple(shlex.split(rule)) for rule in plan_iptables.rules(before, 4)]
    assert str(plan_firewall_steps.ChangeIptables("iptables", "", tuple(old), ())).startswith(
        "remove 3 rules of corral.virt"
    )
    (kept,) = plan_iptables.rules(wanted, 4)
    gone = plan_firewall_steps.ChangeIptables("ip6tables", "", (old[0],), ())
    assert str(gone) == "remove 1 rule of corral.virt from the running ip6tables"
    facts = IptablesFamily(4, (f"-A INPUT {kept}", f"-A INPUT {plan_iptables.rules(before, 4)[1]}"), None, "")
    (step,), _changes = plan_firewall.decide(wanted, Iptables((facts,)))
    assert str(step) == "remove 1 rule of corral.virt from the running iptables"


def test_a_chain_made_at_run_time_that_drops_only_some_is_passed_over() -> None:
    some = rule(expr=[{"match": {}}, {"reject": None}])
    assert plan_nftables.decide(spec("any"), found(chain(), some, jump(), text="")) == ([], [])


def test_only_chains_of_the_configuration_are_opened() -> None:
    guests = chain(table="libvirt"), rule(expr=[{"match": {}}, {"drop": None}], table="libvirt")
    steps, _changes = plan_nftables.decide(spec("any"), found(DROPPED, *guests))
    assert isinstance(steps[0], plan_firewall_steps.ChangeNftables)
    assert [line.split(" ")[2:5] for line in steps[0].commands] == [["inet", "filter", "input"]]


def test_includes_are_followed(tmp_path: Path) -> None:
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
    (conf.parent / "near.nft").write_text("table ip near {\nchain x {\n}\n}\n")
    (tmp_path / "path/near.nft").write_text("table ip elsewhere {\n}\n")
    (tmp_path / "path/far.nft").write_text("table ip6 far {\n}\n")
    text = files_firewall.with_includes(str(conf), (str(tmp_path / "path"),))
    for table in ("inet filter", "ip near", "ip6 far"):
        assert plan_nftables.defines(text, place(f"{table} x"))
    for table in ("inet not", "ip elsewhere"):
        assert not plan_nftables.defines(text, place(f"{table} x"))


# The others


def test_firewalld_gets_what_its_zone_lacks_running_and_permanent() -> None:
    wanted = spec("192.0.2.7", "2001:db8::/64", ports=["16514/tcp", "5-6/udp"])
    four, six = (
        f'rule family="ipv{v}" source address="{source}" port port="16514" protocol="tcp" accept'
        for v, source in ((4, "192.0.2.7"), (6, "2001:db8::/64"))
    )
    udp = [rule.replace("16514", "5-6").replace("tcp", "udp") for rule in (four, six)]
    facts = Firewalld("work", running=frozenset((four, *udp)), permanent=frozenset((six, *udp)))
    steps, changes = plan_firewall.decide(wanted, facts)
    assert steps == [
        plan_firewall_steps.AddFirewalldRule("work", "rich-rule", six, permanent=False),
        plan_firewall_steps.AddFirewalldRule("work", "rich-rule", four, permanent=True),
    ]
    assert [str(step) for step in steps] == [
        f"add rich-rule {six} to the running zone work",
        f"add rich-rule {four} to the permanent zone work",
    ]
    assert changes == [
        Change("firewalld.work.running", None, [six]),
        Change("firewalld.work.permanent", None, [four]),
    ]
    known = frozenset((four, six, *udp))
    assert plan_firewall.decide(wanted, Firewalld("work", known, known)) == ([], [])


def test_firewalld_admits_everybody_by_ports() -> None:
    steps, changes = plan_firewall.decide(spec("any"), Firewalld("public", permanent=frozenset(["16514/tcp"])))
    assert steps == [
        plan_firewall_steps.AddFirewalldRule("public", "port", "16514/tcp", permanent=False),
        plan_firewall_steps.AddFirewalldRule("public", "port", "49152-49215/tcp", permanent=False),
        plan_firewall_steps.AddFirewalldRule("public", "port", "49152-49215/tcp", permanent=True),
    ]
    assert [change.after for change in changes] == [
        ["16514/tcp", "49152-49215/tcp"],
        ["49152-49215/tcp"],
    ]


@pytest.mark.parametrize(
    ("known", "missing"),
    [
        ({"16514/tcp", "49152-49215/tcp"}, []),
        ({"16514/tcp", "49000-50000/tcp"}, []),  # what firewalld makes of two ranges that overlap
        ({"1-65535/tcp"}, []),
        ({"1-65535/udp", "16514/tcp"}, ["49152-49215/tcp"]),
        ({"16514/tcp", "49152-49214/tcp"}, ["49152-49215/tcp"]),
        ({"16514/tcp", "49153-49215/tcp"}, ["49152-49215/tcp"]),
        ({"16514/tcp", "http/tcp"}, ["49152-49215/tcp"]),
    ],
)
def test_a_port_of_firewalld_may_be_within_a_range(known: set[str], missing: list[str]) -> None:
    steps, _changes = plan_firewall.decide(spec("any"), Firewalld("public", frozenset(known), frozenset(known)))
    added_ports = [step.rule for step in steps if isinstance(step, plan_firewall_steps.AddFirewalldRule)]
    assert added_ports == 2 * missing


FROM_7 = "allow from 192.0.2.7 to any port 16514,49152:49215 proto tcp comment corral.virt"
FROM_8 = FROM_7.replace("2.7", "2.8")
TO_ALL = "allow 16514,49152:49215/tcp comment corral.virt"


OTHERS = ("not of corral.virt", "x comment corral.virt")


def added(*rules: str) -> Ufw:
    """As ufw prints rules, with one of somebody else's."""
    shown = [f"ufw {one}".replace("corral.virt", "'corral.virt'") for one in rules]
    return Ufw(
        ("Added user rules:", *shown, "ufw allow 22/tcp", *(f"ufw allow 23/tcp comment '{text}'" for text in OTHERS))
    )


@pytest.mark.parametrize(
    ("wanted", "facts", "deleted", "new"),
    [
        (spec("192.0.2.7"), added(), [], [FROM_7]),
        (spec("192.0.2.7"), added(FROM_7), [], []),
        (spec("192.0.2.7"), added(FROM_8), [FROM_8], [FROM_7]),
        (spec("192.0.2.7", purge=False), added(FROM_8), [], [FROM_7]),
        (spec("192.0.2.8", purge=False), added(FROM_7, FROM_8), [], []),
        (spec("192.0.2.8", "192.0.2.7"), added(), [], [FROM_7, FROM_8]),
        (spec("any"), added(FROM_7), [FROM_7], [TO_ALL]),
        (spec(), added(FROM_7, FROM_8), [FROM_7, FROM_8], []),
    ],
)
def test_ufw(wanted: FirewallSpec, facts: Ufw, deleted: list[str], new: list[str]) -> None:
    steps, changes = plan_firewall.decide(wanted, facts)
    assert steps == [*map(plan_firewall_steps.AddUfwRule, new), *map(plan_firewall_steps.DeleteUfwRule, deleted)]
    words = [f"add ufw rule: {one}" for one in new] + [f"delete ufw rule: {one}" for one in deleted]
    assert [str(step) for step in steps] == words
    assert changes == ([Change("ufw", deleted or None, new or None)] if steps else [])


@pytest.mark.parametrize("text", [FROM_7.replace("corral.virt", "'mine'"), FROM_7.replace(" comment corral.virt", "")])
def test_a_rule_of_somebody_else_for_the_same_traffic_stays_theirs(text: str) -> None:
    """ufw would make it ours, and the next purge would delete it."""
    theirs = Ufw((f"ufw {text}", f"ufw {FROM_8}"))
    assert plan_firewall.decide(spec("192.0.2.7", "192.0.2.8"), theirs) == ([], [])
    steps, _changes = plan_firewall.decide(spec(), theirs)
    assert steps == [plan_firewall_steps.DeleteUfwRule(FROM_8)]


@pytest.mark.parametrize("verdict", ["deny", "reject", "limit", "deny log"])
def test_a_rule_of_somebody_else_is_not_turned_around(verdict: str) -> None:
    text = FROM_7.replace("allow", verdict).removesuffix(" comment corral.virt")
    with pytest.raises(Refused, match=f"16514/tcp(.|\n)*remove it with `ufw delete {verdict} from 192.0.2.7 to any"):
        plan_firewall.decide(spec("192.0.2.7"), Ufw((f"ufw {text} comment 'mine'",)))
    assert plan_firewall.decide(spec("192.0.2.8"), Ufw((f"ufw {text}", f"ufw {FROM_8}"))) == ([], [])


def test_ufw_opens_ipv6_and_each_protocol() -> None:
    steps, _changes = plan_firewall.decide(spec("2001:db8::1", ports=["2/udp", "1/tcp"]), Ufw())
    assert [str(step) for step in steps] == [
        f"add ufw rule: allow from 2001:db8::1 to any port {port} comment corral.virt"
        for port in ("1 proto tcp", "2 proto udp")
    ]


def accept(source: str, wanted: FirewallSpec) -> str:
    return (
        f'-s {source} -p tcp -m multiport --dports 16514,49152:49215 -m comment --comment "{wanted.comment}" -j ACCEPT'
    )


def test_rules_of_iptables() -> None:
    wanted = spec("192.0.2.7", "192.0.2.0/30", "2001:db8::1")
    assert plan_iptables.rules(wanted, 4) == [
        accept("192.0.2.0/30", wanted),
        accept("192.0.2.7/32", wanted),
    ]
    assert plan_iptables.rules(wanted, 6) == [accept("2001:db8::1/128", wanted)]
    everybody = spec("any", ports=["53/udp", "16514/tcp"])
    tail = f'-m comment --comment "{everybody.comment}" -j ACCEPT'
    both = [f"-p tcp -m multiport --dports 16514 {tail}", f"-p udp -m multiport --dports 53 {tail}"]
    assert plan_iptables.rules(everybody, 4) == plan_iptables.rules(everybody, 6) == both


BY_HAND = (
    "# by hand\n*nat\n-A INPUT -j ACCEPT\nCOMMIT\n*filter\n:INPUT DROP [0:0]\n:A - [0:0]\n# ssh\n"
    "-A A -m comment --comment corral.virt -j DROP\n"
    '-A INPUT -m comment --comment "for corral.virt" -j DROP\n'
    '-A INPUT -m comment --comment "x --comment corral.virt y" -j DROP\n'
    "-A INPUT -m comment --comment it's corral.virt -j DROP\n"
    "-A INPUT -p tcp --dport 22 -j ACCEPT\nCOMMIT\n"
)


def test_an_iptables_file_holds_our_rules_first_and_once() -> None:
    rules = plan_iptables.rules(spec("192.0.2.7", "192.0.2.8"), 4)
    once = plan_iptables.with_rules(BY_HAND, rules)
    lines = BY_HAND.splitlines()
    assert once.splitlines() == [*lines[:8], *(f"-A INPUT {rule}" for rule in rules), *lines[8:]]
    assert plan_iptables.with_rules(once, rules) == once
    assert plan_iptables.with_rules(once, []) == BY_HAND
    less = plan_iptables.with_rules(once, rules[:1])
    assert [line for line in less.splitlines() if "-A INPUT -s" in line] == [f"-A INPUT {rules[0]}"]


def test_an_iptables_file_without_our_rules_stays_as_it_is() -> None:
    first = plan_iptables.with_rules("*filter\n-A INPUT -j DROP\nCOMMIT\n", ["-j ACCEPT"])
    assert first == "*filter\n-A INPUT -j ACCEPT\n-A INPUT -j DROP\nCOMMIT\n"
    for text in ("", "*nat\nCOMMIT\n"):
        assert plan_iptables.with_rules(text, ["-j ACCEPT"]) == text
    assert plan_iptables.with_rules(BY_HAND.rstrip("\n"), []) == BY_HAND.rstrip("\n")
    assert plan_iptables.with_rules("*filter\n:INPUT", ["-j ACCEPT"]) == "*filter\n:INPUT\n-A INPUT -j ACCEPT\n"


def test_iptables_is_changed_running_and_for_the_boot() -> None:
    before, wanted = spec("192.0.2.1"), spec("192.0.2.2")
    (old,), (new,) = plan_iptables.rules(before, 4), plan_iptables.rules(wanted, 4)
    path = "/etc/iptables/rules.v4"
    text = plan_iptables.with_rules(BY_HAND, [old])
    four = IptablesFamily(4, ("-P INPUT DROP", f"-A INPUT {old}", "-A INPUT -j DROP"), path, text)
    six = IptablesFamily(6, ("-P INPUT DROP",), None, "")
    steps, changes = plan_firewall.decide(wanted, Iptables((four, six)))
    delete, insert = (tuple(shlex.split(rule)) for rule in (old, new))
    assert steps == [
        plan_firewall_steps.ChangeIptables("iptables", OPEN, (delete,), (insert,)),
        plan_host_steps.WriteFile(path, plan_iptables.with_rules(BY_HAND, [new]), checked_by="iptables"),
    ]
    assert str(steps[0]) == f"open {OPEN} in the running iptables"
    quoted = [rule.replace('"', "'") for rule in (old, new)]
    assert changes == [
        Change("iptables.running", [quoted[0]], [quoted[1]]),
        Change(path, [f"-A INPUT {old}"], [f"-A INPUT {new}"]),
    ]
    lines = tuple(f"-A INPUT {rule}" for rule in (new, old))
    now = IptablesFamily(4, lines[:1], path, plan_iptables.with_rules(BY_HAND, [new]))
    assert plan_firewall.decide(wanted, Iptables((now, six))) == ([], [])
    assert plan_firewall.decide(spec(), Iptables((IptablesFamily(4, (), path, BY_HAND), six))) == (
        [],
        [],
    )


@pytest.mark.parametrize(
    "step",
    [
        plan_host_steps.WriteFile("/a", "secret"),
        plan_firewall_steps.ChangeNftables(OPEN, ("secret",)),
        plan_firewall_steps.ChangeIptables("iptables", OPEN, (("secret",),), (("secret",),)),
    ],
)
def test_what_is_written_does_not_show(step: plan_host_steps.HostStep) -> None:
    assert "secret" not in repr(step), "texts hold secrets, and are long"


def test_iptables_rules_are_removed() -> None:
    (old,) = plan_iptables.rules(spec("192.0.2.1"), 4)
    path, running = "/etc/iptables/rules.v4", (f"-A INPUT {old}",)
    family = IptablesFamily(4, running, path, plan_iptables.with_rules(BY_HAND, [old]))
    steps, changes = plan_firewall.decide(spec(), Iptables((family,)))
    assert steps == [
        plan_firewall_steps.ChangeIptables("iptables", "", (tuple(shlex.split(old)),), ()),
        plan_host_steps.WriteFile(path, BY_HAND, checked_by="iptables"),
    ]
    assert str(steps[0]) == "remove 1 rule of corral.virt from the running iptables"
    assert [change.after for change in changes] == [None, None]


def test_iptables_keeps_what_may_be_a_peers() -> None:
    before, unsure = spec("192.0.2.1", "192.0.2.2"), spec("192.0.2.1", purge=False)
    old, (new,) = plan_iptables.rules(before, 4), plan_iptables.rules(unsure, 4)
    path = "/etc/iptables/rules.v4"
    text = plan_iptables.with_rules(BY_HAND, old)
    running = tuple(f"-A INPUT {rule}" for rule in old)
    facts = Iptables((IptablesFamily(4, running, path, text),))
    (change, write), _changes = plan_firewall.decide(unsure, facts)
    assert isinstance(change, plan_firewall_steps.ChangeIptables) and isinstance(write, plan_host_steps.WriteFile)
    assert (change.delete, len(change.insert)) == ((), 1)
    kept = write.content
    assert set(text.splitlines()) | {f"-A INPUT {new}"} == set(kept.splitlines())
    assert plan_iptables.with_rules(kept, [new], purge=False) == kept


def test_ipv6_has_a_file_and_a_program_of_its_own() -> None:
    wanted, path = spec("2001:db8::1"), "/etc/iptables/rules.v6"
    facts = Iptables((IptablesFamily(4), IptablesFamily(6, (), path, "*filter\nCOMMIT\n")))
    steps, changes = plan_firewall.decide(wanted, facts)
    assert [(type(one).__name__, getattr(one, "tool", "ip6tables")) for one in steps] == [
        ("ChangeIptables", "ip6tables"),
        ("WriteFile", "ip6tables"),
    ]
    assert isinstance(steps[1], plan_host_steps.WriteFile) and steps[1].checked_by == "ip6tables"
    assert [change.where for change in changes] == ["ip6tables.running", path]
    assert [change.before for change in changes] == [None, None]


# Guests of libvirt's networks


def for_guests(*bridges: str, ports: t.Sequence[str] = (), sources: t.Sequence[str] = ()) -> FirewallSpec:
    return plan_firewall.spec(ports, sources, {}, bridges=bridges, purge=True)


@pytest.mark.parametrize("name", ["virbr 1", "a-name-that-is-long", "", "*", "virbr*1", 'x" accept', "-j"])
def test_a_bridge_that_is_no_device_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=r"bridges: .* is no network device; use names such as virbr1"):
        for_guests(name)


def test_guests_are_admitted_in_each_chain_of_nftables_that_drops() -> None:
    wanted = for_guests("virbr*")
    passing = chain(name="forward", hook="forward", policy="drop")
    (change, *_files), _changes = plan_firewall.decide(wanted, found(DROPPED, passing))
    assert isinstance(change, plan_firewall_steps.ChangeNftables)
    mark = f'accept comment "{wanted.comment}"'
    assert list(change.commands) == [
        f'insert rule inet filter input iifname "virbr*" tcp dport {{ 53 }} {mark}',
        f'insert rule inet filter input iifname "virbr*" udp dport {{ 53, 67, 547 }} {mark}',
        f'insert rule inet filter forward iifname "virbr*" {mark}',
        f'insert rule inet filter forward oifname "virbr*" ct state established,related {mark}',
    ]
    assert str(change) == "open DHCP and DNS for virbr* in the running nftables"
    assert plan_firewall.decide(wanted, found(chain(), chain(name="forward", hook="forward"))) == ([], [])


def test_a_chain_that_no_file_defines_refuses_ports_and_not_guests() -> None:
    """Such as Docker's: it works today without us."""
    undefined = found(chain(policy="drop"), text="")
    assert plan_firewall.decide(for_guests("virbr*"), undefined)[0] == []
    with pytest.raises(Refused, match="the rules would be lost at the next boot"):
        plan_firewall.decide(for_guests("virbr*", ports=PORTS, sources=["any"]), undefined)


def test_guests_are_admitted_by_iptables_behind_what_isolates_networks() -> None:
    wanted, path = for_guests("virbr*", "lab0"), "/etc/iptables/rules.v4"
    libvirts = (
        "-P FORWARD DROP",
        "-A FORWARD -j LIBVIRT_FWX",
        "-A FORWARD -j LIBVIRT_FWI",
        "-A FORWARD -s 192.0.2.1/32 -j DROP",
    )
    text = "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -j LIBVIRT_FWX\n-A FORWARD -s 192.0.2.1/32 -j DROP\nCOMMIT\n"
    family = IptablesFamily(4, (), path, text, libvirts)
    (served, passed, stored), changes = plan_firewall.decide(wanted, Iptables((family,)))
    assert isinstance(served, plan_firewall_steps.ChangeIptables) and isinstance(
        passed, plan_firewall_steps.ChangeIptables
    )
    mark = ("-m", "comment", "--comment", wanted.comment, "-j", "ACCEPT")
    assert (served.chain, served.at, passed.chain, passed.at) == ("INPUT", 1, "FORWARD", 3)
    assert ("-i", "virbr+", "-p", "udp", "-m", "multiport", "--dports", "53,67,547", *mark) in served.insert
    assert passed.insert[:2] == (
        ("-i", "lab0", *mark),
        ("-o", "lab0", "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", *mark),
    )
    assert str(passed).endswith("in the running iptables (FORWARD)")
    assert [change.where for change in changes] == ["iptables.running", "iptables.running.forward", path]
    assert isinstance(stored, plan_host_steps.WriteFile)
    lines = stored.content.splitlines()
    assert lines[2] == "-A FORWARD -j LIBVIRT_FWX" and lines[-2:] == ["-A FORWARD -s 192.0.2.1/32 -j DROP", "COMMIT"]
    running = tuple(f"-A INPUT {shlex.join(rule)}" for rule in served.insert)
    forward = (*libvirts[:3], *(f"-A FORWARD {shlex.join(rule)}" for rule in passed.insert))
    again = IptablesFamily(4, running, path, stored.content, forward)
    assert plan_firewall.decide(wanted, Iptables((again,))) == ([], [])
    gone, _changes = plan_firewall.decide(for_guests(), Iptables((again,)))
    assert [len(step.delete) for step in gone if isinstance(step, plan_firewall_steps.ChangeIptables)] == [4, 4]


def test_guests_are_admitted_by_ufw() -> None:
    steps, _changes = plan_firewall.decide(for_guests("virbr*"), Ufw())
    assert [step.rule for step in steps if isinstance(step, plan_firewall_steps.AddUfwRule)] == [
        "allow in on virbr+ to any port 53 proto tcp comment corral.virt",
        "allow in on virbr+ to any port 53,67,547 proto udp comment corral.virt",
        "route allow in on virbr+ comment corral.virt",
    ]


@pytest.mark.parametrize(
    ("zones", "known", "steps"),
    [
        ({"virbr0": "libvirt", "virbr1": "trusted"}, True, []),
        ({"virbr0": "libvirt", "virbr1": ""}, True, ["put virbr1 into the running zone libvirt"]),
        (
            {"virbr1": ""},
            False,
            [
                "reload firewalld (it does not know zone libvirt of libvirt yet)",
                "put virbr1 into the running zone libvirt",
            ],
        ),
    ],
)
def test_firewalld_has_a_zone_for_guests(zones: dict[str, str], *, known: bool, steps: list[str]) -> None:
    facts = Firewalld("public", zones=zones, has_guest_zone=known)
    assert [str(step) for step in plan_firewall.decide(for_guests("virbr*"), facts)[0]] == steps


def test_a_reload_of_firewalld_loses_nothing() -> None:
    facts = Firewalld("public", unsaved=frozenset(["work: services ssh"]))
    assert plan_firewall.decide(for_guests("virbr*"), facts) == ([], [])
    with pytest.raises(Refused, match=r"has only until then: work: services ssh; .*--runtime-to-permanent"):
        plan_firewall.decide(for_guests("virbr*"), dataclasses.replace(facts, has_guest_zone=False))


ZONES = """public{active}
  target: default
  interfaces: {links}
  sources:
  services: dhcpv6-client{services}
  ports: 10/tcp
  rich rules:
\trule family="ipv4" source address="192.0.2.7" accept

work
  target: default
  interfaces:
  sources: {sources}
  services: ssh
"""


def test_what_only_the_running_firewalld_has_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any zone: a reload that drops ssh from the zone of the administrator's network shuts everyone out."""
    running = ZONES.format(active=" (active)", links="eth0", services=" ssh", sources="198.51.100.0/24")
    stored = ZONES.format(active="", links="", services="", sources="")

    def answers(*command: str) -> str:
        lasting = "--permanent" in command
        if "--list-all-zones" in command:
            return stored if lasting else running
        if "--get-zones" in command:
            return "public work libvirt" if lasting else "public work"
        if "--direct" in command and not lasting:
            return "ipv4 filter INPUT 0 -p tcp --dport 22 -j ACCEPT\n"
        return "public\n" if "--get-default-zone" in command else ""

    monkeypatch.setattr(files_firewall, "run", answers)
    monkeypatch.setattr(files_firewall, "answer", answers)
    facts = files_firewall.read("firewalld", ["virbr*"])
    assert isinstance(facts, Firewalld)
    assert facts.unsaved == {
        "public: services ssh",
        "work: sources 198.51.100.0/24",
        "direct: ipv4 filter INPUT 0 -p tcp --dport 22 -j ACCEPT",
    }


def test_rules_without_bridges_keep_their_comments() -> None:
    """Else every host would change with an upgrade."""
    assert spec("192.0.2.7").comment == "corral.virt 608c23d8"
    assert (
        spec("192.0.2.7").comment
        != plan_firewall.spec(PORTS, ["192.0.2.7"], {}, bridges=["virbr0"], purge=True).comment
    )


# The host


def test_the_resolver_is_asked_for_names(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(2, 1, 6, "", (one, 0)) for one in ("192.0.2.2", "127.0.1.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: rows)
    assert files_firewall.addresses("hyper2") == ("192.0.2.2", "127.0.1.1")
    for error in (OSError(), UnicodeError()):

        def fail(*_args: object, error: Exception = error, **_more: object) -> None:
            raise error

        monkeypatch.setattr(socket, "getaddrinfo", fail)
        assert files_firewall.addresses("hyper2") == ()


CALLS: list[tuple[t.Callable[[], None], list[str]]] = [
    (lambda: files_firewall.nftables(["a", "b"]), ["nft -f - <a\nb"]),
    (
        lambda: files_firewall.firewalld("work", "port", "1/tcp", permanent=False),
        ["firewall-cmd --zone=work --add-port=1/tcp"],
    ),
    (
        lambda: files_firewall.firewalld("work", "rich-rule", "rule x", permanent=True),
        ["firewall-cmd --permanent --zone=work --add-rich-rule=rule x"],
    ),
    (lambda: files_firewall.ufw("allow 1/tcp"), ["ufw allow 1/tcp"]),
    (lambda: files_firewall.delete_ufw("allow 1/tcp"), ["ufw delete allow 1/tcp"]),
    (lambda: files_firewall.delete_ufw("route allow in on virbr+"), ["ufw route delete allow in on virbr+"]),
    (files_firewall.reload_firewalld, ["firewall-cmd --reload"]),
    (
        lambda: files_firewall.move_to_zone("libvirt", "virbr1"),
        ["firewall-cmd --zone=libvirt --change-interface=virbr1"],
    ),
    (
        lambda: files_firewall.iptables("iptables", "FORWARD", 3, delete=[], insert=[["-j", "B"]]),
        ["iptables -w -I FORWARD 3 -j B"],
    ),
    (
        lambda: files_firewall.iptables("ip6tables", delete=[["-j", "A"]], insert=[["-j", "B"], ["-j", "C"]]),
        [f"ip6tables -w {words}" for words in ("-I INPUT -j B", "-I INPUT -j C", "-D INPUT -j A")],
    ),
]


@pytest.mark.parametrize(("do", "expected"), CALLS)
def test_each_verb_is_one_command(
    do: t.Callable[[], None], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def run(*command: str, stdin: str = "") -> str:
        ran.append(" ".join(command) + (f" <{stdin}" if stdin else ""))
        return ""

    monkeypatch.setattr(files_firewall, "run", run)
    do()
    assert ran == expected


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("nft", "nft -c -f {}.corral-new"),
        ("iptables", "iptables-restore --test <text"),
        ("ip6tables", "ip6tables-restore --test <text"),
        ("", None),
    ],
)
def test_the_program_that_reads_a_file_accepts_it_first(
    program: str, command: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    path = tmp_path / "rules"

    def run(*words: str, stdin: str = "") -> str:
        assert not path.exists()
        ran.append(" ".join(words) + (f" <{stdin}" if stdin else ""))
        return ""

    monkeypatch.setattr(files_firewall, "run", run)
    files_firewall.write(str(path), "text", program)
    assert ran == ([command.format(path)] if command else [])
    assert path.read_text() == "text"


def test_a_file_that_the_configuration_includes_is_checked_within_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[object, ...]] = []
    monkeypatch.setattr(files_firewall, "run", lambda *words, stdin="": ran.append((*words, stdin)))
    files_firewall.write(str(tmp_path / "ours"), "text", "nft", (CONFIG, "all\ntext"))
    assert ran == [("nft", "-I", "/etc", "-c", "-f", "-", "all\ntext")]
    assert (tmp_path / "ours").read_text() == "text"
