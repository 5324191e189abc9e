# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts of modules that run on the controller, over what other modules returned."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragments of documentation; keep them in step with plugins/plugin_utils/_placement/reported_hosts.py."""

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
        description: Memory that each host keeps for itself (V(8GiB)), or a dictionary of it by host. Defaults to
          C(memory_reserved_mib), which is 512 MiB.
        type: raw
      guest_overhead:
        description: Memory that each guest takes in addition to its own, for QEMU (V(64MiB)). By default none.
        type: str
      disk_overcommit:
        description:
          - Share of the capacity of a storage pool that may be allocated; V(1.5) allows half of the capacity in
            addition. The disks of a new guest count with their full size against the space that is free now and this
            addition.
          - By default the room for disks is not checked, except in thin pools (O(ignore:disks[].thin_pool)). They have
            their own limit, four times their size for all their volumes together.
        type: float
      failure_domains:
        description: Failure domain of each host, such as its rack. Guests that must stay apart go to different failure
          domains if possible.
        type: dict
        default: {}
      migration_groups:
        description: Name of a group for each host, for example after its processors. A running guest is moved only to
          hosts of the same group. Hosts without a name form one group.
        type: dict
        default: {}
      require_n_plus:
        description:
          - How many hosts may fail at once while all their guests still fit on the others. With C(failure_domains), how
            many failure domains. Placement simulates each such loss with the new guests. It refuses a new guest with
            which a guest would find no room, and prefers larger guests to smaller ones. A guest that has no other host
            anyway, such as one whose bridge only one host has, is refused alone.
          - The time grows with the number of combinations; V(1) on 100 hosts takes about a second.
        type: int
        default: 0
"""
