# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Names that a guest gets where the user gives none; the roles make objects of these names."""

from __future__ import annotations

__all__ = ["BRIDGE", "POOL"]

BRIDGE = "br0"
POOL = "default"
