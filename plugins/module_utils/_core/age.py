# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Ages as people read them."""

from __future__ import annotations

__all__ = ["age_text"]


def age_text(age_s: int) -> str:
    """How old something is, in its largest unit."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if age_s >= 2 * length:
            return f"{age_s // length} {unit}"
    return f"{max(0, age_s)} seconds"
