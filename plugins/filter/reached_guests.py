# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: addresses of guests that were just started."""

from __future__ import annotations

DOCUMENTATION = r"""
name: reached_guests
short_description: Find the addresses at which started guests are reached
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns, for each guest, its name in the inventory and the address at which a playbook reaches the guest. An address
    that the inventory knows comes before one that the role P(corral.virt.guests#role) has found with
    M(corral.virt.virt_addresses).
positional: _input, groups, hostvars
options:
  _input:
    description: The guests, as M(corral.virt.virt_find) returns them.
    type: list
    elements: dict
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
- name: Show where the guests are reached
  ansible.builtin.debug:
    msg: "{{ chosen.guests | corral.virt.reached_guests(groups, hostvars) }}"
"""

RETURN = r"""
_value:
  description:
    - C(name) is the guest's name, and C(host) its hypervisor.
    - C(shown) is its name in the inventory.
    - C(known) says whether the inventory has an address for the guest.
    - C(address) is the address; empty if nobody knows one.
  type: list
  elements: dict
"""

from ansible_collections.corral.virt.plugins.plugin_utils._commands.provided_filters import provided
from ansible_collections.corral.virt.plugins.plugin_utils._inventory import created_guests

FilterModule = provided(reached_guests=created_guests.reached)
