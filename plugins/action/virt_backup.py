# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Back guests up, and show how far each copy is."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.plugin_utils._report.progress_lines import WatchedModule


class ActionModule(WatchedModule):
    """Serves `virt_backup`, which continues if the controller dies."""

    subject = "backup of {it}"
    named = ("guests",)
