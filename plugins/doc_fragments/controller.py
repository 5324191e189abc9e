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
  rules:
    description: Further rules for all guests.
    type: dict
    default: {}
    suboptions:
      reserve:
        description: Memory of each host that no guest gets (V(8GiB)), or a dictionary of it by host. Defaults to
          C(memory_reserved_mib), which is 512 MiB.
        type: raw
      guest_overhead:
        description: Memory that each guest takes beside its own, for QEMU itself (V(64MiB)). By default none.
        type: str
      disk_overcommit:
        description:
          - Share of the capacity of a storage pool that may be promised. The disks of a new guest count with their full
            size against what is free now, and what exceeds the capacity (V(1.5) allows half of it more).
          - By default the room for disks is not checked.
        type: float
      failure_domains:
        description: What fails as a whole, such as a rack, by host. Guests that stay apart go to different failure
          domains where they can.
        type: dict
        default: {}
      migration_groups:
        description: Hosts between which running guests can migrate, as a name by host, for example of their processors.
          A running guest is moved only to hosts with the same name; hosts without one are a group of their own.
        type: dict
        default: {}
      require_n_plus:
        description:
          - How many hosts may fail at once so that all their guests find room on the others. With C(failure_domains),
            how many of these. Each such loss is simulated with the new guests placed, and new guests are refused, the
            smallest first, until all guests survive it.
          - The time grows with the number of combinations; V(1) on 100 hosts takes about a second.
        type: int
        default: 0
"""
