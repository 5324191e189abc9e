# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which host of a play may work on a guest: the one that has it, or the only one that would create it. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._report.wording import enumerated

# of `virt_domain`, that make a guest which is not there
MAKING_STATES = ("present", "running", "shutdown", "paused", "destroyed")
ASKED_STATES = (*MAKING_STATES, "reset", "rebooted")  # `absent` means every host


@dataclasses.dataclass(frozen=True)
class Asked:
    """The answer of a host of the play: its guests' names, or None and the reason.

    `makes` are the guests that the task would create there.
    """

    names: frozenset[str] | None
    makes: frozenset[str] = frozenset()
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class HolderVerdict:
    """`go`: True if the host works on the guest; else `why` not, and whether that is a failure."""

    go: bool
    failed: bool = False
    why: str = ""


def verdict(
    name: str, state: str, here: str, asked: t.Mapping[str, Asked], shown_on: str | None = None
) -> HolderVerdict:
    """The decision for host `here` about a guest. `shown_on` is the guest's host in the inventory."""
    own = asked[here].names if here in asked else None
    holders = sorted(host for host, answer in asked.items() if answer.names is not None and name in answer.names)
    if state not in ASKED_STATES or holders == [here] or (own is None and len(asked) < 2 and shown_on in (None, here)):
        return HolderVerdict(go=True)
    if here in holders:
        return _refused(
            f"cannot tell which {name} is meant: it is on {enumerated(holders)}; select a host with --limit"
        )
    if holders:
        return HolderVerdict(go=False, why=f"{name} is on {enumerated(holders)}")
    if state not in MAKING_STATES:
        return HolderVerdict(go=True)  # the module says that it is not there
    if shown_on is not None and shown_on != here and (shown_on not in asked or asked[shown_on].names is None):
        return _refused(
            f"cannot create {name} on {here}: the inventory shows it on {shown_on}; use that host to change the guest"
        )
    makers = sorted(host for host, answer in asked.items() if host == here or name in answer.makes)
    if len(makers) > 1:
        several = f"none of {enumerated(sorted(asked))} has it, and {len(makers)} hosts would create it"
        return _refused(
            f"cannot create {name} on {here}: {several}; select a host with --limit, or use playbook corral.virt.create"
        )
    silent = sorted(host for host, answer in asked.items() if host != here and answer.names is None)
    if silent:
        reasons = "; ".join(f"{host}: {asked[host].reason}" for host in silent)
        why = f"{enumerated(silent)} could not be queried and may have it ({reasons})"
        return _refused(f"cannot create {name} on {here}: {why}; bring it back online, or exclude it with --limit")
    return HolderVerdict(go=True)


def _refused(why: str) -> HolderVerdict:
    return HolderVerdict(go=False, failed=True, why=f"{why}, or set allow_duplicates: true")
