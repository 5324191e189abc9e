# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: the inventory's state of a guest that was just created."""

from __future__ import annotations

DOCUMENTATION = r"""
name: created_guest
short_description: Find a new guest in the inventory
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns the name under which the inventory shows a guest that the role P(corral.virt.guests#role) has created, and
    whether a playbook should wait until Ansible reaches the guest.
  - A guest is waited for if it runs, has a seed, and the inventory plugin P(corral.virt.virt#inventory) is in use.
positional: _input, placed, groups, hostvars
options:
  _input:
    description: Options of the guest, as M(corral.virt.virt_domain) takes them.
    type: dict
    required: true
  placed:
    description: What M(corral.virt.virt_place) returned.
    type: dict
    required: true
  groups:
    description: The groups of the inventory, C(groups).
    type: dict
    required: true
  hostvars:
    description: The variables of all hosts, C(hostvars).
    type: dict
    required: true
  awaited:
    description: Whether to wait for guests at all. Set V(false) in check mode, or if the inventory is not read again.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Reach the guest
  ansible.builtin.wait_for_connection:
  delegate_to: "{{ created.shown }}"
  when: created.reached
  vars:
    wanted: {name: web1, state: running}
    created: "{{ wanted | corral.virt.created_guest(placed, groups, hostvars, awaited=not ansible_check_mode) }}"
"""

RETURN = r"""
_value:
  description:
    - C(shown) is the guest's name in the inventory.
    - C(reached) says whether to wait for the guest.
    - C(problem) says why the guest is missing or cannot be reached. Empty if there is no problem.
  type: dict
"""

from ansible_collections.corral.virt.plugins.plugin_utils._commands.provided_filters import provided
from ansible_collections.corral.virt.plugins.plugin_utils._inventory import created_guests

FilterModule = provided(created_guest=created_guests.created)
