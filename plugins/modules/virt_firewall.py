#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Open ports in the firewall that a hypervisor runs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_firewall
short_description: Open ports in the firewall that a hypervisor runs
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Opens ports for the given sources in nftables, firewalld, ufw or iptables (C(netfilter-persistent),
    C(iptables-services)), in the running firewall and permanently. The rest of the policy stays unchanged.
  - The module uses the first of firewalld, ufw, nftables and iptables that the host runs or starts at boot. On a host
    without a firewall it does nothing, and RV(manager) is V(none).
  - The module marks its rules with the comment C(corral.virt), so that it can find and replace them. Rules in firewalld
    have no comment, so the module removes none there.
  - Rules of others are never removed, replaced or moved. ufw has only one rule for the same traffic; if somebody else's
    rule denies it there, the module refuses.
  - In nftables the rules go to the beginning of every chain of the configuration that drops incoming packets, because
    an accept in another table does not override the drop. The module stores them in C(/etc/corral-virt/firewall.nft),
    and the configuration includes this file at its end. Where others have added text below that line since, the module
    moves it there. A chain that drops all other packets is refused if neither the configuration nor a file that it
    includes defines the chain.
  - The module only adds rules that accept packets, so it never closes the connection that it runs over.
  - The role P(corral.virt.firewall#role) finds the sources in the inventory.
options:
  ports:
    description:
      - Ports and port ranges to open, each with C(/tcp) or C(/udp).
      - The default is libvirt's TLS port and the ports of live migration.
    type: list
    elements: str
    default: [16514/tcp, 49152-49215/tcp]
  sources:
    description:
      - Addresses and networks that may access the ports. V(any) admits everyone; V(0.0.0.0/0) and V(::/0) are refused.
      - An empty list admits only O(source_names). If both are empty, nobody is admitted, and the module removes its
        rules.
    type: list
    elements: str
    required: true
  source_names:
    description:
      - Names of hosts that may access the ports. The resolver of the managed host provides their addresses.
      - Such an address may be outdated or missing, so the module removes no rule while any name is given.
    type: list
    elements: str
    default: []
  bridges:
    description:
      - Bridges of libvirt's networks. Their guests may use DHCP and DNS of this host (53/tcp, 53/udp, 67/udp and
        547/udp), and the firewall forwards their packets and the answers. V(virbr*) is every bridge that libvirt names
        itself.
      - libvirt's own rules cannot override a firewall that drops packets in another table. They still isolate networks.
      - In firewalld, libvirt's zone C(libvirt) admits guests, so the module adds no rule. It puts a bridge that is in
        no zone into this one, and reloads firewalld if it does not know the zone yet.
    type: list
    elements: str
    default: []
  purge:
    description:
      - Remove rules of this module that are no longer wanted, except from firewalld.
      - With V(false), or with O(source_names), the module only adds rules.
    type: bool
    default: true
  controller:
    description: Also admit the address from which Ansible connects to the host by SSH.
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
- name: Admit two hypervisors and the network of AWX to libvirt and live migration
  corral.virt.virt_firewall:
    sources: [192.0.2.11, 192.0.2.12, 198.51.100.0/24]

- name: Open the default ports and those of GlusterFS, also for a host given by name
  corral.virt.virt_firewall:
    ports: [16514/tcp, 24007-24008/tcp, 49152-60999/tcp]
    sources: ["2001:db8::/64"]
    source_names: [hyper3.example.org]

- name: Admit guests of libvirt's networks to DHCP and DNS, and nobody else
  corral.virt.virt_firewall:
    ports: []
    sources: []
    bridges: [virbr*, lab0]

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
  description: Steps that were done, or in check mode would be done.
  returned: success
  type: list
  elements: str
  sample: [open 16514/tcp 49152-49215/tcp in the running nftables, write /etc/corral-virt/firewall.nft]
unknown:
  description: Names in O(source_names) without an address. They are not newly admitted.
  returned: success
  type: list
  elements: str
  sample: [hyper3.example.org]
"""

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import Module, failures
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._host.run_firewall import OPTIONS, converge


def main() -> None:
    """Entry point."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    with failures(module):
        result = converge(module.params, Gate(check_mode=module.check_mode))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
