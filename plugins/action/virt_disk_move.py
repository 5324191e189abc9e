# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Move a disk, and show how far its copy is."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.plugin_utils._report.progress_lines import WatchedModule


class ActionModule(WatchedModule):
    """Serves `virt_disk_move`, which continues if the controller dies."""

    subject = "disk {disk} of {it}"
