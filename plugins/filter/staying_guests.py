# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: guests that are still on a host, and unfinished migrations."""

from __future__ import annotations

DOCUMENTATION = r"""
name: staying_guests
short_description: List the guests that stay on a hypervisor, and unfinished migrations
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns a line for each guest that could not leave a hypervisor, and for each migration that is unfinished, with the
    reason and the remedy. The role P(corral.virt.maintenance#role) fails with these lines.
positional: _input, seen, stays, moved
options:
  _input:
    description: Name of the hypervisor.
    type: str
    required: true
  seen:
    description: What M(corral.virt.virt_host_info) returned after the migrations, by host.
    type: dict
    required: true
  stays:
    description: Guests that cannot leave, as M(corral.virt.virt_place) returns them.
    type: list
    elements: dict
    required: true
  moved:
    description: What M(corral.virt.virt_migrations) returned on the hypervisor.
    type: dict
    required: true
  emptied:
    description: UUID of the hypervisor if it is to be empty. Unfinished migrations from it are then listed wherever
      their guests are, otherwise only those of guests on the hypervisor itself.
    type: str
  running_only:
    description: Set for a hypervisor that is to be empty. Then only guests that O(seen) shows there are listed, also
      those that were started or migrated there meanwhile. With V(true), guests that are off may stay.
    type: bool
  kept:
    description: UUIDs of guests that may stay while they are off.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Report the guests that stay
  ansible.builtin.assert:
    that: staying | length == 0
    fail_msg: "{{ staying }}"
  vars:
    seen: {hyper1: "{{ hostvars.hyper1.seen }}", hyper2: "{{ hostvars.hyper2.seen }}"}
    staying: "{{ 'hyper1' | corral.virt.staying_guests(seen, placed.stays, hostvars.hyper1.moved) }}"
"""

RETURN = r"""
_value:
  description: Lines of text with two headings. Empty if no guest stays and no migration is unfinished.
  type: list
  elements: str
"""

from ansible_collections.corral.virt.plugins.plugin_utils._commands import hosted_guests
from ansible_collections.corral.virt.plugins.plugin_utils._commands.provided_filters import provided

FilterModule = provided(staying_guests=hosted_guests.staying)
