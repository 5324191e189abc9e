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
  - Decides from the results of M(corral.virt.virt_host_info), and explains every choice and every refusal.
  - Checks all options of all guests first, as M(corral.virt.virt_domain) would, and reports every problem.
  - An existing guest stays where it is. While a host of O(group) is unreachable, a guest that is not seen to run
    elsewhere is deferred, not created or started a second time.
  - Of several guests with one name, the one with the C(uuid) of its item is meant, else the one on the C(host) of its
    item; without these none is created or changed, and the guest is deferred. So is a guest of which copies are off on
    several hosts, without the C(host).
  - A guest whose UUID runs on another host under another name is deferred, too.
  - An existing guest that is off and that the same batch starts (C(state=running)) counts in full on its host.
  - A new guest with the name of a host in the inventory is refused, unless that host is in the group C(guests).
  - Without O(leave), warns for each member of a cluster with Pacemaker (role P(corral.virt.cluster#role)) after whose
    loss the others would have no room for all of its protected guests.
  - With O(leave), existing guests on these hosts are placed on other hosts. Guests that fit nowhere are listed, but are
    not a failure.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.controller
  - corral.virt.controller.overcommit
options:
  guests:
    description:
      - The guests, with C(name), C(vcpus), C(memory), C(interfaces) and C(disks) as in M(corral.virt.virt_domain), and
        these keys for placement only. A new guest whose C(image) is called by its name in the catalogue needs no
        C(vcpus) and no C(memory); an unknown name is refused. The variable C(virt_images_catalogue) adds names.
      - C(host) is the hypervisor that the guest must be on. C(host_groups) are groups of the inventory; the hypervisor
        must be in all of them. C(prefer) are hypervisors or groups; one of them is chosen where one has room.
      - C(apart) is a word, or a list of words; guests with the same word never share a host. C(together) is the same
        for guests that must share a host; they are placed all or none.
      - C(requires) is a dictionary of the oldest versions of C(libvirt), C(qemu) and C(kernel) that the hypervisor must
        have. Options that need a recent libvirt require it by themselves.
      - Tag guests with C(apart-WORD), C(together-WORD), C(host_groups-GROUP) and C(requires-PROGRAM-VERSION) so that
        later runs without them know it; the role P(corral.virt.guests#role) does this.
      - A host also needs the bridges, active networks and active pools that the guest uses, its C(machine) and CPU
        model (C(cpu)) where they are given, UEFI firmware, secure boot and C(swtpm) for guests with C(firmware=efi),
        C(secure_boot) and an emulated C(tpm), and the PCI, USB and mediated devices of the host that the guest names
        (C(hostdevs), C(interfaces), C(disks), C(xml)). No other guest that runs or starts with the host may use these.
    type: list
    elements: dict
    default: []
  hosts:
    description: Registered results of M(corral.virt.virt_host_info), by host. A host without a result counts as
      unreachable.
    type: dict
    required: true
  group:
    description: All hypervisors, including unreachable ones. Defaults to the keys of O(hosts).
    type: list
    elements: str
  gone:
    description: Hypervisors of O(group) that are known to be dead. Guests are placed as if these did not exist.
    type: list
    elements: str
    default: []
  leave:
    description:
      - Hypervisors to evacuate, for example before maintenance. They also take no new guests. All of them must have
        been reached.
    type: list
    elements: str
    default: []
  only:
    description: Move only these guests from the hosts of O(leave). By default all guests move.
    type: list
    elements: str
  refused:
    description: Hypervisors that cannot take a guest, each with C(name) of the guest, C(host), and C(why), as a check
      of the migration (M(corral.virt.virt_migrations)) has found. The guest is not placed there.
    type: list
    elements: dict
    default: []
  running_only:
    description: Move only running and paused guests from the hosts of O(leave). Guests that are off stay there, and are
      not listed.
    type: bool
    default: false
  stay:
    description: UUIDs of guests that, if they are off, stay on the hosts of O(leave), and are not listed.
    type: list
    elements: str
    default: []
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

- name: Choose destinations for the guests of hyper1
  corral.virt.virt_place:
    leave: [hyper1]
    group: "{{ groups['hyper'] }}"
    hosts: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'virt_host'))) }}"
  run_once: true
  register: placed

- name: Choose a destination for one guest of hyper1
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
positions:
  description: Positions in O(guests), from 0, of the guests of each hypervisor, by name.
  returned: success
  type: dict
  sample: {hyper1: {web1: 0}, hyper2: {web2: 1}}
rooms:
  description: What all guests of each host may use together, for O(corral.virt.virt_domains#module:room).
  returned: success
  type: dict
  sample: {hyper1: {memory_mib: 15872, vcpus: 32}}
explained:
  description: One line per guest, with its hypervisor, or that it is refused or deferred, and the reason.
  returned: success
  type: list
  elements: str
moves:
  description: Guests that leave a host of O(leave), with C(name), C(source), C(dest), C(state), C(memory_mib),
    C(disk_mib) and C(why). Running guests come first, the largest first; guests whose migration from there is
    unresolved come last.
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
  description: Guests that are neither created nor changed now, because a host that may have them is unreachable, they
    are being migrated, or it is not known which of several guests or copies is meant. The others are placed.
  returned: success
  type: list
  elements: str
unclear:
  description: A line for each guest of RV(deferred) of which it is not known which of several guests or copies is
    meant, with what chooses one.
  returned: success
  type: list
  elements: str
"""
