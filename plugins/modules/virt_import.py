#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_import
short_description: Write existing guests to files, as variables
version_added: 0.1.0
description:
  - Writes the arguments that M(corral.virt.virt_domain_info) returns for guests into files on the controller, as YAML.
  - A text from a host is never a template. Where an argument needs a secret, the file has a placeholder such as
    C(vault_web1_graphics_password), to be set with C(ansible-vault).
  - Prints the remaining work for each guest. Either all guests are written, or none.
  - Guests with the same name on several hosts are refused, and so are arguments that do more than describe a guest.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.controller
options:
  guests:
    description: Guests to write, from RV(corral.virt.virt_find#module:guests).
    type: list
    elements: dict
    required: true
  results:
    description: Registered results of M(corral.virt.virt_domain_info) with
      O(corral.virt.virt_domain_info#module:arguments), by host.
    type: dict
    required: true
  compared:
    description: Registered results of M(corral.virt.virt_domains) in check mode with these arguments, by host. A guest
      that they would change is refused, and so is a guest without a result. By default, nothing is compared.
    type: dict
    default: {}
  dest:
    description: File for V(list), or directory for V(host_vars).
    type: path
    required: true
  form:
    description: V(list) writes one file with the variable C(virt_guests), for the role P(corral.virt.guests#role).
      V(host_vars) writes a file with the variable C(virt_guest) for each guest.
    type: str
    choices: [list, host_vars]
    default: list
  replace:
    description: Replace a file that exists with other content.
    type: bool
    default: false
seealso:
  - module: corral.virt.virt_domain_info
"""

EXAMPLES = r"""
- name: Describe the guests
  corral.virt.virt_domain_info:
    arguments: minimal
  register: virt_described

- name: Write the guests of this host
  corral.virt.virt_import:
    guests: "{{ virt_described.domains | map('combine', {'host': inventory_hostname}) }}"
    results: "{{ {inventory_hostname: virt_described} }}"
    dest: group_vars/all/guests.yml
  run_once: true
"""

RETURN = r"""
files:
  description: Paths of the files.
  returned: success
  type: list
  elements: str
notes:
  description: The remaining work - secrets to set, and settings that no argument describes.
  returned: success
  type: list
  elements: str
"""
