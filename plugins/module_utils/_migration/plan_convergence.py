# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what to do with a migration that does not converge: schedules as data, and the policy that follows them. Pure.

A pass over the memory that leaves as much to send as the best before it stalls. After a number of stalled passes, the
next measure is taken. The steps are those of oVirt's migration policies.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.defaults import MIGRATIONS
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import COPIED, DiskMove, Tuning


class Action(t.NamedTuple):
    """One measure: downtime (milliseconds), postcopy, suspend or abort."""

    verb: str
    value: int = 0
    why: str = ""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The initial downtime, and a measure after each number of stalled passes.

    When all are taken, the measures in `last`, one after another.
    """

    first_ms: int
    stalled: tuple[tuple[int, Action], ...]
    last: tuple[Action, ...]


def _steps(*downtimes_ms: int) -> tuple[tuple[int, Action], ...]:
    return tuple((number, Action("downtime", value)) for number, value in enumerate(downtimes_ms, 1))


SCHEDULES = {
    "minimal_downtime": Schedule(100, _steps(150, 200, 300, 400, 500), (Action("abort"),)),
    "suspend_if_needed": Schedule(100, _steps(150, 200, 300, 400, 500), (Action("downtime", 5000), Action("abort"))),
    "postcopy": Schedule(100, _steps(150, 200), (Action("postcopy"), Action("abort"))),
    "very_large": Schedule(300, _steps(400, 500, 700, 1000, 1500), (Action("downtime", 5000), Action("abort"))),
}


class ConvergencePolicy:
    """Follows one migration by its statistics and returns each measure once."""

    def __init__(self, tuning: Tuning) -> None:
        self._tuning = tuning
        schedule = SCHEDULES[tuning.schedule] if tuning.schedule else None
        self._next: list[tuple[int, Action]] = []
        if schedule:
            after, _action = schedule.stalled[-1]
            # Two more stalled passes for each of the last measures: what was done before must have had a chance.
            last = ((after + 2 * number, action) for number, action in enumerate(schedule.last, 1))
            self._next = [*schedule.stalled, *last]
        first_ms = tuning.max_downtime_ms or (schedule.first_ms if schedule else None)
        self._first = first_ms and Action("downtime", first_ms)
        self._pass, self._least, self._stalled = 0, 0, 0
        self._postcopy, self._late = False, 0
        self._sent, self._quiet_since = -1, 0.0

    def look(self, seconds: float, figures: t.Mapping[str, t.Any], *, answers: bool = True) -> list[Action]:
        """The measures to take now.

        `figures` are libvirt's, `seconds` since the beginning, `answers` is True if the destination answers.
        """
        actions = [self._first] if self._first and figures else []
        self._first = None if actions else self._first
        passes = int(figures.get("memory_iteration") or 0)
        if passes > self._pass:
            remaining = int(figures.get("memory_remaining") or 0)
            self._stalled += bool(self._pass and remaining >= self._least)
            self._least = remaining if not self._pass else min(self._least, remaining)
            self._pass = passes
        while self._next and self._stalled >= self._next[0][0]:
            actions.append(self._next.pop(0)[1]._replace(why=f"{self._stalled} passes made no progress"))
        actions += [*self._switch(seconds, passes), *self._timeout(seconds)]
        self._postcopy = self._postcopy or any(action.verb == "postcopy" for action in actions)
        return [*actions, *self._stall(seconds, figures, answers)]

    def _stall(self, seconds: float, figures: t.Mapping[str, t.Any], answers: bool) -> list[Action]:
        """Abort if nothing is sent although both hosts answer; a post-copy must wait for the network.

        libvirt has no figures while QEMU still connects, which a path that drops large packets can prolong for ever.
        """
        sent = int(figures.get("data_processed") or 0) if figures else self._sent
        if not answers or self._postcopy or sent != self._sent:
            self._sent, self._quiet_since = sent, seconds
            return []
        if seconds - self._quiet_since < self._tuning.stall_timeout_s:
            return []
        self._quiet_since = seconds
        remedy = f"check that the path between the hosts passes large packets (MTU) and ports {MIGRATIONS}"
        return [
            Action(
                "abort",
                why=f"nothing was sent for {self._tuning.stall_timeout_s} s although both hosts answer; {remedy}",
            )
        ]

    def _switch(self, seconds: float, passes: int) -> list[Action]:
        """Switch to post-copy after the requested pass or time."""
        after_s, after = self._tuning.postcopy_after_s, self._tuning.postcopy_after_passes
        if not self._tuning.postcopy or self._postcopy or not passes:
            return []
        if after_s is None and after is None and not self._tuning.schedule:
            after = 1
        if (after is not None and passes > after) or (after_s is not None and seconds >= after_s):
            return [Action("postcopy", why="as requested")]
        return []

    def _timeout(self, seconds: float) -> list[Action]:
        """Take the timeout action at the deadline; abort if the migration has not ended after as long again."""
        if seconds < self._tuning.timeout_s * (self._late + 1):
            return []
        self._late += 1
        verb = self._tuning.timeout_action if self._late == 1 else "abort"
        return (
            [Action(verb, why=f"it took longer than timeout, {self._tuning.timeout_s * self._late} s")]
            if self._late <= 2
            else []
        )


def can_work(dirty_mib_s: int, tuning: Tuning) -> str:
    """What a measured write rate says about convergence; empty if it says nothing."""
    limit = tuning.bandwidth_mib_s
    if not dirty_mib_s:
        return ""
    if not limit:
        return (
            f"the guest writes {dirty_mib_s} MiB of memory per second: only a faster link lets it converge on its own"
        )
    if dirty_mib_s <= 0.8 * limit:
        return (
            f"the guest writes {dirty_mib_s} MiB of memory per second, bandwidth is {limit} MiB/s: it converges on its "
            "own"
        )
    helps = [name for name, met in (("auto_converge", tuning.auto_converge), ("postcopy", tuning.postcopy)) if met]
    helps += ["suspend"] if tuning.timeout_action == "suspend" or tuning.schedule == "suspend_if_needed" else []
    hopeless = "it will not converge; allow auto_converge or postcopy, or set schedule: suspend_if_needed"
    remedy = f"it converges only with {', '.join(helps)}" if helps else hopeless
    return f"the guest writes {dirty_mib_s} MiB of memory per second, bandwidth is {limit} MiB/s: {remedy}"


# A migration in progress: the actions after each query, and a summary of them. Pure.

Disks = t.Mapping[str, tuple[int, int]]  # bytes copied and total bytes of each disk that is being copied

_CLOCK_MS = 1000  # agents set the clock by the hardware clock, which knows whole seconds


class Watch:
    """The state of one migration, updated with each query."""

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
        """The summary of the migration for the result."""
        return {"passes": self._passes, "throttle_percent": self._throttle_percent, "measures": self._measures}


def _until_abort(actions: t.Sequence[Action]) -> list[Action]:
    """The actions up to and including an abort."""
    verbs = [action.verb for action in actions]
    return list(actions[: verbs.index("abort") + 1] if "abort" in verbs else actions)


def progress(figures: t.Mapping[str, t.Any], disks: Disks) -> tuple[str, int, int, str] | None:
    """The progress to show: phase, bytes done, bytes in total, details. Disks come before memory.

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
    """The bytes sent of a guest that has arrived: by disk, of all disks, and with its memory.

    At least the planned bytes of a disk count, also if libvirt was too busy to tell, or the copy too fast to be seen.
    """
    least = {move.target: move.bytes_to_move for move in moves if move.how in COPIED}
    seen = {target: done for target, (done, _total) in disks.items()}
    sent = {target: max(size, seen.get(target, 0)) for target, size in least.items()}
    disk_bytes = sum(sent.values())
    return {"disks": sent, "disk_bytes": disk_bytes, "bytes_sent": disk_bytes + completed.get("memory_bytes", 0)}


def has_lagging_clock(completed: t.Mapping[str, t.Any]) -> bool:
    """True if a guest that has arrived was down for so long that its clock must be set."""
    return bool(completed.get("downtime_ms", 0) > _CLOCK_MS)
