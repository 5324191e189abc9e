# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""How each field reaches a running guest. The table decides; nothing else does."""

from __future__ import annotations

import re

__all__ = ["ATTACH", "FIXED", "MEMORY", "METADATA", "NEXT_BOOT", "POLICY", "VCPUS", "how"]

VCPUS, MEMORY, METADATA, ATTACH = "vcpus", "memory", "metadata", "attach"  # live, and by which verb
NEXT_BOOT = "next boot"
FIXED = "fixed"  # for the life of the guest

# Field path (`[]` stands for any item) -> how it applies while the guest runs. What is not here waits for the next boot.
POLICY: dict[str, str] = {
    "title": METADATA,
    "description": METADATA,
    "tags": METADATA,
    "vcpus.current": VCPUS,
    "memory.current_kib": MEMORY,
    "disks[]": ATTACH,
    "interfaces[]": ATTACH,
    "firmware": FIXED,
}


def how(where: str) -> str:
    """The policy for one change's place."""
    return POLICY.get(re.sub(r"\[[^\]]*\]", "[]", where), NEXT_BOOT)
