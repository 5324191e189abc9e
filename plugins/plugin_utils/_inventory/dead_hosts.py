# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hypervisors may be treated as dead. Pure.

A dead host must not run a guest while another of its name is created or started elsewhere. Silence does not prove that:
a cut network is silent, too. So users name a dead host twice, and a host with any sign of life is not dead.
"""

from __future__ import annotations

import re
import typing as t

import yaml

from ansible_collections.corral.virt.plugins.module_utils._core.output import agree

# What ssh says where nothing answers. UNKNOWN is a machine that a jump host cannot reach. All else may come from a
# machine that runs.
_SILENCE = re.compile(
    r"connection timed out|no route to host|host is (down|unreachable)|network is unreachable"
    r"|could not resolve|name or service not known|(closed|reset) by unknown",
    re.IGNORECASE,
)
_BANNER = "during banner exchange"  # somebody took the connection


def named(value: t.Any) -> list[str]:
    """Host names in an extra variable, which may be comma-separated text, YAML, or a list of these."""
    if isinstance(value, str):
        value = yaml.safe_load(value) if value.lstrip().startswith("[") else value.split(",")
        return [str(name).strip() for name in value or () if str(name).strip()]
    return [name for each in value or () for name in named(each if isinstance(each, list) else str(each))]


def unknown(gone: t.Sequence[str], group: str, members: t.Collection[str]) -> t.Iterator[str]:
    """A problem for each name that is not a host of the group."""
    for name in gone:
        if name not in members:
            yield f"gone: {name} is not a host of the group {group}; choose one of {', '.join(sorted(members))}"


def alive(answers: t.Mapping[str, str | None]) -> t.Iterator[str]:
    """A problem for each host that is alive; `answers` are login errors by host, None if the login worked."""
    for name, why in answers.items():
        if why is None:
            yield f"gone: {name} answers, so its guests may run; remove it from gone"
        elif _BANNER in why or not _SILENCE.search(why):
            remedy = "restore access to it, or switch it off"
            yield (
                f"gone: {name} may be alive ({' '.join(why.split()) or 'it is not known why it cannot be reached'}); "
                f"{remedy}"
            )


def unconfirmed(gone: t.Sequence[str], confirm: t.Sequence[str], argument: str = "confirm") -> str | None:
    """The problem if `confirm`, the value of that argument, does not repeat the names in `gone`; None if it does."""
    if set(gone) == set(confirm):
        return None
    if not gone:
        return f"{argument}: it repeats the names in gone, which is empty"
    hosts, again = ", ".join(gone), f"-e {argument}={','.join(gone)}"
    wrong = f", and not {','.join(confirm)}" if confirm else ""
    risk = "a guest that still runs there may end up running twice, or sharing its name with another"
    return (
        f"gone: {hosts} did not answer, which does not prove that {agree(len(gone), 'it is', 'they are')} off; {risk}. "
        f"Switch {agree(len(gone), 'it', 'them')} off, and then: {again}{wrong}"
    )
