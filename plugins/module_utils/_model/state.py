# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""States of guests."""

from __future__ import annotations

__all__ = ["ACTIVE"]

ACTIVE = ("running", "paused")  # states in which a guest has a process on its host, and holds memory
