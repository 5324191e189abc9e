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
  - Edits a C(known_hosts) file on the controller once for many guests. Lines with other names, comments and lines with
    a marker (C(@cert-authority), C(@revoked)) stay unchanged; hashed names are supported.
  - It runs as the user who runs Ansible, whatever C(become) is. A task that is delegated to C(localhost) becomes root
    if the inventory or an extra variable sets C(ansible_become), even if the task sets C(become=false).
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.controller
attributes:
  check_mode:
    description: Predicts the change and writes nothing.
  diff_mode:
    description: Shows the lines that change.
    support: full
options:
  path:
    description:
      - The file, created if it does not exist.
      - If it is C(~/.config/corral/known_hosts), and the home directory cannot be written, as in a job in a container,
        the module changes nothing and says so in RV(msg).
    type: path
    required: true
  keys:
    description: Public keys, by guest name. A key replaces another key of the same type.
    type: dict
    default: {}
  absent:
    description: Names whose keys are removed.
    type: list
    elements: str
    default: []
  renamed:
    description: New names, by old name. The keys of the old name move to the new name, and replace its keys.
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

- name: Remove a guest's host key
  corral.virt.virt_known_hosts:
    path: ~/.config/corral/known_hosts
    absent: [web1]
  run_once: true
"""

RETURN = r"""
msg:
  description: Why nothing was written.
  returned: when O(path) is the default, and the home directory cannot be written
  type: str
"""
