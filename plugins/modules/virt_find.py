#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_find
short_description: Find the guests that a playbook is about
version_added: 0.1.0
description:
  - Finds guests by name, pattern or tag in the results of M(corral.virt.virt_state_info) from all hypervisors, each
    guest on the one host that has it.
  - All problems are reported together, and then no guest is returned. Problems are a guest that no host has (reported
    with similar names and the hosts that were not queried), a guest that is on two hosts, a pattern or tag that matches
    no guest, and a state in which the action is not possible.
  - If the action is destructive and a pattern or tag selects the guests, their number must be confirmed (C(confirm)).
    Check mode shows the question, and does not require the answer.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.controller
options:
  action:
    description: Action to perform on the guests.
    type: str
    required: true
    choices: [start, shutdown, reboot, force_off, reset, pause, resume, purge, console, create, change, add_disk,
      remove_disk, add_nic, remove_nic, insert_iso, eject, migrate, move_disk, snapshot, revert,
      delete_snapshot, backup, rename, import]
  arguments:
    description: Arguments of the action, from RV(corral.virt.virt_arguments#module:arguments).
    type: dict
    required: true
  results:
    description: Registered results of M(corral.virt.virt_state_info) or M(corral.virt.virt_host_info), by host. A host
      without a result counts as unreachable.
    type: dict
    required: true
  expected:
    description: The only guests that the action may touch, each with C(name), C(uuid), C(host) and C(tags). If the
      action would touch others, it fails.
    type: list
    elements: dict
"""

EXAMPLES = r"""
- name: Find the guests
  corral.virt.virt_find:
    action: start
    arguments: {guest: [web1, 'c*']}
    results: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'virt_found'))) }}"
  run_once: true
  register: virt_chosen
"""

RETURN = r"""
guests:
  description: The guests, with C(name), C(uuid), C(host) and C(state).
  returned: success
  type: list
  elements: dict
  sample: [{name: web1, uuid: 5f3c0a52-3f6b-4a8e-9a55-0d3b8f0c9c11, host: hyper2, state: shutdown}]
domains:
  description: Value of option C(domains) of M(corral.virt.virt_domains) for each host.
  returned: success
  type: dict
  sample: {hyper2: [{name: web1, uuid: 5f3c0a52-3f6b-4a8e-9a55-0d3b8f0c9c11, state: running}]}
missing:
  description: Names and patterns of which there is no guest, with C(missing_ok) among O(arguments).
  returned: success
  type: list
  elements: str
unasked:
  description: Hypervisors that C(--limit) excludes, or that did not answer. One of them may have the same guest.
  returned: success
  type: list
  elements: str
namesakes:
  description: Names of these guests that hypervisors have more than once.
  returned: success
  type: list
  elements: str
"""
