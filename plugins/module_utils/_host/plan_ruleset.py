# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How an nftables ruleset treats packets. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import version

Chain = t.Mapping[str, t.Any]
Ruleset = t.Sequence[t.Mapping[str, t.Any]]
_MAY_DROP = {"drop", "reject", "jump", "goto", "vmap"}
_DHCP, _UDP = 67, ("udp", 17)
_OWN_TABLE = version.number(10, 4)  # before, libvirt accepts for itself in the chains of iptables


def closed_chains(ruleset: Ruleset, hook: str = "input") -> list[Chain]:
    """Filter chains of a hook that may drop packets: by policy, by a rule, or by a jump."""
    chains = [item["chain"] for item in ruleset if item.get("chain", {}).get("hook") == hook]
    filters = [one for one in chains if one["type"] == "filter"]
    ours = [one for one in filters if one["family"] in ("inet", "ip", "ip6")]
    return [one for one in ours if _may_drop(ruleset, one)]


def drops_the_rest(ruleset: Ruleset, chain: Chain) -> bool:
    """True if a chain drops all that it did not accept.

    By policy, by a rule without a condition, or by a jump of such a rule.
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


def shut_off(ruleset: Ruleset, bridge: str, libvirt: int) -> list[str]:
    """Input chains that do not pass a DHCP request from a bridge of libvirt's.

    `virbr*` is a bridge that libvirt has not named yet.
    """
    return [
        f"{chain['family']} {chain['table']} {chain['name']}"
        for chain in closed_chains(ruleset)
        if chain["family"] != "ip6"
        and not (chain["name"] == "INPUT" and libvirt < _OWN_TABLE)
        and not _passes(ruleset, chain, bridge)
    ]


def _passes(ruleset: Ruleset, chain: Chain, bridge: str) -> bool:
    verdict = _verdict(ruleset, chain, bridge)
    return verdict == "accept" or (verdict is None and chain.get("policy") != "drop")


def _verdict(ruleset: Ruleset, chain: Chain, bridge: str) -> str | None:
    """The verdict of a chain on the DHCP request; None if no rule decides."""
    for rule in _expressions_of(ruleset, chain):
        if not all(_holds(part, bridge) for part in rule):
            continue
        last = rule[-1] if rule else {}
        if "accept" in last or "vmap" in last:  # a map may admit it
            return "accept"
        if "drop" in last or "reject" in last:
            return "drop"
        target = (last.get("jump") or last.get("goto") or {}).get("target")
        found = _verdict(ruleset, {**chain, "name": target}, bridge) if target else None
        if found:
            return found
    return None


def _holds(part: t.Mapping[str, t.Any], bridge: str) -> bool:
    """True if a condition is known to hold for the DHCP request, or if this is no condition."""
    if "vmap" in part:
        return "ct" not in part["vmap"].get("key", {})
    match = part.get("match")
    if match is None:
        return True
    left, wanted = match["left"], _values(match["right"])
    key = left.get("meta", {}).get("key") if isinstance(left, dict) else None
    if key in ("iifname", "iif"):
        found = any(_is_named(bridge, str(one)) for one in wanted)
    elif key == "l4proto":
        found = any(one in _UDP for one in wanted)
    elif isinstance(left, dict) and left.get("payload") == {"protocol": "udp", "field": "dport"}:
        found = any(_has_port(one) for one in wanted)
    elif isinstance(left, dict) and left.get("ct", {}).get("key") == "state":
        found = "new" in wanted
    else:
        return False
    return found is (match.get("op") != "!=")


def _values(right: t.Any) -> list[t.Any]:
    """The right side of a match as a list: one value, or the elements of a set."""
    found = right.get("set", [right]) if isinstance(right, dict) else right
    return found if isinstance(found, list) else [found]


def _is_named(bridge: str, pattern: str) -> bool:
    return bridge.startswith(pattern[:-1]) if pattern.endswith("*") else bridge == pattern


def _has_port(value: t.Any) -> bool:
    first, last = value["range"] if isinstance(value, dict) and "range" in value else (value, value)
    return isinstance(first, int) and first <= _DHCP <= last


def _may_drop(ruleset: Ruleset, chain: Chain) -> bool:
    verdicts = {key for rule in _rules_of(ruleset, chain) for key in rule}
    return chain.get("policy") == "drop" or bool(verdicts & _MAY_DROP)


def _rules_of(ruleset: Ruleset, chain: Chain) -> list[dict[str, t.Any]]:
    """The rules of a chain, each as {kind of expression: its content}."""
    place = (chain["family"], chain["table"], chain["name"])
    every = [item["rule"] for item in ruleset if "rule" in item]
    its = [one for one in every if (one["family"], one["table"], one["chain"]) == place]
    return [{key: value for part in one["expr"] for key, value in part.items()} for one in its]


def _expressions_of(ruleset: Ruleset, chain: Chain) -> list[list[dict[str, t.Any]]]:
    """The rules of a chain, each as its conditions and its verdict in order."""
    place, without = (chain["family"], chain["table"], chain["name"]), ("counter", "log", "limit")
    every = [item["rule"] for item in ruleset if "rule" in item]
    its = [one for one in every if (one["family"], one["table"], one["chain"]) == place]
    return [[part for part in one["expr"] if not any(key in part for key in without)] for one in its]
