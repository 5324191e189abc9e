# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Network interfaces of this host."""

from __future__ import annotations

import socket

__all__ = ["names"]


def names() -> list[str]:
    """All of them, bridges among them."""
    return sorted(name for _index, name in socket.if_nameindex())
