# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Identifies the current boot of this machine."""

from __future__ import annotations


def identity() -> str:
    """The kernel's random boot id."""
    with open("/proc/sys/kernel/random/boot_id") as stream:
        return stream.read().strip()
