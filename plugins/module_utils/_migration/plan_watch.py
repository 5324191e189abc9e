# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A migration in progress: the actions after each query, and a summary of them. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import COPIED, DiskMove, Tuning
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_convergence import Action, ConvergencePolicy

__all__ = ["Disks", "Watch", "has_lagging_clock", "progress", "sent_bytes"]

Disks = t.Mapping[str, tuple[int, int]]  # bytes copied and total bytes of each disk that is being copied

_CLOCK_MS = 1000  # agents set the clock by the hardware clock, which knows whole seconds


class Watch:
    """One migration, query by query."""

    def __init__(self, tuning: Tuning) -> None:
        self._policy = ConvergencePolicy(tuning)
        self.disks: Disks = {}  # from the last query that returned some
        self.why = ""  # the reason for the abort; empty if there was none
        self.suspends = False  # whether the policy has suspended the guest
        self._passes, self._throttle_percent, self._measures = 0, 0, list[str]()

    def tick(
        self, seconds: float, figures: t.Mapping[str, t.Any], disks: Disks, *, broken: str, answers: bool
    ) -> list[Action]:
        """The actions to take now.

        `figures` are libvirt's, and empty before and after its job. `seconds` count from the start. `broken` is the
        reason why the migration must end, `answers` whether the destination answers.
        """
        self.disks = disks or self.disks
        self._passes = max(self._passes, int(figures.get("memory_iteration") or 0))
        self._throttle_percent = max(self._throttle_percent, int(figures.get("auto_converge_throttle") or 0))
        end = [Action("abort", why=broken)] if broken else []
        actions = _until_abort([*end, *self._policy.look(seconds, figures, answers=answers)])
        self._measures += [
            " ".join(filter(None, (one.verb, str(one.value or ""), one.why and f"({one.why})"))) for one in actions
        ]
        self.suspends = self.suspends or any(action.verb == "suspend" for action in actions)
        if actions and actions[-1].verb == "abort":
            self.why = actions[-1].why
        return actions

    def figures(self) -> dict[str, t.Any]:
        """The summary for the result."""
        return {"passes": self._passes, "throttle_percent": self._throttle_percent, "measures": self._measures}


def _until_abort(actions: t.Sequence[Action]) -> list[Action]:
    """The actions up to and including an abort."""
    verbs = [action.verb for action in actions]
    return list(actions[: verbs.index("abort") + 1] if "abort" in verbs else actions)


def progress(figures: t.Mapping[str, t.Any], disks: Disks) -> tuple[str, int, int, str] | None:
    """What is shown of the figures of a query: phase, bytes done, bytes in total, details. Disks come before memory.

    None while nothing is sent.
    """
    if not figures.get("memory_iteration") and figures.get("disk_total"):
        each = [f"{target} {100 * done // total} %" for target, (done, total) in disks.items() if total]
        details = ", ".join(each) if len(each) > 1 else ""
        return "copying disks", figures["disk_processed"], figures["disk_total"], details
    total = figures.get("memory_total")
    if not total:
        return None
    done = total - figures.get("memory_remaining", 0)
    pause = f"expected downtime {figures['downtime']} ms" if figures.get("downtime") else ""
    return f"memory, pass {figures.get('memory_iteration', 0) or 1}", done, total, pause


def sent_bytes(moves: t.Iterable[DiskMove], disks: Disks, completed: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What was sent of a guest that has arrived: of each disk, of all of them, and with its memory.

    All that had to be sent was, also where libvirt was too busy to tell, or the copy too fast to be seen.
    """
    least = {move.target: move.bytes_to_move for move in moves if move.how in COPIED}
    seen = {target: done for target, (done, _total) in disks.items()}
    sent = {target: max(size, seen.get(target, 0)) for target, size in least.items()}
    disk_bytes = sum(sent.values())
    return {"disks": sent, "disk_bytes": disk_bytes, "bytes_sent": disk_bytes + completed.get("memory_bytes", 0)}


def has_lagging_clock(completed: t.Mapping[str, t.Any]) -> bool:
    """Whether a guest that has arrived stood still for so long that its clock must be set."""
    return bool(completed.get("downtime_ms", 0) > _CLOCK_MS)
