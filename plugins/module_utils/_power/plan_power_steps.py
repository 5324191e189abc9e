# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps between a guest's states, in a separate file to keep the payload for hosts small."""

from __future__ import annotations

import dataclasses
import shlex
import sys
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import step
from ansible_collections.corral.virt.plugins.module_utils._libvirt.model_state import Doing

# Decide how long a guest is waited for: by what it does, as a busy host may give it little of each second. Pure.

_SAMPLE_S = 30.0  # in which a guest must have done something
_AT_WORK = 0.05  # of a processor; an idle guest uses less, also where it is emulated
_MOST = 20  # times its timeout, whatever it does: by then one that is at work has used its seconds


_HEARS_S = 10.0  # in which a system that shuts down reads from its disks or sends something
_READS_BEFORE_A_SYSTEM = 200  # of disks, at most, before a system is loaded


def has_no_system(elapsed_s: float, asked: Doing, now: Doing, agent: str | None) -> bool:
    """True if no system runs in a guest that could obey a shutdown request.

    That is: it has read no more than firmware does, and has read and sent nothing since the request (`asked`).
    """
    if elapsed_s < _HEARS_S or agent == "connected" or now.cpu_s is None:
        return False
    done = [(one.disk_reads or 0, one.packets_sent or 0) for one in (asked, now)]
    return done[0] == done[1] and done[1][0] <= _READS_BEFORE_A_SYSTEM


class Patience:
    """The wait for one guest.

    It lasts `timeout_s` seconds. For an active guest it continues until the guest has used as many seconds of CPU,
    or is idle: it uses less than a twentieth of a processor and reads nothing from its disks.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._begun_cpu_s = 0.0
        self._samples: list[tuple[float, float, int]] = []  # elapsed_s, cpu_s, disk_reads

    def sees(self, elapsed_s: float, doing: Doing) -> None:
        """Record the guest's activity at that time; a restarted guest begins anew."""
        if doing.cpu_s is None:
            return
        if self._samples and doing.cpu_s < self._samples[-1][1]:
            self._samples.clear()
        if not self._samples:
            self._begun_cpu_s = doing.cpu_s
        self._samples.append((elapsed_s, doing.cpu_s, doing.disk_reads or 0))
        while len(self._samples) > 2 and self._samples[1][0] <= elapsed_s - _SAMPLE_S:
            self._samples.pop(0)

    def is_over(self, elapsed_s: float) -> bool:
        """True if the guest's time is over."""
        if elapsed_s < self._timeout_s:
            return False
        return elapsed_s >= _MOST * self._timeout_s or not self._goes_on(elapsed_s)

    def _goes_on(self, elapsed_s: float) -> bool:
        if len(self._samples) < 2 or self._samples[-1][0] < elapsed_s - _SAMPLE_S:  # nobody sees it any more
            return False
        (first_s, first_cpu_s, first_reads), (last_s, last_cpu_s, last_reads) = self._samples[0], self._samples[-1]
        if last_cpu_s - self._begun_cpu_s >= self._timeout_s:
            return False
        return last_reads > first_reads or last_cpu_s - first_cpu_s >= _AT_WORK * (last_s - first_s)


@dataclasses.dataclass(frozen=True)
class GuestStep(step.Step):
    """One change of one guest."""

    template = "{0.verb} {0.guest}"
    guest: str

    def moved_message(self) -> str:
        """The error for a guest that left the host while it was to be powered off."""
        return (
            f"cannot {self.verb} {self.guest}: it was migrated to another host in the meantime, or undefined; "
            "`ansible-playbook corral.virt.list` shows which host has it"
        )


@dataclasses.dataclass(frozen=True)
class Start(GuestStep):
    """Power on the guest."""

    paused: bool = False

    def __str__(self) -> str:
        return f"start {self.guest}{' paused' if self.paused else ''}"


_FIRMWARE_READS = 50  # firmware that finds nothing to boot reads less often: BIOS once, UEFI some 20 times


@dataclasses.dataclass(frozen=True)
class Seen:
    """Observations of a guest at a timeout; None for unknown figures."""

    state: str = "running"
    acpi: bool = True
    cpu_s: float | None = None  # since it was started
    disk_reads: int | None = None  # likewise
    packets_sent: int | None = None  # likewise
    agent: str | None = None  # connected or disconnected; None: no channel
    # its networks, and how many each has given to anyone
    leases: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    console: tuple[str, ...] = ()
    unseen: str = ""  # why it could not be looked at: all else is unknown then

    def facts(self, source: str = "") -> str:
        """Why the guest stays as it is, or (with `source`) why that source does not know its address."""
        if self.unseen:
            return self.unseen
        lease = source in ("any", "lease")
        reads = sys.maxsize if self.disk_reads is None else self.disk_reads
        agent = {None: "no channel", "disconnected": "not connected (still booting, or not installed)"}.get(
            self.agent, self.agent
        )
        facts = [
            (f"it is {self.state}", self.state not in ("running", "shutdown")),
            ("no ACPI in its definition", not self.acpi and not source),
            (
                f"disk reads since its start: {reads}, so it is still in its firmware or has nothing to boot from",
                reads <= _FIRMWARE_READS,
            ),
            (f"guest agent: {agent}", self.state not in ("shutdown", "absent")),
            (f"CPU used since its start: {self.cpu_s or 0:.0f} s", bool(source) and self.cpu_s is not None),
            (f"packets sent since its start: {self.packets_sent}", bool(source) and self.packets_sent is not None),
            *(
                (f"leases of network {name}: none for it, {count} for others", lease)
                for name, count in self.leases.items()
            ),
            ("no libvirt network gives it leases (use any)", source == "lease" and not self.leases),
            (f"last lines of its console: {' | '.join(self.console)}", bool(self.console)),
        ]
        return "; ".join(fact for fact, holds in facts if holds)


class Note(str):
    """A note on a performed step."""


@dataclasses.dataclass(frozen=True)
class Shutdown(GuestStep):
    """Ask the guest to power off, and wait until it has; power it off by force only if told to."""

    verb: t.ClassVar[str] = "shut down"
    last_resort: t.ClassVar[str] = "destroy"

    timeout_s: int
    force: bool = False
    wait: bool = True
    suspends: bool = False  # a guest that does not do so in time: it was paused before it was woken for this

    def __str__(self) -> str:
        after = f", {self.last_resort} it after {self.timeout_s} s" if self.force else ""
        return f"{'' if self.wait else 'ask to '}{self.verb} {self.guest}{after}"

    def io_error_message(self) -> str:
        """The error for a guest that an I/O error has paused, and that receives no request."""
        return (
            f"cannot {self.verb} {self.guest}: an I/O error of its disks paused it; `{_io_errors(self.guest)}` shows "
            f"which; make room for them or repair them, or set force: true to {self.last_resort} it"
        )

    def gives_up(self, elapsed_s: float, asked: Doing, now: Doing, agent: str | None) -> bool:
        """True if the guest may be forced off and no system runs in it that could obey."""
        return self.force and has_no_system(elapsed_s, asked, now, agent)

    def forced_note(self, seen: Seen) -> Note:
        """The note after a forced power-off."""
        return Note(f"{self.guest} did not {self.verb} ({seen.facts()}), so this run did {self.last_resort} it")

    def timeout_message(self, seen: Seen) -> str:
        """The error if the guest has not obeyed in time."""
        return (
            f"cannot {self.verb} {self.guest}: it did not do so within {self.timeout_s} s ({seen.facts()})"
            f"{', and is paused again' if self.suspends else ''}; set force: "
            f"true to {self.last_resort} it then, or raise wait_timeout"
        )


@dataclasses.dataclass(frozen=True)
class Reboot(Shutdown):
    """Ask the guest to reboot, and wait until it does.

    A guest that powers off instead (on_reboot: destroy) is started again.
    """

    verb: t.ClassVar[str] = "reboot"
    last_resort: t.ClassVar[str] = "reset"


@dataclasses.dataclass(frozen=True)
class Destroy(GuestStep):
    """Power off the guest at once."""


@dataclasses.dataclass(frozen=True)
class Resource:
    """A guest that Pacemaker runs."""

    name: str  # of the resource
    uuid: str  # of the guest
    role: str  # Started or Stopped: what Pacemaker keeps it
    listed: bool = False  # the role cluster is told to have it (cluster_guests)


REMOVED = "Removed"


@dataclasses.dataclass(frozen=True)
class Entrust(GuestStep):
    """Have Pacemaker keep the guest running or off from now on, or forget it."""

    resource: str
    role: str  # Started, Stopped or REMOVED

    def __str__(self) -> str:
        if self.role == REMOVED:
            return f"have Pacemaker forget {self.guest} ({self.resource})"
        return f"have Pacemaker keep {self.guest} {'running' if self.role == 'Started' else 'off'} ({self.resource})"


@dataclasses.dataclass(frozen=True)
class Suspend(GuestStep):
    """Pause the guest's vCPUs."""


@dataclasses.dataclass(frozen=True)
class Resume(GuestStep):
    """Resume the guest's vCPUs."""

    to_shut_down: bool = False  # whatever becomes of it then

    def io_error_message(self) -> str:
        """The error for a guest that an I/O error pauses again at once."""
        return (
            f"cannot resume {self.guest}: an I/O error of its disks paused it again; `{_io_errors(self.guest)}` shows "
            "which; make room for them or repair them, and run again"
        )


def _io_errors(guest: str) -> str:
    return shlex.join(["virsh", "domblkerror", guest])


@dataclasses.dataclass(frozen=True)
class Reset(GuestStep):
    """Reset the guest's machine."""
