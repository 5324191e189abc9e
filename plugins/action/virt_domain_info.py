# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run `virt_domain_info`, and say how its consoles are opened from here; what the host answers is not believed."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.plugin_utils._report.console_commands import WithConsoles


class ActionModule(WithConsoles):
    """Serves `virt_domain_info`."""
