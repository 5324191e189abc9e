# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps about addresses of guests, in a separate file to keep the payload for hosts small."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import GuestStep, Seen


@dataclasses.dataclass(frozen=True)
class WaitForAddress:
    """Wait for an address of this guest, from that source, after the steps of all guests.

    This is no step: it changes nothing.
    """

    guest: str
    source: str
    timeout_s: int
    boots: bool = True  # it was started for this: one that boots slowly on a busy host has more time

    def asks(self, source: str) -> bool:
        """True if that source is queried."""
        return self.source in ("any", source)

    def timeout_message(self, seen: Seen, *, tried: t.Sequence[str] = (), refused: t.Sequence[str] = ()) -> str:
        """The error without an address: where it was looked for, and which addresses were seen but rejected."""
        if seen.unseen:
            return f"no address of {self.guest}: {seen.unseen}; run again"
        if seen.state == "absent":
            return (
                f"no address of {self.guest}: it was removed in the meantime, or was transient and powered off; run "
                "again to create it"
            )
        if seen.state == "shutdown":
            last = f" ({seen.facts()})" if seen.facts() else ""
            return f"no address of {self.guest}: it powered off in the meantime{last}; start it again"
        facts = [
            f"tried: {', '.join(tried) or self.source}",
            *(f"rejected: {claim}" for claim in refused),
            seen.facts(self.source),
        ]
        return (
            f"no address of {self.guest} within {self.timeout_s} s ({'; '.join(facts)}); see `virsh console "
            f"{self.guest}`, give it a static address (cloud_init.network_config), or raise wait_timeout"
        )


@dataclasses.dataclass(frozen=True)
class RecordAddresses(GuestStep):
    """Replace the recorded addresses of a guest."""

    addresses: tuple[str, ...]
    xml: str = dataclasses.field(repr=False)

    def __str__(self) -> str:
        if not self.addresses:
            return f"remove the recorded addresses of {self.guest}"
        return f"record that {self.guest} was seen at {' and '.join(self.addresses)}"
