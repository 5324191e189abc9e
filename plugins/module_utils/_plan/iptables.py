# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Rules of iptables and ip6tables, first in INPUT: running, and in the file for the boot."""

from __future__ import annotations

import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._changes import Change
from ansible_collections.corral.virt.plugins.module_utils._model.firewall import (
    FirewallSpec,
    Iptables,
    IptablesFamily,
)
from ansible_collections.corral.virt.plugins.module_utils._plan.firewall_comment import comment_in, is_ours
from ansible_collections.corral.virt.plugins.module_utils._plan.host_steps import (
    ChangeIptables,
    HostStep,
    WriteFile,
)

__all__ = ["decide", "rules", "with_rules"]

Draft = tuple[list[HostStep], list[Change]]
_APPEND = "-A INPUT "
_BITS = {4: 32, 6: 128}


def decide(wanted: FirewallSpec, facts: Iptables) -> Draft:
    """Steps and what they change."""
    steps: list[HostStep] = []
    changes: list[Change] = []
    for family in facts.families:
        new = rules(wanted, family.version)
        for draft in (_running(wanted, family, new), _lasting(wanted, family, new)):
            steps += draft[0]
            changes += draft[1]
    return steps, changes


def rules(wanted: FirewallSpec, version: int) -> list[str]:
    """As `iptables -S` prints them, without `-A INPUT`."""
    if not wanted.admits(version):
        return []
    found = []
    for protocol, ports in sorted(wanted.ports.items()):
        joined = ",".join(ports).replace("-", ":")
        mark = f'-m comment --comment "{wanted.comment}"'
        accept = f"-p {protocol} -m multiport --dports {joined} {mark} -j ACCEPT"
        sources = [_full(source, version) for source in wanted.sources[version]]
        found += [accept] if wanted.everybody else [f"-s {one} {accept}" for one in sources]
    return found


def with_rules(text: str, new: t.Sequence[str], *, purge: bool = True) -> str:
    """A rules file with exactly our rules in front of all others of its filter table.

    Without `purge` also with those of before. A file without that table stays as it is.
    """
    lines = text.splitlines()
    if "*filter" not in lines:
        return text
    ours = _ours(lines)
    wanted = [shlex.split(_APPEND + rule) for rule in new]
    gone = ours if purge else [line for line in ours if shlex.split(line) in wanted]
    if not new and not gone:
        return text
    lines = [line for line in lines if line not in gone]
    start = lines.index("*filter") + 1
    while start < len(lines) and lines[start].startswith((":", "#")):
        start += 1
    return "\n".join([*lines[:start], *(_APPEND + rule for rule in new), *lines[start:]]) + "\n"


def _full(source: str, version: int) -> str:
    return source if "/" in source else f"{source}/{_BITS[version]}"


def _ours(lines: t.Iterable[str]) -> list[str]:
    return [line for line in lines if line.startswith(_APPEND) and is_ours(comment_in(line, "--comment"))]


def _running(wanted: FirewallSpec, family: IptablesFamily, new: t.Sequence[str]) -> Draft:
    there = [tuple(shlex.split(line)[2:]) for line in _ours(family.running)]
    words = [tuple(shlex.split(rule)) for rule in new]
    stale = [rule for rule in there if rule not in words] if wanted.purge else []
    missing = [rule for rule in words if rule not in there]
    if not stale and not missing:
        return [], []
    step = ChangeIptables(family.tool, wanted.text if missing else "", tuple(stale), tuple(missing))
    before = [shlex.join(rule) for rule in stale] or None
    after = [shlex.join(rule) for rule in missing] or None
    return [step], [Change(f"{family.tool}.running", before, after)]


def _lasting(wanted: FirewallSpec, family: IptablesFamily, new: t.Sequence[str]) -> Draft:
    if not family.path:
        return [], []
    text = with_rules(family.text, new, purge=wanted.purge)
    if text == family.text:
        return [], []
    before, after = _ours(family.text.splitlines()), _ours(text.splitlines())
    step = WriteFile(family.path, text, checked_by=family.tool)
    return [step], [Change(family.path, before or None, after or None)]
