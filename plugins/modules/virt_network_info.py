#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read virtual networks."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_network_info
short_description: Read virtual networks
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns the definition, state and DHCP leases of the virtual networks of a host, as options of
    M(corral.virt.virt_network).
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.info
options:
  name:
    description: Return only this network. The list is empty if the host has no such network.
    type: str
  arguments:
    description:
      - Also return the arguments of M(corral.virt.virt_network) that describe each network, derived from its
        definition, however it was created.
      - Applying these arguments to the network changes nothing. Settings that no option covers are omitted, and stay
        unchanged.
    type: bool
    default: false
seealso:
  - module: corral.virt.virt_network
"""

EXAMPLES = r"""
- name: Read all networks of the host
  corral.virt.virt_network_info:
  register: found

- name: Read a network that was created by hand
  corral.virt.virt_network_info:
    name: default
    arguments: true
  register: made_by_hand

- name: Save its arguments in a file
  ansible.builtin.copy:
    content: "{{ made_by_hand.networks[0].arguments | ansible.builtin.to_nice_yaml }}"
    dest: network.yml
    mode: "0644"
  delegate_to: localhost
  when: made_by_hand.networks | length > 0
"""

RETURN = r"""
networks:
  description: The networks, by name. In addition to the values below, each network has the options of
    M(corral.virt.virt_network) for which it has values.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: Name., type: str, returned: always}
    uuid: {description: UUID., type: str, returned: always}
    persistent: {description: Whether a definition is stored., type: bool, returned: always}
    active: {description: Whether it runs., type: bool, returned: always}
    autostart: {description: Whether it starts when the host starts., type: bool, returned: always}
    mode: {description: How guests reach other networks., type: str, returned: always}
    leases:
      description: Leases of its DHCP server.
      type: list
      elements: dict
      returned: always
      contains:
        ip: {description: The address., type: str, returned: always}
        mac: {description: MAC address of the client., type: str, returned: always}
        hostname: {description: Name of the client., type: str, returned: always}
        id: {description: DHCP unique identifier of the client., type: str, returned: always}
        expires: {description: "End of the lease, in seconds since 1970.", type: int, returned: always}
    arguments:
      description: Arguments of M(corral.virt.virt_network) that describe the network.
      type: dict
      returned: with O(arguments)
"""

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._network.fields_network import NETWORK_SCHEMA
from ansible_collections.corral.virt.plugins.module_utils._network.libvirt_network_lookup import (
    NETWORK_TYPE,
    leases,
    networks,
)
from ansible_collections.corral.virt.plugins.module_utils._noun import run_noun_info

OPTIONS = {**URI_OPTION, **run_noun_info.options(NETWORK_SCHEMA)}


def main() -> None:
    """Open, read, tell."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    rows = []
    with failures(module):
        with opened(module.params["uri"], readonly=True) as connection:
            rows = run_noun_info.rows(
                NETWORK_SCHEMA,
                NETWORK_TYPE,
                networks(connection),
                module.params,
                lambda network, _found: {"leases": leases(network)},
            )
    module.exit_json(changed=False, networks=rows)


if __name__ == "__main__":
    main()
