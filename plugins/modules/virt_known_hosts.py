#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_known_hosts
short_description: Keep SSH host keys of guests on the controller
version_added: 0.1.0
description:
  - Edits a C(known_hosts) file of the controller once for many guests. Lines of other names, comments and lines with a
    marker (C(@cert-authority), C(@revoked)) stay as they are; hashed names are understood.
  - It works as the user who runs Ansible, whatever C(become) says. A task that is delegated to C(localhost) becomes
    root where the inventory or an extra variable sets C(ansible_become), even when the task says C(become=false).
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.controller
attributes:
  check_mode:
    description: Predicts the change and writes nothing.
  diff_mode:
    description: Shows the lines.
    support: full
options:
  path:
    description: The file, which is made where it is missing.
    type: path
    required: true
  keys:
    description: Public key by name of a guest. Another key of the same kind is replaced.
    type: dict
    default: {}
  absent:
    description: Names whose keys are removed.
    type: list
    elements: str
    default: []
  renamed:
    description: New name by old name. The keys of the old name become those of the new one, which loses its own.
    type: dict
    default: {}
seealso:
  - plugin: corral.virt.trusted_host_keys
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Trust a guest's host key
  corral.virt.virt_known_hosts:
    path: ~/.config/corral/known_hosts
    keys:
      web1: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHfOLs5GJbA6yKcBCyMPNBAhRZBKNYdD4qX3Y0K4sFyB
  run_once: true

- name: Forget a guest
  corral.virt.virt_known_hosts:
    path: ~/.config/corral/known_hosts
    absent: [web1]
  run_once: true
"""

RETURN = r""" # """
