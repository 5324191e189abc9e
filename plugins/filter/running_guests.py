# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: guests that run on a host that is to be upgraded or rebooted."""

from __future__ import annotations

DOCUMENTATION = r"""
name: running_guests
short_description: List the guests that run on a hypervisor that is to be rebooted
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns a line for each guest that runs on a hypervisor, and for each whose migration is unfinished, with the
    remedy. The role P(corral.virt.maintenance#role) fails with these lines right before it upgrades or reboots the
    hypervisor.
positional: _input, result, act
options:
  _input:
    description: Name of the hypervisor.
    type: str
    required: true
  result:
    description: What M(corral.virt.virt_host_info) returned on the hypervisor.
    type: dict
    required: true
  act:
    description: What is to be done with it, such as V(rebooted).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Check that no guest runs
  ansible.builtin.assert:
    that: (there.running + there.arriving) | length == 0
    fail_msg: "{{ there.running + there.arriving }}"
  vars:
    there: "{{ inventory_hostname | corral.virt.running_guests(found, 'rebooted') }}"
"""

RETURN = r"""
_value:
  description: C(running), lines about all guests that run, and C(arriving), lines about those whose
    migration is unfinished. Both are empty if no guest runs.
  type: dict
"""

from ansible_collections.corral.virt.plugins.plugin_utils._commands import hosted_guests
from ansible_collections.corral.virt.plugins.plugin_utils._commands.provided_filters import provided

FilterModule = provided(running_guests=hosted_guests.running)
