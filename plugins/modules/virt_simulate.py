#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_simulate
short_description: Simulate the loss of hypervisors and the placement of guests
version_added: 0.1.0
description:
  - Reads a cluster from a file, simulates the loss of hypervisors, adds guests, and then adds guests of one kind until
    one is refused. Each step decides as M(corral.virt.virt_place) does. No hypervisor is queried, and nothing is
    changed.
  - Prints what becomes of the guests, and the load of every hypervisor at the end.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.controller
  - corral.virt.controller.overcommit
options:
  cluster:
    description:
      - File on the controller, JSON or YAML. The playbook C(query) writes it with C(format=json) and C(out).
      - A file written by hand has a list C(hosts), each with C(name), C(cpus), C(memory_mib) and C(guests), which have
        C(name), C(vcpus), C(memory_mib) and, if needed, C(state) (V(running) by default), C(tags) and C(platform).
        Hosts may also have C(bridges), C(groups), C(domain) (their failure domain), C(maintenance) (a reason) and
        C(platform), what of V(efi), V(secure_boot) and V(tpm) guests can have there.
      - Data that the file lacks, such as the storage pools, is not checked.
    type: path
    required: true
  lose:
    description: Hypervisors or failure domains that fail. Their running guests are placed on the others.
    type: list
    elements: str
    default: []
  add:
    description: Guests to add, as in O(corral.virt.virt_place#module:guests). C(count) adds that many guests, with the
      names C(NAME-1), C(NAME-2) and so on.
    type: list
    elements: dict
    default: []
  fill:
    description: A guest to add as many times as there is room, at most 100,000 times.
    type: dict
seealso:
  - module: corral.virt.virt_place
"""

EXAMPLES = r"""
- name: Simulate the loss of a hypervisor, and fill the others
  corral.virt.virt_simulate:
    cluster: cluster.json
    lose: [hyper1]
    add:
      - {name: web, count: 10, vcpus: 2, memory: 4GiB, apart: web}
    fill: {vcpus: 2, memory: 2GiB}
  register: simulated
"""

RETURN = r"""
moved:
  description: New hypervisor of each guest of a lost one.
  returned: success
  type: dict
  sample: {web1: hyper2}
homeless:
  description: Guests of lost hypervisors for which there is no room, with the reason.
  returned: success
  type: dict
added:
  description: Hypervisor of each added guest.
  returned: success
  type: dict
refused:
  description: Added guests for which there is no room, with the reason.
  returned: success
  type: dict
fits:
  description: How many guests of O(fill) fit; null without O(fill).
  returned: success
  type: int
limit:
  description: Why no further guest of O(fill) fits.
  returned: success
  type: str
hosts:
  description: For each remaining hypervisor, its number of C(guests), C(cpus), C(vcpus_used), C(memory_mib) for guests
    and C(memory_used_mib).
  returned: success
  type: dict
text:
  description: Text that was printed.
  returned: success
  type: str
"""
