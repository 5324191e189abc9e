#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_report
short_description: Print a report over all hypervisors
version_added: 0.1.0
description:
  - Prints what the info modules returned for many hosts as one text. The playbooks C(query), C(list) and C(host_info)
    use it. O(kind=steps) prints what M(corral.virt.virt_domains) did on each host.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.controller
options:
  kind:
    description: Which report.
    type: str
    required: true
    choices: [query, list, host_info, steps, console, migrations]
  results:
    description: >-
      Registered results of M(corral.virt.virt_domain_info), M(corral.virt.virt_host_info) or
      M(corral.virt.virt_domains), by host.
    type: dict
    required: true
  group:
    description: All hosts that should be there; those without a result are shown as not reached.
    type: list
    elements: str
    required: true
  guest:
    description: Only these guests.
    type: list
    elements: str
  format:
    description:
      - How the report is written. V(seed) is the text that the users of Salt Virt know, V(table) is for people, and
        V(json) for programs; its shape is in the guide of commands.
      - V(table) and V(json) are for O(kind=query), O(kind=list) and O(kind=host_info).
      - Figures of how busy hosts and guests are need O(corral.virt.virt_domain_info#module:load=true).
    type: str
    choices: [seed, table, json]
    default: seed
  out:
    description:
      - A file on the controller that the report is written to, instead of printing it; a relative path begins where
        Ansible was started. It is replaced as a whole.
    type: str
seealso:
  - plugin: corral.virt.report
    plugin_type: callback
"""

EXAMPLES = r"""
- name: Print every host and guest
  corral.virt.virt_report:
    kind: query
    group: "{{ groups['hyper'] }}"
    results: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'virt_found'))) }}"
  run_once: true

- name: Write the same for a program
  corral.virt.virt_report:
    kind: query
    format: json
    out: hosts.json
    group: "{{ groups['hyper'] }}"
    results: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'virt_found'))) }}"
  run_once: true
"""

RETURN = r"""
text:
  description: What was printed, or written.
  returned: success
  type: str
out:
  description: The file, as an absolute path.
  returned: with O(out)
  type: str
missing:
  description: Hosts that could not be asked.
  returned: success
  type: list
  elements: str
"""
