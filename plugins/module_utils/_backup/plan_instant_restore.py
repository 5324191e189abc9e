# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide about guests that run on a backup while it is copied: how that goes on and ends, and what must stay. Pure."""

from __future__ import annotations

import os.path
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._backup.model_backup import (
    UNREADABLE,
    BackupPoint,
    Pin,
    Repository,
    needed,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup_steps import (
    PullDisk,
    ReleasePoint,
    VerifyPoint,
)
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import GuestStep

_BEGINS_S = 86400  # for so long after its pin, a guest may still be on its way


def pinned(
    repository: Repository, *, host: str, stands_on: t.Callable[[str], str | None], now_s: int
) -> dict[str, str]:
    """Who runs on points, by their IDs, in words.

    On the own `host`, `stands_on` tells by the UUID of a guest on which point it is; a pin of another one is left over.
    """
    found = dict[str, str]()
    for ident, pins in repository.pins.items():
        held = [one for one in pins if one.host != host or _counts(one, ident, stands_on(one.uuid), now_s)]
        if held:
            elsewhere = f" on the host with UUID {held[0].host}" if held[0].host != host else ""
            found[ident] = f"{held[0].guest}{elsewhere}"
    return found


def _counts(pin: Pin, ident: str, stands_on: str | None, now_s: int) -> bool:
    return stands_on == ident or (stands_on is None and now_s - pin.since_s < _BEGINS_S)


def closable(repository: Repository, uuid: str, held: t.Collection[str]) -> list[BackupPoint]:
    """The points of a guest of then that nobody runs on, given the IDs of those that are held."""
    used = {point.id for ident in held for point in needed(repository.points, ident)}
    return [point for point in repository.of(uuid) if point.id not in used]


def ending(
    whose: tuple[str, str], point: BackupPoint, targets: t.Sequence[str], folder: str, stops: tuple[str, ...]
) -> list[GuestStep]:
    """The steps after which a running guest needs its point no more."""
    pulls = [PullDisk(*whose, target, point.id) for target in targets]
    return [VerifyPoint(*whose, point), *pulls, ReleasePoint(*whose, folder, stops)]


def going_on(step: VerifyPoint | PullDisk, repository: str) -> str:
    """What to do when the repository cannot be read."""
    ident = step.ident if isinstance(step, PullDisk) else step.point.id
    return (
        f"{step.guest} stands on backup {ident} until all of it is copied: see to it that {repository} can be read, "
        "and run again"
    )


def check_verified(step: VerifyPoint, damages: t.Sequence[str], repository: str) -> None:
    """Raise Failed if the point on which a guest runs is damaged, or cannot be read now."""
    if damages and all(one.endswith(UNREADABLE) for one in damages):
        raise Failed(f"cannot check backup {step.point.id}: {'; '.join(damages)}; {going_on(step, repository)}")
    if damages:
        off = shlex.join(["virsh", "destroy", step.guest])
        raise Failed(
            f"{step.guest} runs on backup {step.point.id}, which is damaged: {'; '.join(damages)}; switch it off "
            f"({off}), and restore another backup (point)"
        )


def check_released(step: ReleasePoint, below: t.Mapping[str, t.Sequence[str]]) -> None:
    """Raise Refused if a disk still stands on files of the repository; `below` are those of each disk by its path."""
    above = os.path.dirname(step.folder)
    for path, files in below.items():
        if any(os.path.dirname(os.path.dirname(os.path.normpath(file))) == above for file in files):
            raise Refused(f"cannot end the restore of {step.guest}: {path} still stands on {files[0]}; run again")
