# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A network filter of libvirt, as far as it matters where the kernel looks at its rules."""

from __future__ import annotations

import dataclasses

__all__ = ["NetworkFilter"]


@dataclasses.dataclass(frozen=True)
class NetworkFilter:
    """`protocols` that its own rules are about, and the filters that it refers to."""

    protocols: frozenset[str]
    references: tuple[str, ...] = ()
