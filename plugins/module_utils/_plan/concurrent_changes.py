# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What somebody else did while a guest is on its way: compared with what was seen before, and refused. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import Failed

__all__ = [
    "another_run",
    "check_begun",
    "check_off",
    "check_path_free",
    "check_there",
    "check_unchanged",
    "check_wanted",
]

Volume = t.Mapping[str, t.Any]  # as `_xml.host_xml` reads it


def another_run(name: str) -> str:
    """Why a run is refused that finds another one of that guest at work."""
    return (
        f"cannot migrate {name}: another run is migrating it from this host; wait for that run, or abort it with "
        "state: aborted"
    )


def check_wanted(name: str, *, interrupted: bool) -> None:
    """Raise Failed when somebody interrupted the move, while the guest is still where it was."""
    if interrupted:
        raise Failed(f"cannot migrate {name}: interrupted, and the guest has not moved; run again to migrate it")


def check_begun(name: str, *, interrupted: bool) -> None:
    """The same for one of many that has not begun."""
    if interrupted:
        raise Failed(f"cannot migrate {name}: all migrations were interrupted before it began; run again to migrate it")


def check_there(path: str, volume: Volume | None) -> Volume:
    """What is copied is still there, or this raises Failed."""
    if volume is None:
        raise Failed(f"cannot copy {path}: it is gone from its pool; restore it, or detach it from the guest")
    return volume


def check_unchanged(path: str, before: Volume, after: Volume) -> None:
    """Nobody wrote to a file between two looks, or this raises Failed: its copy would hold some of both."""
    if any(before[key] != after[key] for key in ("modified_s", "physical_bytes")):
        raise Failed(f"cannot copy {path}: it was written to in the meantime; run again when nothing writes to it")


def check_path_free(path: str, *, user: str | None, taken: bool) -> None:
    """Raise Failed where another guest of the destination uses that path, or somebody's file stands there."""
    if user:
        raise Failed(
            f"cannot copy {path}: guest {user} on the destination uses a file with this name; rename one of the guests"
        )
    if taken:
        raise Failed(
            f"cannot copy {path}: the destination has a file with this name, which no guest uses and no migration of "
            "this guest created; inspect it, and move it away"
        )


def check_off(name: str, state: str) -> None:
    """Raise Failed when a guest that was off is not any more."""
    if state not in ("shutdown", "crashed"):
        raise Failed(f"cannot migrate {name}: it was started in the meantime; run again to migrate it live")
