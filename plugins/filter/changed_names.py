# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: names of guests that a playbook has removed or renamed."""

from __future__ import annotations

DOCUMENTATION = r"""
name: changed_names
short_description: List the names of guests that were removed or renamed
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns which of the guests that M(corral.virt.virt_find) has found were removed, and which were renamed, as
    M(corral.virt.virt_known_hosts) takes it.
  - A guest counts if its own hypervisor did not fail for it. A renamed guest is left out if another guest has its old
    name, because the key may belong to that guest. No guest counts as removed if not all hypervisors have answered,
    because one of them may have it.
positional: _input, results
options:
  _input:
    description: What M(corral.virt.virt_find) returned.
    type: dict
    required: true
  results:
    description: What M(corral.virt.virt_domains) returned, by host.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Forget the keys of removed guests
  corral.virt.virt_known_hosts:
    path: ~/.config/corral/known_hosts
    absent: "{{ names.absent }}"
    renamed: "{{ names.renamed }}"
  vars:
    names: "{{ found | corral.virt.changed_names({'hyper1': hostvars.hyper1.changed}) }}"
"""

RETURN = r"""
_value:
  description: Names of removed guests as C(absent), and new names by old ones as C(renamed).
  type: dict
"""

from ansible_collections.corral.virt.plugins.plugin_utils._commands.provided_filters import provided
from ansible_collections.corral.virt.plugins.plugin_utils._inventory import created_guests

FilterModule = provided(changed_names=created_guests.new_names)
