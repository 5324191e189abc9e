# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: SSH host keys of guests that may be written into a known_hosts file."""

from __future__ import annotations

DOCUMENTATION = r"""
name: trusted_host_keys
short_description: Select the trusted SSH host keys of guests
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns the host keys that M(corral.virt.virt_domains) returned for guests that were placed on the same host that
    returned the key, one public key per guest.
  - The filter omits, with a warning, a key for a guest on another host and a text that is not one public key. A
    hypervisor therefore cannot make the controller trust a key for a guest on another hypervisor.
positional: _input
options:
  _input:
    description: RV(corral.virt.virt_place#module:placements) of M(corral.virt.virt_place), the hypervisor by guest.
    type: dict
    required: true
  results:
    description: Registered results of M(corral.virt.virt_domains), by host.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Trust the guests' host keys
  corral.virt.virt_known_hosts:
    path: ~/.config/corral/known_hosts
    keys: "{{ placed.placements | corral.virt.trusted_host_keys(results) | items2dict('name', 'ssh_host_key') }}"
  vars:
    results: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'made'))) }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: C(name) and C(ssh_host_key) of each guest.
  type: list
  elements: dict
"""

import typing as t

from ansible.utils.display import Display

from ansible_collections.corral.virt.plugins.plugin_utils._commands.provided_filters import provided
from ansible_collections.corral.virt.plugins.plugin_utils._inventory import known_hosts


def trusted_host_keys(placements: t.Mapping[str, str], results: t.Mapping[str, t.Any]) -> list[dict[str, str]]:
    """Trusted keys; warns about each other one."""
    keys, refused = known_hosts.trusted(placements, results)
    for warning in refused:
        Display().warning(warning)
    return keys


FilterModule = provided(trusted_host_keys=trusted_host_keys)
