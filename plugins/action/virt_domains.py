# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prepare the descriptions of guests on the controller, then run the module of the same name."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.action.virt_domain import ActionModule

__all__ = ["ActionModule"]
