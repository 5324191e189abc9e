#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_from_salt
short_description: Write an inventory from the states and pillars of Salt Virt
version_added: 0.1.0
description:
  - Reads states, pillars and configuration of Salt on the controller, and writes an inventory with the variables of
    this collection's roles. The playbook C(corral.virt.from_salt) runs it.
  - Nothing in Salt's files is executed. A file with Jinja or with another renderer is not read; the notes give the
    command with which Salt renders it for O(rendered).
  - Everything without a counterpart, and everything that Salt overrides itself, is listed with file, path and reason in
    RV(notes) and in C(from_salt.txt) beside the inventory. Of what is not about virtualization, only the number is
    shown. Nothing is left out silently.
  - States and pillars that describe one object are merged in Salt's order. An object that cannot be the same here is
    not written.
  - A text from Salt is never a template. A password becomes a placeholder such as C(vault_web1_graphics_password), to
    be set with C(ansible-vault).
  - A guest that M(corral.virt.virt_domain) would refuse is not written, and is listed with the reason.
  - Either all files are written, or none.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.controller
options:
  salt_root:
    description: Directories of Salt's states (C(file_roots)), such as V(/srv/salt). Of files with one path, that of the
      first directory is read, as in Salt. Images of C(salt://) addresses are looked up there.
    type: list
    elements: path
    default: []
  pillar:
    description: Directories of Salt's pillars (C(pillar_roots)), such as V(/srv/pillar).
    type: list
    elements: path
    default: []
  minion:
    description: Configuration of a minion or of the master, such as V(/etc/salt/minion). Its settings apply to all
      hypervisors.
    type: path
  rendered:
    description: Files with the output of C(salt '*' --out=yaml state.show_highstate), C(state.show_sls),
      C(state.show_lowstate) or C(pillar.items), by minion.
    type: list
    elements: path
    default: []
  hypervisors:
    description: Minions that are hypervisors. By default those that a top file names and that get variables.
    type: list
    elements: str
    default: []
  out:
    description: Directory of the inventory.
    type: path
    required: true
  replace:
    description: Replace files that exist with other content.
    type: bool
    default: false
seealso:
  - module: corral.virt.virt_import
"""

EXAMPLES = r"""
- name: Write an inventory from Salt's states and pillars
  corral.virt.virt_from_salt:
    salt_root: "{{ playbook_dir }}/salt"
    pillar: "{{ playbook_dir }}/pillar"
    hypervisors: [hyper1, hyper2]
    out: inventory
  run_once: true
"""

RETURN = r"""
files:
  description: Paths of the files.
  returned: success
  type: list
  elements: str
guests:
  description: Names of the guests that are written.
  returned: success
  type: list
  elements: str
notes:
  description: What is not converted, and what is still to be done, each with file, path and reason; then the number of
    parts of each file that are not about virtualization.
  returned: success
  type: list
  elements: str
"""
