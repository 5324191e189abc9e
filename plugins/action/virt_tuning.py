# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run `virt_tuning`; the host's answer is not trusted."""

from __future__ import annotations

from ansible.plugins.action import normal

from ansible_collections.corral.virt.plugins.plugin_utils._report.safe_results import UntrustedAction


class ActionModule(UntrustedAction, normal.ActionModule):
    """Serves `virt_tuning`."""
