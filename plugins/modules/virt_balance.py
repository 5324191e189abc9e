#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_balance
short_description: Plan which guests to migrate so that the load of hypervisors is even
version_added: 0.1.0
description:
  - Plans from the results of M(corral.virt.virt_host_info), and prints the plan as a table. It migrates nothing;
    M(corral.virt.virt_migrations) does.
  - Only running guests move, by the rules of M(corral.virt.virt_place). Memory counts twice as much as processors.
    Hosts in maintenance neither give nor take guests. The moves can be done in any order.
  - Each move is judged by the two hosts that it changes, so clusters of all sizes are balanced alike. A guest moves if
    that brings both hosts closer to the mean by at least half of what a guest of its size could do, without moving
    them past it. Of the moves that gain most, the one that copies least for its gain comes first.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.controller
  - corral.virt.controller.overcommit
options:
  hosts:
    description: Registered results of M(corral.virt.virt_host_info), by host. A host without a result counts as
      unreachable, and is left out of the plan.
    type: dict
    required: true
  max_moves:
    description: Maximum number of moves. By default, all moves that are worth it.
    type: int
  tolerance:
    description:
      - Two hosts exchange no guest while their imbalance is below this, in percentage points. The imbalance is the
        deviation of the two hosts' load from the mean of all hosts (a standard deviation in which larger hosts count
        more).
    type: float
    default: 5.0
  stay:
    description: Names of guests that must not move.
    type: list
    elements: str
    default: []
  by:
    description:
      - What counts as load. V(memory) is the memory that guests may use, V(vcpus) the processors that they may use
        (half as important beside V(memory)), V(cpu_use) the processors that they keep busy, and V(guests) the number of
        guests, each as large as the mean of all (half as important beside the others). V(guests) stands for what is not
        measured, such as disks and network.
      - V(cpu_use) requires O(corral.virt.virt_host_info#module:cpu_seconds), and excludes V(vcpus).
      - Whatever counts, no hypervisor gets more than O(cpu_overcommit) and O(memory_overcommit) allow.
    type: list
    elements: str
    choices: [memory, vcpus, cpu_use, guests]
    default: [memory, vcpus]
seealso:
  - module: corral.virt.virt_place
"""

EXAMPLES = r"""
- name: Plan which guests to migrate
  corral.virt.virt_balance:
    hosts: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'virt_host'))) }}"
    max_moves: 4
    stay: [db1]
  run_once: true
  register: planned
"""

RETURN = r"""
moves:
  description: The plan, best move first, with C(gain), the percentage points by which it lowers the imbalance of its
    two hosts, and the possible cost C(cost_mib) of memory and disks. Moves that an interrupted migration has started
    come first (C(gain) 0), then those that separate guests that must stay apart (C(mends) is their word).
  returned: success
  type: list
  elements: dict
  sample: [{name: web1, source: hyper1, dest: hyper2, gain: 7.3, cost_mib: 2358}]
broken:
  description: Guests that must stay apart and share a hypervisor, one line for each group and hypervisor.
  returned: success
  type: list
  elements: str
imbalance:
  description: C(before) and C(after) in percentage points.
  returned: success
  type: dict
  sample: {before: 21.4, after: 3.0}
text:
  description: The table.
  returned: success
  type: str
"""
