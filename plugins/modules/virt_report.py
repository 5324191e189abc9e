#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_report
short_description: Print a report of all hypervisors
version_added: 0.1.0
description:
  - Prints the results of the info modules from many hosts as one text. The playbooks C(query), C(list) and C(host_info)
    use it. O(kind=steps) prints what M(corral.virt.virt_domains) did on each host, and O(kind=disk_moves) what
    M(corral.virt.virt_disk_move) or M(corral.virt.virt_pool_drain) did.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.controller
options:
  kind:
    description: Type of report.
    type: str
    required: true
    choices:
      - query
      - list
      - host_info
      - steps
      - console
      - migrations
      - disk_moves
      - images
      - pools
      - volumes
      - snapshots
      - backups
      - files
  results:
    description: >-
      Registered results of M(corral.virt.virt_domain_info), M(corral.virt.virt_state_info),
      M(corral.virt.virt_host_info), M(corral.virt.virt_image_info), M(corral.virt.virt_pool_info),
      M(corral.virt.virt_volume_info), M(corral.virt.virt_snapshot_info), M(corral.virt.virt_backup_info),
      M(corral.virt.virt_backup_files) or M(corral.virt.virt_domains), by host.
    type: dict
    required: true
  group:
    description: All expected hosts. Hosts without a result are shown as unreachable.
    type: list
    elements: str
    required: true
  guest:
    description: Report only these guests.
    type: list
    elements: str
  format:
    description:
      - Output format. V(seed) is the text that users of Salt Virt know, V(table) is for people, and V(json) is for
        programs; the guide of commands describes its structure.
      - V(table) and V(json) are available for O(kind=query), O(kind=list) and O(kind=host_info), and for
        O(kind=images), O(kind=pools), O(kind=volumes), O(kind=snapshots), O(kind=backups) and O(kind=files), for which
        V(seed) is V(table).
      - Load figures of hosts and guests require O(corral.virt.virt_domain_info#module:load=true).
    type: str
    choices: [seed, table, json]
    default: seed
  out:
    description:
      - File on the controller to which the report is written instead of being printed. A relative path starts at the
        directory in which Ansible was started. The file is replaced as a whole.
    type: str
seealso:
  - plugin: corral.virt.report
    plugin_type: callback
"""

EXAMPLES = r"""
- name: Print all hosts and guests
  corral.virt.virt_report:
    kind: query
    group: "{{ groups['hyper'] }}"
    results: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'virt_found'))) }}"
  run_once: true

- name: Write the same report as JSON to a file
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
  description: Text that was printed or written.
  returned: success
  type: str
out:
  description: Absolute path of the file.
  returned: with O(out)
  type: str
missing:
  description: Hosts that could not be queried.
  returned: success
  type: list
  elements: str
"""
