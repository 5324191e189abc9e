# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Identifies the current boot of this machine."""

from __future__ import annotations

__all__ = ["identity"]


def identity() -> str:
    """The kernel's random boot id."""
    with open("/proc/sys/kernel/random/boot_id") as stream:
        return stream.read().strip()
