#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bridge that takes over a network interface of a hypervisor."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_bridge
short_description: Create a bridge that takes over a network interface of a hypervisor
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Creates a bridge that takes over the addresses, routes and MAC address of an interface (its port). Guests on the
    bridge are on the same network as the host. Spanning tree is off, so that a guest can communicate at once.
  - Supports ports configured by ifupdown, systemd-networkd, netplan or NetworkManager. The program that configures the
    port now configures the bridge; a profile of NetworkManager that netplan wrote is changed by netplan.
  - With NetworkManager, the port's active profile becomes a port of the bridge. A new profile of the bridge gets its
    IP, DNS, DHCP and connection settings (such as the zone of firewalld), its MTU and its route metric, and starts at
    boot. Other profiles of that interface no longer start at boot. An IPv6 address of the mode C(stable-privacy)
    changes, as it depends on the name of the interface. A profile that is not in a keyfile, that uses 802.1X, or that
    comes from the kernel command line is refused, with the remedy.
  - Ansible's connection usually uses the port. With O(state=present) the module therefore only starts the switch, in a
    separate service, and returns. The service applies the new configuration in a way that a reboot undoes. It makes the
    configuration permanent when a second task with O(state=confirmed) connects over the bridge within O(timeout)
    seconds; otherwise it restores the previous network, compares it with what was there before, and the error of
    O(state=confirmed) names what is missing. C(/run/corral-bridge/result.json) on the host holds the reason
    until the next boot.
  - Addresses (also of aliases such as C(eth0:1)), routes, rules and DNS servers of the port move to the bridge, whoever
    made them. Those that no configuration file has are lost at the next boot, as before.
  - An existing bridge is used as it is. Its spanning tree changes only with O(switch_off_stp).
  - With O(vlan), the bridge is on a VLAN of the port, and the port's addresses stay where they are. The switch to it is
    tried and rolled back in the same way, because it changes the port's configuration. The host has no address in that
    VLAN, so a number that the network switch does not carry is noticed by guests only.
  - The port may be a bond or VLAN that exists; its members and options stay. The module makes no bond, because the
    ports of the network switch must change at the same moment, which no rollback of the host can restore.
  - The role P(corral.virt.bridge#role) runs both tasks and the steps between them.
options:
  name:
    description: Name of the bridge, up to 15 letters, digits, C(.), C(_) and C(-).
    type: str
    default: br0
  state:
    description:
      - V(present) - create the bridge, or start to create it, see RV(switches).
      - V(confirmed) - keep the bridge that V(present) started to create. Fails if the previous network has been
        restored meanwhile.
    type: str
    choices: [present, confirmed]
    default: present
  port:
    description:
      - Interface to add to the bridge. It must be an Ethernet interface, bond or VLAN that is neither wireless nor part
        of another bridge or bond. With O(vlan), it may be part of a bridge that does not filter VLANs.
      - V(auto) selects the interface with the default route, or else the one with O(address). For an existing bridge,
        it accepts any port.
    type: str
    default: auto
  vlan:
    description:
      - Number of a VLAN of the port, 1 to 4094, to put the bridge on. The VLAN is created, named like C(eno1.42), or
        C(vlan42) if that is longer than 15 characters.
      - A VLAN interface with that number that exists on the port becomes a port like others, and its addresses move to
        the bridge.
    type: int
  vlan_filtering:
    description:
      - Create a bridge that filters VLANs, with all VLANs on its port. A guest is in the VLAN of its interface's
        C(vlan), which requires libvirt 11.0, and in that of the host without one.
      - Excludes O(vlan). Refused where netplan configures the port.
    type: bool
    default: false
  switch_off_stp:
    description: Switch off spanning tree and the forward delay of an existing bridge, which delay guests. A bridge that
      the module creates has none.
    type: bool
    default: false
  address:
    description: Address that Ansible connects to, used to find the port of a host without a default route.
    type: str
  timeout:
    description: Seconds within which O(state=confirmed) must connect. At least 5.
    type: int
    default: 60
  filter_guests:
    description:
      - When V(true), the host's own settings decide whether its packet filter processes guests' bridged traffic
        (C(br_netfilter)).
      - When V(false), it does not, now and when that module is loaded later, for example by Docker.
    type: bool
    default: false
extends_documentation_fragment:
  - corral.virt.connection.attributes
attributes:
  diff_mode:
    description: Shows the port and the addresses of a new bridge, and the settings and files that change; not the
      network configuration files.
  platform:
    description: Linux with systemd.
requirements:
  - iproute2 5.0 or later
  - C(python3-yaml) where netplan configures the port
seealso:
  - ref: corral.virt.bridge role <ansible_collections.corral.virt.bridge_role>
    description: Installs the required packages, starts the switch, reconnects over the bridge and confirms it.
"""

EXAMPLES = r"""
- name: Start to create a bridge that takes over an interface
  corral.virt.virt_bridge:
    name: br0
    port: eno1
    timeout: 90
  register: bridge

- name: Reconnect over the bridge
  ansible.builtin.wait_for_connection:
    delay: 2
    connect_timeout: 5
    timeout: 90
  when: bridge.switches and not ansible_check_mode

- name: Confirm the bridge
  corral.virt.virt_bridge:
    name: br0
    state: confirmed
  when: bridge.switches and not ansible_check_mode
"""

RETURN = r"""
switches:
  description: Whether the network switches, or in check mode would switch, so that the bridge must be confirmed.
  returned: success
  type: bool
port:
  description: Interface that is added to a new bridge, for O(vlan) the VLAN.
    Null for an existing bridge, and with O(state=confirmed).
  returned: success
  type: str
  sample: eno1
manager:
  description: Network configuration of that interface, C(ifupdown), C(networkd), C(netplan) or C(networkmanager). Null
    in the same cases.
  returned: success
  type: str
  sample: networkd
packages:
  description: Packages that the switch requires and the host lacks. If there are any, the module fails, except in check
    mode.
  returned: success
  type: list
  elements: str
  sample: [bridge-utils]
steps:
  description: Steps that were done or started, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: ["bridge br0 takes over 192.0.2.11 from eno1 (networkd)"]
"""

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import Module, failures
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._host.run_bridge import OPTIONS, converge


def main() -> None:
    """Entry point."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    with failures(module):
        result = converge(module.params, Gate(check_mode=module.check_mode))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
