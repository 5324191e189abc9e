# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: guests that start when the maintenance of their host ends."""

from __future__ import annotations

DOCUMENTATION = r"""
name: starting_guests
short_description: Choose the guests that start when the maintenance of their hypervisor ends
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns the guests that could not start, or were stopped, during a maintenance, and separately those that must stay
    off, because they run on another hypervisor or may do so. The role P(corral.virt.maintenance#role) uses it.
positional: _input, seen, group, noted
options:
  _input:
    description: Name of the hypervisor.
    type: str
    required: true
  seen:
    description: What M(corral.virt.virt_host_info) returned of the hypervisor, and M(corral.virt.virt_state_info) or
      M(corral.virt.virt_host_info) of the others, by host.
    type: dict
    required: true
  group:
    description: Hypervisors on which its guests may run.
    type: list
    elements: str
    required: true
  noted:
    description: UUIDs of guests that are to start.
    type: list
    elements: str
    required: true
  booted:
    description: Whether the hypervisor has booted in maintenance. Then guests with C(autostart) are to start, too.
    type: bool
    default: false
  stopped:
    description: Names of guests that ran on the hypervisor until this run stopped them. They start although a
      hypervisor of O(group) has not answered.
    type: list
    elements: str
    default: []
  hidden:
    description: Hypervisors of O(group) that C(--limit) excludes.
    type: list
    elements: str
    default: []
  gone:
    description: Hypervisors of O(group) that were declared dead. No guest is taken to run there.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Start the guests
  corral.virt.virt_state:
    domains: "{{ due.now }}"
  vars:
    seen: {hyper1: "{{ hostvars.hyper1.seen }}", hyper2: "{{ hostvars.hyper2.seen }}"}
    due: "{{ 'hyper1' | corral.virt.starting_guests(seen, groups.hyper, [], booted=true) }}"
"""

RETURN = r"""
_value:
  description: C(now), the guests to start, as M(corral.virt.virt_state) takes them; and C(off), those that stay off,
    each with its C(name), C(uuid), the reason C(why), and C(may_start), true if the only reason is that nothing is
    known of a hypervisor, or that the guest is off on another one by now.
  type: dict
"""

from ansible_collections.corral.virt.plugins.plugin_utils._commands import hosted_guests
from ansible_collections.corral.virt.plugins.plugin_utils._commands.provided_filters import provided

FilterModule = provided(starting_guests=hosted_guests.starting)
