# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: guests of a host without an address in the inventory."""

from __future__ import annotations

DOCUMENTATION = r"""
name: missing_guests
short_description: Find running guests that the inventory has no address for
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns which guests of a hypervisor lack an address in the group C(guests_running) of the inventory plugin
    P(corral.virt.virt#inventory), and what is wrong if Ansible is to reach one of them.
positional: _input, host, groups, hostvars
options:
  _input:
    description: Options of the guests, as M(corral.virt.virt_domain) takes them. Ansible is to reach guests with
      C(wait_for_ip), unless it is V(none).
    type: list
    elements: dict
    required: true
  host:
    description: Name of the hypervisor in the inventory.
    type: str
    required: true
  groups:
    description: The groups of the inventory, C(groups).
    type: dict
    required: true
  hostvars:
    description: The variables of all hosts, C(hostvars).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Check that the inventory has the guests that run
  ansible.builtin.assert:
    that: missing.problem | length == 0
    fail_msg: "{{ missing.problem }}"
  vars:
    wanted: [{name: web1, state: running, wait_for_ip: any}]
    missing: "{{ wanted | corral.virt.missing_guests(inventory_hostname, groups, hostvars) }}"
"""

RETURN = r"""
_value:
  description:
    - C(running) are the names of running guests without an address.
    - C(problem) names guests without an address that Ansible is to reach. Empty if there are none.
  type: dict
"""

from ansible_collections.corral.virt.plugins.plugin_utils._commands.provided_filters import provided
from ansible_collections.corral.virt.plugins.plugin_utils._inventory import created_guests

FilterModule = provided(missing_guests=created_guests.missing)
