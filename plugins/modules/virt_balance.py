#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_balance
short_description: Plan which guests move so that hypervisors are loaded evenly
version_added: 0.1.0
description:
  - Decides by what M(corral.virt.virt_host_info) said of the hosts, and prints the plan as a table. It moves nothing;
    M(corral.virt.virt_migrations) does.
  - Only running guests move, by the rules of M(corral.virt.virt_place); memory counts twice as much as processors.
    Hosts in maintenance neither give nor take. The moves can be done in any order.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.controller
  - corral.virt.controller.overcommit
options:
  hosts:
    description: Registered results of M(corral.virt.virt_host_info), by host. A host without one counts as not reached,
      and is left alone.
    type: dict
    required: true
  max_moves:
    description: Moves at most.
    type: int
    default: 10
  min_gain:
    description:
      - Percent points by which a move must lower the imbalance. The imbalance is how far the hosts' load is from their
        mean (a standard deviation, bigger hosts counting more).
    type: float
    default: 1.0
  stay:
    description: Names of guests that are not to move.
    type: list
    elements: str
    default: []
seealso:
  - module: corral.virt.virt_place
"""

EXAMPLES = r"""
- name: Plan
  corral.virt.virt_balance:
    hosts: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'virt_host'))) }}"
    max_moves: 4
    stay: [db1]
  run_once: true
  register: planned
"""

RETURN = r"""
moves:
  description: The plan, the best move first, with C(gain) in percent points and what it may cost in C(cost_mib) of
    memory and disks; before it, those that an interrupted migration has begun (C(gain) 0).
  returned: success
  type: list
  elements: dict
  sample: [{name: web1, source: hyper1, dest: hyper2, gain: 7.3, cost_mib: 2358}]
imbalance:
  description: C(before) and C(after) in percent points.
  returned: success
  type: dict
  sample: {before: 21.4, after: 3.0}
text:
  description: The table.
  returned: success
  type: str
"""
