# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of the store a user sees, by the policy's `view`."""

from __future__ import annotations

import hashlib
import typing as t

from . import policy
from .store import Store, Value

__all__ = ["View"]


class View:
    """Of one user; users with equal rules have equal views."""

    def __init__(self, who: policy.Who, rules: t.Sequence[policy.Rule]) -> None:
        self._who, self._rules = who, rules
        limits = {(rule.guests, rule.tags, rule.hosts) for rule in rules if rule.shows_guests}
        self.whole = ((), (), ()) in limits
        mine = "" if self.whole else who.name  # jobs of a user's own are visible to them
        self.key = hashlib.sha256(repr((sorted(limits), mine)).encode()).hexdigest()[:12]

    def of(self, key: str, value: Value, store: Store) -> Value | None:
        """The value as they see it; None: not at all."""
        if self.whole:
            return value
        kind = key.partition("/")[0]
        if kind == "guest":
            return value if self.guest(value) else None
        if kind == "host":
            return value if self.host(str(value["name"])) else None
        if kind == "figures":
            return self._figures(key.partition("/")[2], value, store)
        return value if kind == "job" and self._job(value, store) else None

    def guest(self, value: Value) -> bool:
        """Whether a guest is visible."""
        guest = policy.Guest(value["name"], tuple(value.get("tags") or ()), value["host"])
        return self._may(policy.Request("view", guests=(guest,)))

    def host(self, name: str) -> bool:
        """Whether a host is visible."""
        return self._may(policy.Request("view", hosts=(name,)))

    def _figures(self, host: str, value: Value, store: Store) -> Value | None:
        if not self.host(host):
            return None
        seen = {uuid for uuid in value["guests"] if (one := store.get(f"guest/{host}/{uuid}")) and self.guest(one)}
        return {**value, "guests": {uuid: each for uuid, each in value["guests"].items() if uuid in seen}}

    def _job(self, value: Value, store: Store) -> bool:
        """Their own, and those about guests that they all see."""
        if value["user"] == self._who.name:
            return True
        uuids = {guest["uuid"] for guest in value["guests"]}
        known = [one for one in store.below("guest/").values() if one["uuid"] in uuids] if uuids else []
        return len({one["uuid"] for one in known}) == len(uuids) > 0 and all(map(self.guest, known))

    def _may(self, request: policy.Request) -> bool:
        return not policy.refusal(self._rules, self._who, request)
