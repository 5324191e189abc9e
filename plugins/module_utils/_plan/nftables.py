# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Rules of nftables: in every chain that drops what comes in, running and at boot.

Accepting in a table of its own would not override a chain of another table, so the rules go to the
beginning of each such chain.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._changes import Change
from ansible_collections.corral.virt.plugins.module_utils._errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._model.firewall import (
    DROP_IN,
    FirewallSpec,
    Nftables,
)
from ansible_collections.corral.virt.plugins.module_utils._plan.firewall_comment import is_ours
from ansible_collections.corral.virt.plugins.module_utils._plan.host_steps import (
    ChangeNftables,
    HostStep,
    WriteFile,
)

__all__ = ["closed_chains", "decide", "defines", "drops_the_rest", "rules"]

Chain = t.Mapping[str, t.Any]
Ruleset = t.Sequence[t.Mapping[str, t.Any]]
Draft = tuple[list[HostStep], list[Change]]
_FAMILIES = "inet|ip6|ip|bridge|arp|netdev"
_TABLE = re.compile(rf"^\s*(?:add\s+)?table\s+(?:({_FAMILIES})\s+)?([\w.-]+)", re.MULTILINE)
_MAY_DROP = {"drop", "reject", "jump", "goto", "vmap"}
_VERSIONS = ((4, "ip", ("ip", "inet")), (6, "ip6", ("ip6", "inet")))


def decide(wanted: FirewallSpec, facts: Nftables) -> Draft:
    """Steps and what they change; raises Refused for a chain that would drop again after a boot."""
    closed = closed_chains(facts.ruleset)
    # A chain that somebody made at run time is not ours to keep alive, and naming it at boot fails.
    chains = [one for one in closed if defines(facts.all_text, one["family"], one["table"])]
    opened = [one for one in closed if rules(wanted, one["family"])]
    _refuse_what_would_not_last(wanted, facts, [one for one in opened if one not in chains])
    places = [(_address(chain), rule) for chain in chains for rule in rules(wanted, chain["family"])]
    inserts = [f"insert rule {place} {rule}" for place, rule in places]
    drafts = (
        _running(wanted, facts, inserts, [place for place, _rule in places]),
        _drop_in(wanted, facts, chains, inserts),
        _include(facts, inserts),
    )
    steps = [step for draft in drafts for step in draft[0]]
    return steps, [change for draft in drafts for change in draft[1]]


def rules(wanted: FirewallSpec, family: str) -> list[str]:
    """Our rules for one chain, in nftables' words."""
    found = []
    for protocol, ports in sorted(wanted.ports.items()):
        accept = f'{protocol} dport {{ {", ".join(ports)} }} accept comment "{wanted.comment}"'
        if wanted.everybody:
            found.append(accept)
            continue
        for version, word, families in _VERSIONS:
            if wanted.sources[version] and family in families:
                sources = ", ".join(wanted.sources[version])
                found.append(f"{word} saddr {{ {sources} }} {accept}")
    return found


def closed_chains(ruleset: Ruleset) -> list[Chain]:
    """Chains that may drop what comes to this host: by policy, a rule, or where a rule leads."""
    chains = [item["chain"] for item in ruleset if item.get("chain", {}).get("hook") == "input"]
    filters = [one for one in chains if one["type"] == "filter"]
    ours = [one for one in filters if one["family"] in ("inet", "ip", "ip6")]
    return [one for one in ours if _may_drop(ruleset, one)]


def drops_the_rest(ruleset: Ruleset, chain: Chain) -> bool:
    """Whether a chain drops whatever it did not accept.

    By policy, by a rule without a condition, or where such a rule leads.
    """
    if chain.get("policy") == "drop":
        return True
    for rule in _rules_of(ruleset, chain):
        verdict = set(rule) - {"counter", "log"}
        if verdict in ({"drop"}, {"reject"}):
            return True
        if verdict in ({"jump"}, {"goto"}):
            target = rule[verdict.pop()]["target"]
            if drops_the_rest(ruleset, {**chain, "name": target}):
                return True
    return False


def defines(text: str, family: str, table: str) -> bool:
    """Whether a file of nftables defines a table; without a family it is ip."""
    return (family, table) in [(kind or "ip", name) for kind, name in _TABLE.findall(text)]


def _may_drop(ruleset: Ruleset, chain: Chain) -> bool:
    verdicts = {key for rule in _rules_of(ruleset, chain) for key in rule}
    return chain.get("policy") == "drop" or bool(verdicts & _MAY_DROP)


def _rules_of(ruleset: Ruleset, chain: Chain) -> list[dict[str, t.Any]]:
    """The rules of a chain, each as {kind of expression: its content}."""
    place = (chain["family"], chain["table"], chain["name"])
    every = [item["rule"] for item in ruleset if "rule" in item]
    its = [one for one in every if (one["family"], one["table"], one["chain"]) == place]
    return [{key: value for part in one["expr"] for key, value in part.items()} for one in its]


def _address(chain: Chain) -> str:
    return f"{chain['family']} {chain['table']} {chain['name']}"


def _refuse_what_would_not_last(wanted: FirewallSpec, facts: Nftables, undefined: t.Sequence[Chain]) -> None:
    lost = [_address(one) for one in undefined if drops_the_rest(facts.ruleset, one)]
    if lost:
        raise Refused(
            f"cannot open {wanted.text}: the nftables chain {' and '.join(lost)} drops incoming traffic, but neither "
            f"{facts.config} nor a file that it includes defines its table, so the rules would be lost at the next "
            "boot; define the table there, or set ports (in role firewall: firewall_ports) to [] and open "
            f"{wanted.text} where that chain is defined"
        )


def _running(wanted: FirewallSpec, facts: Nftables, inserts: t.Sequence[str], places: t.Sequence[str]) -> Draft:
    """Rules of ours are known by their comment, which tells ports and sources, and by their chain."""
    current, stale = _ours(facts.ruleset, wanted.comment)
    stale = stale if wanted.purge else []
    if sorted(map(_address_of_rule, current)) == sorted(places) and not stale:
        return [], []
    gone = current + stale
    deletes = [f"delete rule {_address_of_rule(rule)} handle {rule['handle']}" for rule in gone]
    change = Change(
        "nftables.running",
        [f"{_address_of_rule(rule)}: {rule['comment']}" for rule in gone] or None,
        [line.removeprefix("insert rule ") for line in inserts] or None,
    )
    return [ChangeNftables(wanted.text if inserts else "", (*deletes, *inserts))], [change]


def _ours(ruleset: Ruleset, comment: str) -> tuple[list[Chain], list[Chain]]:
    """Our rules that are as wanted now, and those of before."""
    every = [item["rule"] for item in ruleset if "rule" in item]
    ours = [rule for rule in every if is_ours(str(rule.get("comment")))]
    current = [rule for rule in ours if rule["comment"] == comment]
    return current, [rule for rule in ours if rule["comment"] != comment]


def _address_of_rule(rule: Chain) -> str:
    return f"{rule['family']} {rule['table']} {rule['chain']}"


def _drop_in(wanted: FirewallSpec, facts: Nftables, chains: t.Sequence[Chain], inserts: t.Sequence[str]) -> Draft:
    """The file that adds the rules at boot."""
    lines = [*inserts]
    if not wanted.purge:
        here = tuple(f"insert rule {_address(chain)} " for chain in chains)
        before = [line for line in facts.drop_in.splitlines() if line.startswith(here)]
        lines += [line for line in before if line not in inserts]
    head = f"# Written by the role corral.virt.firewall; included by {facts.config}.\n"
    text = head + "".join(f"{line}\n" for line in lines)
    if facts.drop_in == text or not (inserts or facts.drop_in):
        return [], []
    before = [line for line in facts.drop_in.splitlines() if not line.startswith("#")]
    return [WriteFile(DROP_IN, text)], [Change(DROP_IN, before or None, lines or None)]


def _include(facts: Nftables, inserts: t.Sequence[str]) -> Draft:
    """That the configuration reads that file."""
    line = f'include "{DROP_IN}"'
    text = facts.config_text
    if not inserts or line in text.splitlines():
        return [], []
    end = "" if text.endswith("\n") or not text else "\n"
    why = f"include {DROP_IN}"
    step = WriteFile(facts.config, f"{text}{end}{line}\n", why, checked_by="nft")
    return [step], [Change(facts.config, None, [line])]
