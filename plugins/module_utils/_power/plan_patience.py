# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide how long a guest is waited for: by what it does, as a busy host may give it little of each second. Pure."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._libvirt.model_state import Doing

__all__ = ["Patience", "has_no_system"]

_SAMPLE_S = 30.0  # in which a guest must have done something
_AT_WORK = 0.05  # of a processor; an idle guest uses less, also where it is emulated
_MOST = 20  # times its timeout, whatever it does: by then one that is at work has used its seconds


_HEARS_S = 10.0  # in which a system that shuts down reads from its disks or sends something
_FIRMWARE_READS = 200  # of disks, at most, before a system is loaded


def has_no_system(elapsed_s: float, asked: Doing, now: Doing, agent: str | None) -> bool:
    """Whether nothing runs in a guest that could hear that it shall shut down, by what it had done when it was asked
    and has done since: no more was read than firmware reads, and nothing was read or sent after that.
    """
    if elapsed_s < _HEARS_S or agent == "connected" or now.cpu_s is None:
        return False
    done = [(one.disk_reads or 0, one.packets_sent or 0) for one in (asked, now)]
    return done[0] == done[1] and done[1][0] <= _FIRMWARE_READS


class Patience:
    """The wait for one guest.

    It has `timeout_s` seconds. One that is at work then goes on, until it has used as many seconds of CPU, or stops
    working: it uses less than a twentieth of a processor and reads nothing from its disks.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._begun_cpu_s = 0.0
        self._samples: list[tuple[float, float, int]] = []  # elapsed_s, cpu_s, disk_reads

    def sees(self, elapsed_s: float, doing: Doing) -> None:
        """What it has done by then; a guest that was started again begins anew."""
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
        """Whether it has had its time."""
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
