# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The QEMU guest agent."""

from __future__ import annotations

__all__ = ["CHANNEL"]

CHANNEL = "org.qemu.guest_agent.0"  # the channel on which it listens
