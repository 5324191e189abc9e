#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_place
short_description: Choose a hypervisor for each of many guests at once
version_added: 0.1.0
description:
  - Decides by what M(corral.virt.virt_host_info) said of the hosts; says why for every choice and every refusal.
  - A guest that exists stays where it is. While a host of O(group) is not reached, a guest that is not seen to run
    elsewhere is deferred, not made or started a second time.
  - A guest that exists, is off, and is started by the same batch (C(state=running)) counts whole on its host.
  - A new guest whose name is that of a host in the inventory is refused, unless that host is in the group C(guests).
  - With O(leave), guests that exist on these hosts are placed anew, on others; those that fit nowhere are listed, and
    are no failure.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.controller
  - corral.virt.controller.overcommit
options:
  guests:
    description:
      - The guests, with C(name), C(vcpus), C(memory), C(interfaces) and C(disks) as in M(corral.virt.virt_domain), and
        for placement only C(host), the hypervisor it must be on, and C(apart), a word; guests with the same word never
        share a host. Tag guests C(apart-WORD) so that later runs without them know; role P(corral.virt.guests#role)
        does.
    type: list
    elements: dict
    default: []
  hosts:
    description: Registered results of M(corral.virt.virt_host_info), by host. A host without one counts as not reached.
    type: dict
    required: true
  group:
    description: All hypervisors, those that were not reached among them. The keys of O(hosts) when not given.
    type: list
    elements: str
  leave:
    description:
      - Hypervisors that their guests leave, as before maintenance. They take no new ones either. All of them must have
        been reached.
    type: list
    elements: str
    default: []
  only:
    description: Of the guests on the hosts of O(leave), only these leave. All of them when not given.
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Choose hypervisors
  corral.virt.virt_place:
    guests:
      - {name: web1, vcpus: 2, memory: 2GiB, apart: web}
      - {name: web2, vcpus: 2, memory: 2GiB, apart: web}
    group: "{{ groups['hyper'] }}"
    hosts: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'virt_host'))) }}"
  run_once: true
  register: placed

- name: Choose where the guests of hyper1 go
  corral.virt.virt_place:
    leave: [hyper1]
    group: "{{ groups['hyper'] }}"
    hosts: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'virt_host'))) }}"
  run_once: true
  register: placed

- name: Choose where one of them goes
  corral.virt.virt_place:
    leave: [hyper1]
    only: [web1]
    hosts: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'virt_host'))) }}"
  run_once: true
  register: placed
"""

RETURN = r"""
placements:
  description: Hypervisor by guest.
  returned: success
  type: dict
  sample: {web1: hyper1, web2: hyper2}
explained:
  description: A line for each guest, saying where it goes, or that it is refused or deferred, and why.
  returned: success
  type: list
  elements: str
moves:
  description: Guests that leave a host of O(leave), with C(name), C(source), C(dest), C(state), C(memory_mib),
    C(disk_mib) and C(why); running ones first, the biggest first; last those whose migration from there is not settled.
  returned: success
  type: list
  elements: dict
  sample:
    - {name: web1, source: hyper1, dest: hyper2, state: running, memory_mib: 2048, disk_mib: 310, why: "least loaded"}
stays:
  description: Guests that cannot leave, with C(name), C(source), C(state) and C(why).
  returned: success
  type: list
  elements: dict
deferred:
  description: Guests that are not made now because a host that may have them was not reached.
  returned: success
  type: list
  elements: str
"""
