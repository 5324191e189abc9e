# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of nftables, in every chain that drops incoming packets, running and at boot.

Accepting in a table of our own would not override a chain of another table, so the rules go to the
beginning of each such chain.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._host.model_firewall import (
    DROP_IN,
    GUEST_PORTS,
    FirewallSpec,
    Nftables,
    is_ours,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import (
    ChangeNftables,
    HostStep,
    WriteFile,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_ruleset import (
    Chain,
    Ruleset,
    closed_chains,
    drops_the_rest,
)

__all__ = ["closed_chains", "decide", "defines", "drops_the_rest", "rules"]

Draft = tuple[list[HostStep], list[Change]]
_FAMILIES = "inet|ip6|ip|bridge|arp|netdev"
_TABLE = re.compile(rf"(?:^|;)\s*(?:(?:add|create)\s+)?table\s+(?:({_FAMILIES})\s+)?([\w.-]+)", re.MULTILINE)
_VERSIONS = ((4, "ip", ("ip", "inet")), (6, "ip6", ("ip6", "inet")))


def decide(wanted: FirewallSpec, facts: Nftables) -> Draft:
    """Steps and their changes; raises Refused for a chain that would drop again after a boot."""
    closed = closed_chains(facts.ruleset)
    # A chain that somebody made at run time is not ours to keep alive, and naming it at boot fails.
    chains = [one for one in closed if defines(facts.all_text, one["family"], one["table"])]
    opened = [one for one in closed if rules(wanted, one["family"])]
    _refuse_what_would_not_last(wanted, facts, [one for one in opened if one not in chains])
    passing = closed_chains(facts.ruleset, "forward") if wanted.bridges else []
    forward = [one for one in passing if defines(facts.all_text, one["family"], one["table"])]
    places = [
        *((_address(chain), rule) for chain in chains for rule in rules(wanted, chain["family"])),
        *((_address(chain), rule) for chain in chains for rule in _served(wanted)),
        *((_address(chain), rule) for chain in forward for rule in _forwarded(wanted)),
    ]
    chains = [*chains, *forward]
    inserts = [f"insert rule {place} {rule}" for place, rule in places]
    drafts = (
        _running(wanted, facts, inserts, [place for place, _rule in places]),
        _drop_in(wanted, facts, chains, inserts),
        _include(facts, inserts),
    )
    steps = [step for draft in drafts for step in draft[0]]
    return steps, [change for draft in drafts for change in draft[1]]


def rules(wanted: FirewallSpec, family: str) -> list[str]:
    """Our rules for one chain, in nftables syntax."""
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


def _served(wanted: FirewallSpec) -> list[str]:
    """Rules that admit guests to DHCP and DNS of libvirt's networks."""
    return [
        f'iifname "{bridge}" {protocol} dport {{ {", ".join(ports)} }} accept comment "{wanted.comment}"'
        for bridge in wanted.bridges
        for protocol, ports in sorted(GUEST_PORTS.items())
    ]


def _forwarded(wanted: FirewallSpec) -> list[str]:
    """Rules for packets of guests and their answers. libvirt's own chains still isolate isolated networks."""
    ends = {"iifname": "", "oifname": "ct state established,related "}
    return [
        f'{end} "{bridge}" {state}accept comment "{wanted.comment}"'
        for bridge in wanted.bridges
        for end, state in ends.items()
    ]


def defines(text: str, family: str, table: str) -> bool:
    """True if the text of nftables files defines a table; without a family, `ip`."""
    return (family, table) in [(kind or "ip", name) for kind, name in _TABLE.findall(text)]


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
    """The exchange of our running rules, which are known by their comment and chain."""
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
    """Our rules with that comment, and those with older ones."""
    every = [item["rule"] for item in ruleset if "rule" in item]
    ours = [rule for rule in every if is_ours(str(rule.get("comment")))]
    current = [rule for rule in ours if rule["comment"] == comment]
    return current, [rule for rule in ours if rule["comment"] != comment]


def _address_of_rule(rule: Chain) -> str:
    return f"{rule['family']} {rule['table']} {rule['chain']}"


def _drop_in(wanted: FirewallSpec, facts: Nftables, chains: t.Sequence[Chain], inserts: t.Sequence[str]) -> Draft:
    """The write of the file that adds the rules at boot."""
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
    """The line that includes this file in the configuration."""
    line = f'include "{DROP_IN}"'
    text = facts.config_text
    if not inserts or line in text.splitlines():
        return [], []
    end = "" if text.endswith("\n") or not text else "\n"
    why = f"include {DROP_IN}"
    step = WriteFile(facts.config, f"{text}{end}{line}\n", why, checked_by="nft")
    return [step], [Change(facts.config, None, [line])]
