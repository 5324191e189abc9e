#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Open ports in the firewall that a hypervisor runs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_firewall
short_description: Open ports of a hypervisor in the firewall that it runs
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Opens ports for named sources in nftables, firewalld, ufw or iptables (C(netfilter-persistent),
    C(iptables-services)), in the running firewall and for the next boot. The rest of the policy is left alone.
  - The module uses the first of firewalld, ufw, nftables and iptables that the host runs or starts at boot. Without any
    there is nothing to do, and RV(manager) is V(none).
  - Rules of this module carry the comment C(corral.virt), so that it finds and replaces them. In firewalld rules have
    no comment, so none is removed there.
  - In nftables the rules go to the beginning of every chain that drops incoming packets and is defined by the
    configuration, because accepting in a table of its own does not override another table. They are kept in
    C(/etc/corral-virt/firewall.nft), which the configuration then includes at its end. A chain that drops all other
    packets and is defined in neither is refused.
  - The module only adds rules that accept, so it never closes the connection it came by.
  - Role P(corral.virt.firewall#role) finds the sources in the inventory.
options:
  ports:
    description:
      - Ports and ranges to open, each with C(/tcp) or C(/udp).
      - The default is the port of libvirt over TLS and those of live migration.
    type: list
    elements: str
    default: [16514/tcp, 49152-49215/tcp]
  sources:
    description:
      - Addresses and networks that may reach the ports. V(any) admits everybody.
      - An empty list admits only O(source_names). If these are empty too, nobody is admitted, and rules of this module
        are removed.
    type: list
    elements: str
    required: true
  source_names:
    description:
      - Names of hosts that may reach the ports. The addresses are those that the resolver of the managed host knows.
      - Such an address may be outdated or missing, so while any name is given, no rule is removed.
    type: list
    elements: str
    default: []
  purge:
    description:
      - Remove rules of this module that are no longer wanted, except from firewalld.
      - With V(false), or with O(source_names), rules are only added.
    type: bool
    default: true
  controller:
    description: Also admit the address from which Ansible reaches the host by SSH.
    type: bool
    default: false
extends_documentation_fragment:
  - corral.virt.connection.attributes
attributes:
  diff_mode:
    description: Shows the rules that are added and removed, for each place that holds rules.
  platform:
    description: Linux.
seealso:
  - ref: corral.virt.firewall role <ansible_collections.corral.virt.firewall_role>
    description: Opens the ports between all hypervisors of the inventory and the controller.
"""

EXAMPLES = r"""
- name: Let two hypervisors and the network of AWX reach libvirt and migrate guests
  corral.virt.virt_firewall:
    sources: [192.0.2.11, 192.0.2.12, 198.51.100.0/24]

- name: Open the default ports and those of GlusterFS, also to a host whose address is not in the inventory
  corral.virt.virt_firewall:
    ports: [16514/tcp, 24007-24008/tcp, 49152-60999/tcp]
    sources: ["2001:db8::/64"]
    source_names: [hyper3.example.org]

- name: Remove the rules of this module
  corral.virt.virt_firewall:
    sources: []
"""

RETURN = r"""
manager:
  description: The firewall that the host runs.
  returned: success
  type: str
  sample: nftables
steps:
  description: What was done, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [open 16514/tcp 49152-49215/tcp in the running nftables, write /etc/corral-virt/firewall.nft]
unknown:
  description: Names of O(source_names) without an address. They are not newly admitted.
  returned: success
  type: list
  elements: str
  sample: [hyper3.example.org]
"""

from ansible_collections.corral.virt.plugins.module_utils._front.firewall import OPTIONS, converge
from ansible_collections.corral.virt.plugins.module_utils._front.module import Module, failures
from ansible_collections.corral.virt.plugins.module_utils._run import Gate


def main() -> None:
    """Entry point."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    with failures(module):
        result = converge(module.params, Gate(check_mode=module.check_mode))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
