# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: where the guests of a group are restored, and from which backups."""

from __future__ import annotations

DOCUMENTATION = r"""
name: restored_group
short_description: Decide where the guests of a group are restored, and from which backups
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns the guests that have a tag in their backups, each with the hypervisor on which it is restored and the ID of
    its backup, and all problems, such as a guest that no hypervisor has, a name that is taken, or a repository that
    lacks the backup.
  - The playbook C(restore_group) uses it.
positional: _input, found, arguments
options:
  _input:
    description: What M(corral.virt.virt_backup_info) returned with the tag, by host, also of those where it failed.
    type: dict
    required: true
  found:
    description: What M(corral.virt.virt_state_info) returned, by host. All hypervisors that may have the guests must be
      among them.
    type: dict
    required: true
  arguments:
    description: C(tag), C(host), C(suffix), C(start_order) and C(confirm) of the playbook.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show what would be restored
  ansible.builtin.debug:
    msg: "{{ backups | corral.virt.restored_group(found, {'tag': 'shop', 'suffix': '-then', 'host': 'hyper2'}) }}"
  vars:
    backups: {hyper1: "{{ hostvars.hyper1.backups }}", hyper2: "{{ hostvars.hyper2.backups }}"}
    found: {hyper1: "{{ hostvars.hyper1.found }}", hyper2: "{{ hostvars.hyper2.found }}"}
"""

RETURN = r"""
_value:
  description: With C(guests), in the order in which they are started, each with C(guest), its name then, C(uuid),
    C(name), C(host), C(point), and C(in_place), whether its disks are replaced; and with C(problems), a list of texts.
  type: dict
"""

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._commands import restored_group as _group
from ansible_collections.corral.virt.plugins.plugin_utils._commands.provided_filters import provided


def restored_group(
    backups: t.Mapping[str, t.Any], found: t.Mapping[str, t.Any], arguments: t.Mapping[str, t.Any]
) -> dict[str, t.Any]:
    """The guests of the group, and problems."""
    guests, problems = _group.restored(backups, found, arguments)
    return {"guests": [dataclasses.asdict(one) for one in guests], "problems": problems}


FilterModule = provided(restored_group=restored_group)
