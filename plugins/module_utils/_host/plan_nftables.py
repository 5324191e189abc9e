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
from ansible_collections.corral.virt.plugins.module_utils._host.plan_firewall_steps import (
    ChangeNftables,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import HostStep, WriteFile
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
_CHAIN = re.compile(r"\bchain\s+([\w.-]+(?:[ \t]+[\w.-]+){0,2})")  # in a table; with family and table elsewhere
_VERSIONS = ((4, "ip", ("ip", "inet")), (6, "ip6", ("ip6", "inet")))


def decide(wanted: FirewallSpec, facts: Nftables) -> Draft:
    """Steps and their changes; raises Refused for a chain that would drop again after a boot."""
    closed = closed_chains(facts.ruleset)
    # A chain that somebody makes at run time is not ours to keep alive: made at boot, it would stand in that one's way.
    chains = [one for one in closed if defines(facts.all_text, one)]
    opened = [one for one in closed if rules(wanted, one["family"])]
    _refuse_what_would_not_last(wanted, facts, [one for one in opened if one not in chains])
    passing = closed_chains(facts.ruleset, "forward") if wanted.bridges else []
    forward = [one for one in passing if defines(facts.all_text, one)]
    places = [
        *((_address(chain), rule) for chain in chains for rule in rules(wanted, chain["family"])),
        *((_address(chain), rule) for chain in chains for rule in _served(wanted)),
        *((_address(chain), rule) for chain in forward for rule in _forwarded(wanted)),
    ]
    chains = [*chains, *forward]
    inserts = [f"insert rule {place} {rule}" for place, rule in places]
    lines = _at_boot(wanted, facts, chains, inserts)
    drafts = (
        _running(wanted, facts, inserts, [place for place, _rule in places]),
        _drop_in(facts, lines),
        _include(facts, lines),
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


def defines(text: str, chain: Chain) -> bool:
    """True if the text of nftables files defines a chain's table, `ip` without a family, and a chain of that name."""
    tables = [(kind or "ip", name) for kind, name in _TABLE.findall(text)]
    named = {word for words in _CHAIN.findall(text) for word in words.split()}
    return (chain["family"], chain["table"]) in tables and chain["name"] in named


def _address(chain: Chain) -> str:
    return f"{chain['family']} {chain['table']} {chain['name']}"


def _refuse_what_would_not_last(wanted: FirewallSpec, facts: Nftables, undefined: t.Sequence[Chain]) -> None:
    lost = [_address(one) for one in undefined if drops_the_rest(facts.ruleset, one)]
    if lost:
        raise Refused(
            f"cannot open {wanted.text}: the nftables chain {' and '.join(lost)} drops incoming traffic, but neither "
            f"{facts.config} nor a file that it includes defines it, so the rules would be lost at the next "
            "boot; define the chain there, or set ports (in role firewall: firewall_ports) to [] and open "
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


def _at_boot(wanted: FirewallSpec, facts: Nftables, chains: t.Sequence[Chain], inserts: t.Sequence[str]) -> list[str]:
    """The lines that add the rules at boot."""
    lines = [*inserts]
    if not wanted.purge:
        here = tuple(f"insert rule {_address(chain)} " for chain in chains)
        before = [line for line in facts.drop_in.splitlines() if line.startswith(here)]
        lines += [line for line in before if line not in inserts]
    return [*_made(chains, lines), *lines]


def _drop_in(facts: Nftables, lines: t.Sequence[str]) -> Draft:
    """The write of the file with these lines, if the configuration can be loaded with them."""
    head = f"# Written by the role corral.virt.firewall; included by {facts.config}.\n"
    text = head + "".join(f"{line}\n" for line in lines)
    if facts.drop_in == text or not (lines or facts.drop_in):
        return [], []
    before = [line for line in facts.drop_in.splitlines() if not line.startswith("#")]
    step = WriteFile(DROP_IN, text)
    if lines:
        others = "".join(line for line in _ended(facts.config_text) if not _is_include(line))
        step = WriteFile(DROP_IN, text, checked_by="nft", checked_within=(facts.config, others + text))
    return [step], [Change(DROP_IN, before or None, [*lines] or None)]


def _made(chains: t.Sequence[Chain], lines: t.Sequence[str]) -> list[str]:
    """Lines that make the chains of rules where the configuration has them no more; others stay as they are.

    A file with a rule for a chain that does not exist is not loaded, and neither is the one that includes it.
    """
    used = [chain for chain in chains if any(line.startswith(f"insert rule {_address(chain)} ") for line in lines)]
    made = [(f"add table {one['family']} {one['table']}", f"add chain {_address(one)}") for one in used]
    return [*dict.fromkeys(line for both in made for line in both)]


def _include(facts: Nftables, lines: t.Sequence[str]) -> Draft:
    """The line that includes this file at the end of the configuration: what follows could not make its chains anew."""
    text = _ended(facts.config_text)
    first = next((at for at, line in enumerate(text) if _is_include(line)), len(text))
    here, others = text[first:], [line for line in text[first:] if not _is_include(line)]
    if not lines or (here and not any(line.split("#")[0].strip() for line in here[1:])):
        return [], []
    last = f'include "{DROP_IN}"'
    why = f"include {DROP_IN}{' at its end' if here else ''}"
    step = WriteFile(facts.config, "".join([*text[:first], *others, f"{last}\n"]), why, checked_by="nft")
    before, after = ([line.rstrip("\n") for line in some] for some in (here, [*others, last]))
    return [step], [Change(facts.config, before or None, after)]


def _ended(text: str) -> list[str]:
    """Lines with their ends; also the last one has one."""
    return [f"{line}\n" for line in text.removesuffix("\n").split("\n")] if text else []


def _is_include(line: str) -> bool:
    return line.strip() == f'include "{DROP_IN}"'
