#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_arguments
short_description: Check the arguments of a playbook of this collection
version_added: 0.1.0
description:
  - Reads the extra variables of the run (C(-e), a survey) and the variables of the play (C(vars) beside
    C(import_playbook)), checks them against the action catalogue, and returns them converted and with defaults. The
    text V(false) means false.
  - All problems are reported together. A variable is refused if its name is similar to that of an argument, or if it
    belongs to another playbook. Variables of the inventory and of the roles, and variables that begin with C(ansible_),
    C(awx_), C(tower_), C(semaphore_), C(virt_), C(corral_) or C(_), are allowed.
  - An empty text means that the argument is not given, as web forms send questions that nobody has answered. Lists and
    dictionaries may be written as JSON or YAML.
  - A hypervisor on which the action works must be in the group, and not excluded by C(--limit).
  - Hosts that are declared gone (C(gone)) must be in the group, must not answer, and must be confirmed by name
    (C(confirm), or at the terminal).
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.controller
options:
  action:
    description: The action that the arguments belong to.
    type: str
    required: true
    choices: [start, shutdown, reboot, force_off, reset, pause, resume, purge, console, create, change, add_disk,
      remove_disk, add_nic, remove_nic, insert_iso, eject, migrate, move_disk, snapshot, revert, delete_snapshot,
      backup, restore, restore_group, restore_files, prove, rename, import, from_salt, simulate, query, list,
      host_info, pools, volumes, snapshots, backups, create_volume, resize_volume, delete_volume, drain, recover,
      drain_pool, undrain, rebalance, rolling_update, rotate_certificates, build_image, images, site, awx_setup,
      console_server]
"""

EXAMPLES = r"""
- name: Check the arguments
  corral.virt.virt_arguments:
    action: query
  run_once: true
  register: virt_asked
"""

RETURN = r"""
arguments:
  description: Arguments that were given or have a default.
  returned: success
  type: dict
  sample: {guest: [web1, db1], virt_group: hyper}
withheld:
  description: Names of given arguments that may hold a secret; they are not in RV(arguments).
  returned: success
  type: list
  elements: str
"""
