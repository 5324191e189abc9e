# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""States and activity of guests."""

from __future__ import annotations

import dataclasses

ACTIVE = ("running", "paused")  # states in which a guest has a process on its host, and holds memory


@dataclasses.dataclass(frozen=True)
class Doing:
    """A guest's activity since its start; None for unknown figures."""

    cpu_s: float | None = None
    disk_reads: int | None = None
    packets_sent: int | None = None

    def __str__(self) -> str:
        sent = f"{self.packets_sent} packets sent" if self.packets_sent else "nothing sent yet"
        facts = [
            (f"{self.cpu_s or 0:.0f} s of CPU", self.cpu_s is not None),
            (f"{self.disk_reads} disk reads", self.disk_reads is not None),
            (sent, self.packets_sent is not None),
        ]
        return ", ".join(fact for fact, holds in facts if holds) or "nothing seen of it"
