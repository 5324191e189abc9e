# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What guests and hosts use, for the history: differences of libvirt's counters."""

from __future__ import annotations

import math
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._libvirt import events

from .history import SAMPLE_S, Sample
from .store import Store

__all__ = ["Samples"]


class Samples:
    """Of one host. Rates are differences to the counters that were read before."""

    def __init__(self, name: str, store: Store) -> None:
        self._name, self._store = name, store
        self._known: dict[str, events.Counters] = {}
        self._at = -math.inf

    def due(self) -> bool:
        """Whether it is time for the next ones."""
        return time.monotonic() - self._at >= SAMPLE_S

    def take(self, connection: t.Any) -> list[Sample]:
        """Of the host and its running guests."""
        now, found = time.monotonic(), {one.uuid: one for one in events.counters(connection)}
        known, passed_s = self._known, now - self._at
        self._known, self._at = found, now
        figures = self._store.get(f"figures/{self._name}") or {"cpu": None, "memory": None, "guests": {}}
        memory = {uuid: shares[1] for uuid, shares in figures["guests"].items()}
        host = Sample(f"host/{self._name}", figures["cpu"], figures["memory"])
        return [host, *(_sample(known[u], one, passed_s, memory.get(u)) for u, one in found.items() if u in known)]


def _sample(before: events.Counters, now: events.Counters, passed_s: float, memory: float | None) -> Sample:
    cpu = None
    if now.cpu_ns is not None and before.cpu_ns is not None:
        share = 100 * (now.cpu_ns - before.cpu_ns) / (passed_s * 1e9 * max(1, now.vcpus))
        cpu = min(100.0, max(0.0, share))
    rates = [(there - here) / passed_s for here, there in zip(before[3:], now[3:], strict=True)]
    return Sample(now.uuid, cpu, memory, *(max(0.0, rate) for rate in rates))
