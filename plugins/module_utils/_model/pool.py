# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A storage pool that is a directory, as wanted and as found."""

from __future__ import annotations

import dataclasses

__all__ = ["STATES", "Found", "Wanted"]

STATES = ("active", "inactive", "absent")


@dataclasses.dataclass(frozen=True)
class Found:
    """A pool as libvirt reports it. `path` is None for kinds of pools that have none."""

    kind: str
    path: str | None
    active: bool
    autostart: bool


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A pool as the user wants it. None: the user is silent."""

    name: str
    path: str | None = None
    state: str = "active"
    autostart: bool | None = None
