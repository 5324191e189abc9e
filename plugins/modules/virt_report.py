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
  - Prints what the info modules returned for many hosts as one text, in the form that the users of Salt Virt know. The playbooks C(query),
    C(list) and C(host_info) use it. O(kind=steps) prints what M(corral.virt.virt_domains) did on each host.
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
      Registered results of M(corral.virt.virt_domain_info), M(corral.virt.virt_host_info) or M(corral.virt.virt_domains), by host.
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
"""

EXAMPLES = r"""
- name: Print every host and guest
  corral.virt.virt_report:
    kind: query
    group: "{{ groups['hyper'] }}"
    results: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'virt_found'))) }}"
  run_once: true
"""

RETURN = r"""
text:
  description: What was printed.
  returned: success
  type: str
missing:
  description: Hosts that could not be asked.
  returned: success
  type: list
  elements: str
"""
