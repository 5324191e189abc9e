# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules that a host's firewall needs to admit sources to ports. Other rules stay."""

from __future__ import annotations

import ipaddress
import re
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._host import plan_iptables, plan_nftables
from ansible_collections.corral.virt.plugins.module_utils._host.model_firewall import (
    EVERYBODY,
    GUEST_PORTS,
    GUEST_ZONE,
    MARK,
    Facts,
    Firewalld,
    FirewallSpec,
    Iptables,
    Nftables,
    Services,
    Ufw,
    comment_in,
    is_ours,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_firewall_steps import (
    AddFirewalldRule,
    AddUfwRule,
    DeleteUfwRule,
    MoveToZone,
    ReloadFirewalld,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import HostStep

Network = t.Union[ipaddress.IPv4Network, ipaddress.IPv6Network]
_PORT = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?/(tcp|udp)")
_LAST_PORT = 65535
_LOGGED = {"log", "log-all"}  # words of a ufw rule
_VERDICTS = {"allow", "deny", "limit", "reject"}
_BRIDGE = re.compile(r"(?=.{1,15}$)[A-Za-z0-9_][A-Za-z0-9_.-]*\*?")


def spec(
    ports: t.Sequence[str],
    sources: t.Sequence[str],
    resolved: t.Mapping[str, t.Sequence[str]],
    *,
    bridges: t.Sequence[str] = (),
    purge: bool,
) -> FirewallSpec:
    """The requested rules; raises BadInput with every problem.

    `resolved`: addresses of names from this host's resolver. They are a guess, so with any of them,
    as without `purge`, rules are added and none is removed.
    """
    problems: list[str] = []
    by_protocol = _ports(ports, problems)
    wanted = [source.strip() for source in sources]
    everybody = EVERYBODY in wanted
    named = [address for addresses in resolved.values() for address in peer_addresses(addresses)]
    networks = _networks([source for source in wanted if source != EVERYBODY], problems)
    problems += [
        f"bridges: {name!r} is no network device; use names such as virbr1, or virbr* for all that libvirt names itself"
        for name in bridges
        if not _BRIDGE.fullmatch(name)
    ]
    if problems:
        raise BadInput(problems)
    admitted = set() if everybody else {*networks, *map(ipaddress.ip_network, named)}
    ordered = sorted(admitted, key=str)
    return FirewallSpec(
        ports={protocol: tuple(found) for protocol, found in by_protocol.items()},
        sources={v: tuple(_short(net) for net in ordered if net.version == v) for v in (4, 6)},
        everybody=everybody,
        bridges=tuple(sorted(set(bridges))),
        purge=purge and not resolved,
    )


def peer_addresses(found: t.Iterable[str]) -> list[str]:
    """Addresses of another host: neither link-local ones with a zone nor loopback."""
    plain = [address for address in sorted(set(found)) if "%" not in address]
    return [address for address in plain if not ipaddress.ip_address(address).is_loopback]


def unknown(resolved: t.Mapping[str, t.Sequence[str]]) -> list[str]:
    """Names without an address of another host."""
    return [name for name, addresses in resolved.items() if not peer_addresses(addresses)]


def manager(services: Services) -> str | None:
    """The active firewall of the host; None if there is none."""
    order = ("firewalld", "ufw", "nftables", "iptables")
    return next((name for name in order if getattr(services, name)), None)


def decide(wanted: FirewallSpec, facts: Facts | None) -> tuple[list[HostStep], list[Change]]:
    """Steps and their changes; raises Refused. Without a firewall there is nothing to open."""
    if isinstance(facts, Nftables):
        return plan_nftables.decide(wanted, facts)
    if isinstance(facts, Firewalld):
        return firewalld(wanted, facts)
    if isinstance(facts, Ufw):
        return ufw(wanted, facts)
    if isinstance(facts, Iptables):
        return plan_iptables.decide(wanted, facts)
    return [], []


def firewalld(wanted: FirewallSpec, facts: Firewalld) -> tuple[list[HostStep], list[Change]]:
    """Steps and changes for firewalld, which cannot mark rules as ours: none is removed. Raises Refused.

    libvirt's own zone admits guests; only a bridge that libvirt made before firewalld ran is not in it.
    """
    steps: list[HostStep] = []
    changes: list[Change] = []
    astray = [bridge for bridge, zone in sorted(facts.zones.items()) if not zone]
    if wanted.bridges and not facts.has_guest_zone:
        _refuse_what_a_reload_loses(facts)
        steps.append(ReloadFirewalld(f"it does not know zone {GUEST_ZONE} of libvirt yet"))
        changes.append(Change("firewalld.zones", None, [GUEST_ZONE]))
    if astray:
        steps += [MoveToZone(GUEST_ZONE, bridge) for bridge in astray]
        changes.append(Change(f"firewalld.{GUEST_ZONE}.interfaces", None, astray))
    for permanent, known in ((False, facts.running), (True, facts.permanent)):
        new = [(kind, rule) for kind, rule in _firewalld_rules(wanted) if not _is_open(rule, known)]
        steps += [AddFirewalldRule(facts.zone, kind, rule, permanent) for kind, rule in new]
        if new:
            where = f"firewalld.{facts.zone}.{'permanent' if permanent else 'running'}"
            changes.append(Change(where, None, [rule for _kind, rule in new]))
    return steps, changes


def ufw(wanted: FirewallSpec, facts: Ufw) -> tuple[list[HostStep], list[Change]]:
    """Steps and changes for ufw, where a comment marks our rules; raises Refused.

    ufw has one rule for the same traffic: to add ours would replace that of somebody else, comment and all.
    """
    ours = {" ".join(shlex.split(line)[1:]) for line in facts.added if is_ours(comment_in(line, "comment"))}
    others = {_traffic(line): line for line in facts.added if not is_ours(comment_in(line, "comment"))}
    rules = set(_ufw_rules(wanted))
    theirs = {rule: others[_traffic(rule)] for rule in rules if _traffic(rule) in others}
    _refuse_what_others_deny(wanted, sorted(theirs.values()))
    stale = sorted(ours - rules) if wanted.purge else []
    new = sorted(rules - ours - set(theirs))
    steps = [*map(AddUfwRule, new), *map(DeleteUfwRule, stale)]  # nobody is shut out in between
    return steps, [Change("ufw", stale or None, new or None)] if steps else []


def _ports(ports: t.Sequence[str], problems: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for port in ports:
        parts = _port(port)
        if not parts:
            remedy = "write it as 16514/tcp or 49152-49215/tcp"
            problems.append(f"ports: cannot read {port!r}; {remedy}")
            continue
        same = found.setdefault(parts[0], [])
        if parts[1] not in same:
            same.append(parts[1])
    return found


def _port(text: str) -> tuple[str, str] | None:
    """Protocol, and port or range; None if invalid."""
    found = _span(text.strip())
    if not found:
        return None
    protocol, first, last = found
    return protocol, str(first) if first == last else f"{first}-{last}"


def _span(text: str) -> tuple[str, int, int] | None:
    """Protocol, first and last port; None if the text is no port."""
    match = _PORT.fullmatch(text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    return (match[3], first, last) if match and 0 < first <= last <= _LAST_PORT else None


def _is_open(rule: str, known: t.Collection[str]) -> bool:
    """True if a zone of firewalld has the rule. It joins ports that overlap, so a port may be within a range."""
    wanted = _span(rule)
    return rule in known or any(
        wanted and span and span[0] == wanted[0] and span[1] <= wanted[1] and wanted[2] <= span[2]
        for span in map(_span, known)
    )


def _refuse_what_a_reload_loses(facts: Firewalld) -> None:
    if facts.unsaved:
        raise Refused(
            f"firewalld does not know zone {GUEST_ZONE} of libvirt yet, and a reload would lose what it has only "
            f"until then: {', '.join(sorted(facts.unsaved))}; keep that with `firewall-cmd --runtime-to-permanent`, "
            "or remove it"
        )


def _traffic(rule: str) -> str:
    """A ufw rule without its verdict and comment."""
    words = rule.removeprefix("ufw ").split(" comment ")[0].split()
    return " ".join(word for word in words if word not in _VERDICTS | _LOGGED)


def _refuse_what_others_deny(wanted: FirewallSpec, theirs: t.Sequence[str]) -> None:
    denied = [rule.removeprefix("ufw ").split(" comment ")[0] for rule in theirs if "allow" not in rule.split()]
    if denied:
        raise Refused(
            f"cannot open {wanted.text} in ufw: it has a rule of somebody else for that, which ours would replace: "
            f"{'; '.join(denied)}; remove it with `ufw delete {denied[0]}`, or do not open this"
        )


def _networks(sources: t.Sequence[str], problems: list[str]) -> list[Network]:
    found: list[Network] = []
    remedy = f"use addresses and networks, or {EVERYBODY} for everyone"
    for source in sources:
        try:
            if "%" in source:
                raise ValueError(f"{source!r} is valid on one link only")
            network = ipaddress.ip_network(source)
            if not network.prefixlen:  # ufw and iptables print it as any
                raise ValueError(f"{source!r} is everyone over IPv{network.version}")
            found.append(network)
        except ValueError as error:
            problems.append(f"sources: {error}; {remedy}")
    return found


def _short(network: Network) -> str:
    """A network as firewalls print it: a single address without its prefix length."""
    single = network.num_addresses == 1
    return str(network.network_address) if single else str(network)


def _firewalld_rules(wanted: FirewallSpec) -> t.Iterator[tuple[str, str]]:
    for protocol, ports in sorted(wanted.ports.items()):
        for port in ports:
            if wanted.everybody:
                yield "port", f"{port}/{protocol}"
            for version in (4, 6):
                for source in wanted.sources[version]:
                    who = f'family="ipv{version}" source address="{source}"'
                    what = f'port port="{port}" protocol="{protocol}"'
                    yield "rich-rule", f"rule {who} {what} accept"


def _ufw_rules(wanted: FirewallSpec) -> t.Iterator[str]:
    """Requested rules as `ufw show added` prints them."""
    for protocol, ports in sorted(wanted.ports.items()):
        joined = ",".join(ports).replace("-", ":")
        if wanted.everybody:
            yield f"allow {joined}/{protocol} comment {MARK}"
        for source in (*wanted.sources[4], *wanted.sources[6]):
            yield f"allow from {source} to any port {joined} proto {protocol} comment {MARK}"
    for bridge in wanted.bridges:
        on = f"in on {bridge.replace('*', '+')}"
        for protocol, ports in sorted(GUEST_PORTS.items()):
            yield f"allow {on} to any port {','.join(ports)} proto {protocol} comment {MARK}"
        yield f"route allow {on} comment {MARK}"  # ufw admits answers by itself
