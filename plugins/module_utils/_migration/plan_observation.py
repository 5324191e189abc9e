# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide what both hosts must be asked about a guest that moves, and what it means for a verdict. Pure.

`Ends` lead to an `Observation`, or to the one question that is open; nothing is asked that decides nothing.
"""

from __future__ import annotations

import dataclasses

from ansible_collections.corral.virt.plugins.module_utils._core.questions import Answers, OpenQuestion, asks
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import Observation

__all__ = ["Ends", "HasAllMemory", "HasJob", "IsSuperseded", "IsSuspendedByOwner", "TakesDisksBack", "observation"]


@dataclasses.dataclass(frozen=True)
class IsSuspendedByOwner(OpenQuestion[bool]):
    """Has its owner suspended it on the source, perhaps while it was being sent?"""


@dataclasses.dataclass(frozen=True)
class IsSuperseded(OpenQuestion[bool]):
    """Has nobody written to its disks on the source since it was let run on the destination?"""


@dataclasses.dataclass(frozen=True)
class HasJob(OpenQuestion[bool]):
    """Is libvirt at work on it on the source?"""


@dataclasses.dataclass(frozen=True)
class HasAllMemory(OpenQuestion[bool]):
    """Is all its memory on the destination, after a post-copy?"""


@dataclasses.dataclass(frozen=True)
class TakesDisksBack(OpenQuestion[bool]):
    """Would libvirt on the source take shared disks from the destination, if it ended the copy there?"""


@dataclasses.dataclass(frozen=True)
class Ends:
    """The states of a guest on both hosts, as libvirt tells them."""

    source: str
    dest: str
    was_paused: bool = False
    again: bool = False
    answers: Answers = dataclasses.field(default_factory=Answers)


@asks
def observation(ends: Ends) -> Observation:
    """What is to be judged."""
    answers, there = ends.answers, ends.dest
    was_paused = ends.was_paused or (ends.source == "paused" and answers.of(IsSuspendedByOwner()))
    here = "paused" if ends.source == "incoming" else ends.source  # of the source: paused by its migration
    off = here in ("shutdown", "crashed")
    superseded = off and there == "running" and answers.of(IsSuperseded())
    job_active = answers.of(HasJob())
    complete = (here, there) == ("postcopy", "running") and answers.of(HasAllMemory())
    ends_here = complete or (here, there) == ("paused", "running")
    return Observation(
        here,
        there,
        was_paused=was_paused,
        job_active=job_active,
        superseded=superseded,
        complete=complete,
        takes_back=ends_here and answers.of(TakesDisksBack()),
        again=ends.again,
    )
