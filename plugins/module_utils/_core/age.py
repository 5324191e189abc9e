# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ages as people read them."""

from __future__ import annotations


def age_text(age_s: int) -> str:
    """How old something is, in its largest unit."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if age_s >= 2 * length:
            return f"{age_s // length} {unit}"
    return f"{max(0, age_s)} seconds"
