# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps of the host's firewall, as data with a readable text."""

from __future__ import annotations

import dataclasses

from ansible_collections.corral.virt.plugins.module_utils._host.model_firewall import MARK
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import HostStep


@dataclasses.dataclass(frozen=True)
class ChangeNftables(HostStep):
    """Replace our rules in the running nftables in one transaction."""

    opens: str  # ports; empty where rules only go
    commands: tuple[str, ...] = dataclasses.field(repr=False)

    def __str__(self) -> str:
        return _exchange(self.opens, len(self.commands), "nftables")


@dataclasses.dataclass(frozen=True)
class AddFirewalldRule(HostStep):
    """Add a port or a rich rule to a zone."""

    zone: str
    kind: str  # port or rich-rule
    rule: str
    permanent: bool

    def __str__(self) -> str:
        where = "permanent" if self.permanent else "running"
        return f"add {self.kind} {self.rule} to the {where} zone {self.zone}"


@dataclasses.dataclass(frozen=True)
class ReloadFirewalld(HostStep):
    """Reload firewalld's configuration."""

    template = "reload firewalld ({0.why})"
    why: str


@dataclasses.dataclass(frozen=True)
class MoveToZone(HostStep):
    """Put a network device into a zone of the running firewalld."""

    template = "put {0.device} into the running zone {0.zone}"
    zone: str
    device: str


@dataclasses.dataclass(frozen=True)
class AddUfwRule(HostStep):
    """Add a rule in the form of `ufw show added`."""

    template = "add ufw rule: {0.rule}"
    rule: str


@dataclasses.dataclass(frozen=True)
class DeleteUfwRule(HostStep):
    """Delete a ufw rule of ours."""

    template = "delete ufw rule: {0.rule}"
    rule: str


@dataclasses.dataclass(frozen=True)
class ChangeIptables(HostStep):
    """Replace our rules in a running chain; each rule is a list of words."""

    tool: str  # iptables or ip6tables
    opens: str  # ports; empty where rules only go
    delete: tuple[tuple[str, ...], ...] = dataclasses.field(repr=False)
    insert: tuple[tuple[str, ...], ...] = dataclasses.field(repr=False)
    chain: str = "INPUT"
    at: int = 1  # where they begin

    def __str__(self) -> str:
        chain = "" if self.chain == "INPUT" else f" ({self.chain})"
        return f"{_exchange(self.opens, len(self.delete), self.tool)}{chain}"


def _exchange(opens: str, deleted: int, firewall: str) -> str:
    if opens:
        return f"open {opens} in the running {firewall}"
    return f"remove {deleted} rule{'' if deleted == 1 else 's'} of {MARK} from the running {firewall}"
