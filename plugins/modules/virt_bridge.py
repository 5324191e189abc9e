#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bridge that takes over a network interface of a hypervisor."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_bridge
short_description: Put a network interface of a hypervisor into a bridge
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Creates a bridge that takes over the addresses, routes and MAC address of an interface (its port), so that guests on
    the bridge are in the same network as the host. Spanning tree is off and the forward delay is 0.
  - Supports hosts on which ifupdown, systemd-networkd or netplan configures the port. Where NetworkManager does, the
    module refuses and names the command to use.
  - The connection of Ansible usually runs over the port. With O(state=present) the module therefore only begins the
    switch, in a service of its own, and returns. The new configuration is placed where a reboot forgets it. It is kept
    when a second task with O(state=confirmed) arrives over the bridge within O(timeout) seconds; else the service
    restores the previous network. C(/run/corral-bridge/result.json) on the host holds the reason until the next boot.
  - A bridge that exists is used as it is. Only its spanning tree and forward delay are changed, if they would delay
    guests.
  - Role P(corral.virt.bridge#role) runs both tasks and what is between them.
options:
  name:
    description: Name of the bridge, up to 15 letters, digits, C(.), C(_) and C(-).
    type: str
    default: br0
  state:
    description:
      - V(present) - create the bridge, or begin to, see RV(switches).
      - V(confirmed) - keep the bridge that V(present) began to create. Fails when the previous network has been
        restored meanwhile.
    type: str
    choices: [present, confirmed]
    default: present
  port:
    description:
      - The interface to put into the bridge. It must be an Ethernet interface that is neither wireless nor part of
        another bridge or bond.
      - V(auto) is the interface of the default route, or else the one that holds O(address). Of a bridge that exists
        any port will do.
    type: str
    default: auto
  address:
    description: The address by which Ansible reaches the host, used to find the port of a host without default route.
    type: str
  timeout:
    description: Seconds within which O(state=confirmed) must arrive. At least 5.
    type: int
    default: 60
  filter_guests:
    description:
      - Leave it to the host whether its packet filter sees what guests send over bridges (C(br_netfilter)).
      - With V(false) it does not, now and when that module is loaded later, as by Docker.
    type: bool
    default: false
extends_documentation_fragment:
  - corral.virt.connection.attributes
attributes:
  diff_mode:
    description: Shows the port and the addresses of a new bridge, and the settings and files that change; not the files
      of the network.
  platform:
    description: Linux with systemd.
requirements:
  - iproute2 5.0 or later
  - C(python3-yaml) where netplan configures the port
seealso:
  - ref: corral.virt.bridge role <ansible_collections.corral.virt.bridge_role>
    description: Installs what the switch needs, begins it, comes back over the bridge and confirms.
"""

EXAMPLES = r"""
- name: Begin to put an interface into a bridge
  corral.virt.virt_bridge:
    name: br0
    port: eno1
    timeout: 90
  register: bridge

- name: Come back over the bridge
  ansible.builtin.wait_for_connection:
    delay: 2
    connect_timeout: 5
    timeout: 90
  when: bridge.switches and not ansible_check_mode

- name: Keep it
  corral.virt.virt_bridge:
    name: br0
    state: confirmed
  when: bridge.switches and not ansible_check_mode
"""

RETURN = r"""
switches:
  description: Whether the network switches, or in check mode would, so that the bridge must be confirmed.
  returned: success
  type: bool
port:
  description: The interface that is put into a new bridge. Null for a bridge that exists, and with O(state=confirmed).
  returned: success
  type: str
  sample: eno1
manager:
  description: What configures that interface, C(ifupdown), C(networkd) or C(netplan). Null likewise.
  returned: success
  type: str
  sample: networkd
packages:
  description: Packages that the switch needs and the host lacks. Outside check mode the module fails while there are
    any.
  returned: success
  type: list
  elements: str
  sample: [bridge-utils]
steps:
  description: What was done or begun, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: ["bridge br0 takes over 192.0.2.11 from eno1 (networkd)"]
"""

from ansible_collections.corral.virt.plugins.module_utils._front.bridge import OPTIONS, converge
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
