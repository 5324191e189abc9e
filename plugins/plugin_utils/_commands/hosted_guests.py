# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests from the answers of their hypervisors. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._core.output import some_of
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable
from ansible_collections.corral.virt.plugins.plugin_utils._report.wording import enumerated

_CLOCK_END_S = 2**40
SHOWN = 20  # names in a message


@dataclasses.dataclass(frozen=True)
class Hosts:
    """The hypervisors: those that answered, those that did not, and those that `--limit` excludes."""

    group: str
    answered: tuple[str, ...]
    silent: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    # other hosts of the inventory, by `destination`
    strangers: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    # of those that answered, in seconds since 1970
    clocks: t.Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"none of {some_of(self.answered, SHOWN)} has it" if self.answered else "no hypervisor answered"]
        if self.silent:
            parts.append(f"{enumerated(self.silent)} could not be reached and may have it")
        if self.hidden:
            parts.append(f"--limit excludes {some_of(self.hidden, SHOWN)}")
        return "; ".join(parts)


@dataclasses.dataclass(frozen=True)
class HostedGuest:
    """A guest as one host has it."""

    host: str
    name: str
    uuid: str
    state: str
    tags: tuple[str, ...] = ()
    moving: bool = False  # a migration of it is recorded


def answers(results: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Results of the hosts that answered.

    Raises BadInput, naming each host, for results that `virt_state_info` and `virt_host_info` never return.
    """
    answered = {
        host: _guests_of(result)
        for host, result in results.items()
        if isinstance(result, dict) and ("domains" in result or "host" in result) and not result.get("failed")
    }
    odd = [host for host, result in answered.items() if not _is_answer(result)]
    if odd:
        remedy = "inspect the host, or exclude it: --limit"
        raise BadInput(
            printable([f"{host}: its list of guests cannot be read; {remedy} 'all:!{host}'" for host in odd])
        )
    return answered


def _guests_of(result: t.Mapping[str, t.Any]) -> t.Mapping[str, t.Any]:
    """The guests of a `virt_host_info` result, in the form of `virt_state_info`; the latter's as they are."""
    if "domains" in result or not isinstance(result["host"], dict):
        return {"domains": None, **result}
    return {"domains": result["host"].get("guests")}


def _is_answer(result: t.Mapping[str, t.Any]) -> bool:
    domains, clock = result["domains"], result.get("clock") or 0.0
    return (
        isinstance(domains, list)
        and all(map(_is_guest, domains))
        and isinstance(clock, (int, float))
        and 0 <= clock < _CLOCK_END_S
    )


def _is_guest(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    texts, tags = [item.get(key) for key in ("name", "uuid", "state")], item.get("tags") or []
    return isinstance(tags, list) and all(isinstance(text, str) for text in (*texts, *tags))


def copies(results: t.Mapping[str, t.Any]) -> list[HostedGuest]:
    """Guests in results of `virt_state_info`, by host. Guests with names that libvirt does not allow are left out."""
    there = []
    for host, result in sorted(results.items()):
        for item in result["domains"]:
            if _is_name(item["name"]):
                tags = tuple(item.get("tags") or ())
                there.append(
                    HostedGuest(host, item["name"], item["uuid"], item["state"], tags, item.get("moving") is True)
                )
    return there


def _is_name(name: object) -> bool:
    try:
        return bool(units.check_existing_name(name, what="guest"))
    except BadInput:
        return False
