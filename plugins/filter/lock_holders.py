# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: who has the disks of guests that a lock keeps from starting."""

from __future__ import annotations

DOCUMENTATION = r"""
name: lock_holders
short_description: Tell who has the disks of guests that a lock keeps from starting
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Finds, for each guest that could not start as its disk is locked, the guests on all hypervisors that run with its
    disks.
positional: _input, host, told
options:
  _input:
    description: What M(corral.virt.virt_state) returned on the hypervisor.
    type: dict
    required: true
  host:
    description: Name of the hypervisor in the inventory.
    type: str
    required: true
  told:
    description: By hypervisor, what M(corral.virt.virt_query) returned there.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Report what failed
  ansible.builtin.fail:
    msg: "{{ started.msg }}{{ started | corral.virt.lock_holders(inventory_hostname, queried) }}"
  when: started is failed
"""

RETURN = r"""
_value:
  description: A text to be appended to the error, with C(; ) in front; empty if no lock was the cause.
  type: str
"""

from ansible_collections.corral.virt.plugins.plugin_utils._commands import lock_holders
from ansible_collections.corral.virt.plugins.plugin_utils._commands.provided_filters import provided

FilterModule = provided(lock_holders=lock_holders.holders)
