# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may do what: the one place that decides it, for requests and for what the page offers."""

from __future__ import annotations

from .accounts import User

__all__ = ["ACTIONS", "refusal"]

ACTIONS = ("view", "console")


def refusal(user: User, action: str) -> str | None:
    """Why the user may not, None when they may. Nothing that is not named here is allowed."""
    if action == "view" or (action == "console" and user.consoles):
        return None
    return f"user {user.name} may not open consoles; set consoles: true for this user in console_users"
