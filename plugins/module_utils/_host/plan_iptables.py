# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of iptables and ip6tables at the top of INPUT: running, and in the file for the boot."""

from __future__ import annotations

import dataclasses
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._host.model_firewall import (
    GUEST_PORTS,
    FirewallSpec,
    Iptables,
    IptablesFamily,
    comment_in,
    is_ours,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_firewall_steps import (
    ChangeIptables,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import HostStep, WriteFile

Draft = tuple[list[HostStep], list[Change]]
_APPEND, _PASSING = "-A INPUT ", "-A FORWARD "
_BITS = {4: 32, 6: 128}


def decide(wanted: FirewallSpec, facts: Iptables) -> Draft:
    """The steps that open the ports, and the changes that they make."""
    steps: list[HostStep] = []
    changes: list[Change] = []
    for family in facts.families:
        new, passing = rules(wanted, family.version), forward_rules(wanted)
        for draft in (
            _running(wanted, family, new),
            _passing(wanted, family, passing),
            _lasting(wanted, family, new, passing),
        ):
            steps += draft[0]
            changes += draft[1]
    return steps, changes


def rules(wanted: FirewallSpec, version: int) -> list[str]:
    """INPUT rules as `iptables -S` prints them, without `-A INPUT`."""
    found = []
    for protocol, ports in sorted(wanted.ports.items()) if wanted.admits(version) else ():
        joined = ",".join(ports).replace("-", ":")
        accept = f"-p {protocol} -m multiport --dports {joined} {_accept(wanted)}"
        sources = [_full(source, version) for source in wanted.sources[version]]
        found += [accept] if wanted.everybody else [f"-s {one} {accept}" for one in sources]
    for bridge in _bridges(wanted):
        for protocol, ports in sorted(GUEST_PORTS.items()):
            found.append(f"-i {bridge} -p {protocol} -m multiport --dports {','.join(ports)} {_accept(wanted)}")
    return found


def forward_rules(wanted: FirewallSpec) -> list[str]:
    """FORWARD rules for packets of libvirt's guests and their answers, without `-A FORWARD`."""
    answers = "-m conntrack --ctstate RELATED,ESTABLISHED "
    ends = {"-i": "", "-o": answers}
    return [f"{end} {one} {state}{_accept(wanted)}" for one in _bridges(wanted) for end, state in ends.items()]


def _accept(wanted: FirewallSpec) -> str:
    return f'-m comment --comment "{wanted.comment}" -j ACCEPT'


def _bridges(wanted: FirewallSpec) -> list[str]:
    return [one.replace("*", "+") for one in wanted.bridges]


def with_rules(text: str, new: t.Sequence[str], *, passing: t.Sequence[str] = (), purge: bool = True) -> str:
    """A rules file with exactly our rules before all others of its filter table.

    Without `purge`, our previous rules stay, too. A file without that table stays as it is.
    """
    lines = text.splitlines()
    if "*filter" not in lines:
        return text
    wanted = [*(_APPEND + rule for rule in new), *(_PASSING + rule for rule in passing)]
    words, ours = [shlex.split(line) for line in wanted], _ours(lines)
    gone = ours if purge else [line for line in ours if shlex.split(line) in words]
    if not wanted and not gone:
        return text
    lines = [line for line in lines if line not in gone]
    start = lines.index("*filter") + 1
    while start < len(lines) and (lines[start].startswith((":", "#")) or _is_of_libvirt(lines[start])):
        start += 1
    return "\n".join([*lines[:start], *wanted, *lines[start:]]) + "\n"


def _is_of_libvirt(line: str) -> bool:
    """True if a rule jumps to libvirt's chains, which isolate networks: our rules follow them."""
    return "-j LIBVIRT_" in line


def _full(source: str, version: int) -> str:
    return source if "/" in source else f"{source}/{_BITS[version]}"


def _ours(lines: t.Iterable[str]) -> list[str]:
    return [line for line in lines if line.startswith((_APPEND, _PASSING)) and is_ours(comment_in(line, "--comment"))]


def _running(wanted: FirewallSpec, family: IptablesFamily, new: t.Sequence[str]) -> Draft:
    return _exchanged(wanted, family, family.running, new, ChangeIptables(family.tool, "", (), ()))


def _passing(wanted: FirewallSpec, family: IptablesFamily, new: t.Sequence[str]) -> Draft:
    there = [line for line in family.forward if line.startswith(_PASSING)]
    at = 1 + max((at for at, line in enumerate(there, 1) if _is_of_libvirt(line)), default=0)
    return _exchanged(wanted, family, there, new, ChangeIptables(family.tool, "", (), (), "FORWARD", at))


def _exchanged(
    wanted: FirewallSpec, family: IptablesFamily, lines: t.Sequence[str], new: t.Sequence[str], step: ChangeIptables
) -> Draft:
    there = [tuple(shlex.split(line)[2:]) for line in _ours(lines)]
    words = [tuple(shlex.split(rule)) for rule in new]
    stale = [rule for rule in there if rule not in words] if wanted.purge else []
    missing = [rule for rule in words if rule not in there]
    if not stale and not missing:
        return [], []
    step = dataclasses.replace(step, opens=wanted.text if missing else "", delete=tuple(stale), insert=tuple(missing))
    before = [shlex.join(rule) for rule in stale] or None
    after = [shlex.join(rule) for rule in missing] or None
    where = f"{family.tool}.running{'' if step.chain == 'INPUT' else '.forward'}"
    return [step], [Change(where, before, after)]


def _lasting(wanted: FirewallSpec, family: IptablesFamily, new: t.Sequence[str], passing: t.Sequence[str]) -> Draft:
    if not family.path:
        return [], []
    text = with_rules(family.text, new, passing=passing, purge=wanted.purge)
    if text == family.text:
        return [], []
    before, after = _ours(family.text.splitlines()), _ours(text.splitlines())
    step = WriteFile(family.path, text, checked_by=family.tool)
    return [step], [Change(family.path, before or None, after or None)]
