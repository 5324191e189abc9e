# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: the group that a play runs on."""

from __future__ import annotations

DOCUMENTATION = r"""
name: group_with_hosts
short_description: Refuse a group that has no hosts
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns the name of an inventory group, or a list of its hosts without those that are gone, and fails if no host is
    left.
  - Without this check, a play for an empty group would do nothing, and the run would succeed.
positional: _input
options:
  _input:
    description: Name of the group.
    type: str
    required: true
  groups:
    description: Groups of the inventory, V(groups).
    type: dict
    required: true
  gone:
    description: Hosts to leave out, as a list or a comma-separated text. At least one host must be left.
    type: raw
    default: []
"""

EXAMPLES = r"""
# In a play: hosts: "{{ virt_group | default('hyper') | corral.virt.group_with_hosts(groups) }}"
- name: Name the hypervisors
  ansible.builtin.debug:
    msg: "{{ virt_group | default('hyper') | corral.virt.group_with_hosts(groups, gone=['hyper7']) }}"
"""

RETURN = r"""
_value:
  description: Name of the group, or a list of its hosts.
  type: raw
"""

import difflib
import typing as t

from ansible import context
from ansible.errors import AnsibleFilterError

from ansible_collections.corral.virt.plugins.plugin_utils._commands.provided_filters import provided
from ansible_collections.corral.virt.plugins.plugin_utils._inventory import dead_hosts
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable


def group_with_hosts(name: object, groups: t.Mapping[str, t.Sequence[str]], gone: object = ()) -> str | list[str]:
    """The group, or its hosts without those in `gone`; raises AnsibleFilterError if there are none."""
    if isinstance(name, str) and groups.get(name):
        absent = dead_hosts.named(gone)
        hosts = [host for host in groups[name] if host not in absent]
        if not hosts:
            raise AnsibleFilterError(f"gone: it names all hosts of the group {name}, so no host is left to query")
        return hosts if absent else name
    if context.CLIARGS.get("syntax"):  # --syntax-check needs no inventory
        return str(name)
    others = sorted(group for group, hosts in groups.items() if hosts and group not in ("all", "ungrouped"))
    if not groups.get("all"):
        raise AnsibleFilterError(
            "the inventory has no hosts; specify another: -i INVENTORY, or inventory in ansible.cfg"
        )
    near = difflib.get_close_matches(str(name), others, 1)
    remedy = f"did you mean {near[0]}?" if near else f"groups with hosts are: {', '.join(others) or 'none'}"
    raise AnsibleFilterError(printable(f"virt_group: the inventory has no hosts in the group {name}; {remedy}"))


FilterModule = provided(group_with_hosts=group_with_hosts)
