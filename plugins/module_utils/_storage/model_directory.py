# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A directory to create on another host."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Access:
    """Mode and owners of a directory; owner and group are numbers, which differ between hosts."""

    mode: str  # octal
    owner: int
    group: int
