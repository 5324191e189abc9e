# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A directory to create on another host."""

from __future__ import annotations

import dataclasses

__all__ = ["Access"]


@dataclasses.dataclass(frozen=True)
class Access:
    """Mode and owners of a directory; owner and group are numbers, which differ between hosts."""

    mode: str  # octal
    owner: int
    group: int
