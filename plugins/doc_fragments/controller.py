# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts of modules that run on the controller, over what other modules returned."""

from __future__ import annotations


class ModuleDocFragment:
    """Kept in step with plugins/plugin_utils/_reported.py."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Behaves the same, because it connects to no host.
    support: full
  diff_mode:
    description: Nothing changes, so there is nothing to show.
    support: N/A
  action:
    description: Runs on the controller.
    support: full
"""

    OVERCOMMIT = r"""
options:
  cpu_overcommit:
    description: vCPUs that may be allocated for each processor.
    type: float
    default: 4.0
  memory_overcommit:
    description:
      - Share of a host's memory that may be allocated.
      - Running guests count with their maximum memory, and so do guests that are off but start with the host
        (C(autostart)).
    type: float
    default: 1.0
  all_defined:
    description: Count every defined guest, including guests that are off and do not start with the host.
    type: bool
    default: false
"""
