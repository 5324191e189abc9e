# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run `virt_domain_info`, and add commands that open consoles from here; the host's answer is not trusted."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.plugin_utils._report.console_action import WithConsoles


class ActionModule(WithConsoles):
    """Serves `virt_domain_info`."""
