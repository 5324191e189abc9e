#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A virtual network is as described."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_network
short_description: Manage virtual networks
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Makes a virtual network of libvirt what the options say, and leaves alone what they do not mention.
  - A network is redefined in place, under the same UUID. DHCP ranges and hosts, DNS records,
    portgroups and interfaces of a pool reach a
    network that runs at once. Everything else waits for its next start, and is listed in C(pending).
  - A network that running guests would lose is neither stopped nor restarted unless O(force) is set.
options:
  name:
    description: Name of the network.
    type: str
    required: true
  uuid:
    description: UUID of a new network. A network of that name with another UUID is refused.
    type: str
  state:
    description:
      - V(active) - defined and running.
      - V(present) - defined; one that runs goes on, a new one is off.
      - V(inactive) - defined only.
      - V(absent) - not known to libvirt.
    type: str
    choices: [active, present, inactive, absent]
    default: active
  autostart:
    description:
      - Start the network with the host.
      - Default for a new network is V(true) when O(state=active); of one that exists, what it is.
    type: bool
  mode:
    description:
      - How guests reach the world.
      - V(nat) - through the host, with its address. V(route) - through the host, with their
        own. V(open) - the same, without firewall rules of libvirt. V(isolated) - not at all.
      - V(bridge) - on a bridge of the host (O(bridge)) or its devices (O(interfaces)).
        V(private), V(vepa) and V(passthrough) - on devices of the host.
      - V(hostdev) - by a virtual function of a network card, given to the guest as it is.
      - Default for a new network is V(nat).
    type: str
    choices: [nat, route, open, isolated, bridge, private, vepa, passthrough, hostdev]
  device:
    description: The only device of the host that a network of mode V(nat) or V(route) sends
      through.
    type: str
  interfaces:
    description: Devices of the host that guests share out among them, for the modes that put
      guests on devices.
    type: list
    elements: dict
    suboptions:
      device:
        description: Name of the device.
        type: str
        required: true
      state:
        description: V(absent) removes it.
        type: str
        choices: [present, absent]
        default: present
  pf:
    description: A network card whose virtual functions guests get, instead of O(interfaces).
    type: str
  managed:
    description: With mode V(hostdev), let libvirt take the virtual function from the host and
      give it back.
    type: bool
  nat:
    description: Address translation.
    type: dict
    suboptions:
      address_start:
        description: First address that guests appear with; requires O(nat.address_end).
        type: str
      address_end:
        description: Last one.
        type: str
      port_start:
        description: First port; requires O(nat.port_end).
        type: int
      port_end:
        description: Last port.
        type: int
      ipv6:
        description: Translate IPv6, too.
        type: bool
  bridge:
    description:
      - Name of the bridge.
      - With mode V(bridge) a bridge of the host, which must exist. With the modes that
        libvirt makes a bridge for, its name; without it libvirt takes the next C(virbrN).
    type: str
  stp:
    description: Spanning tree protocol on libvirt's bridge. Default of libvirt is V(true).
    type: bool
  delay_s:
    description: Seconds before libvirt's bridge forwards.
    type: int
  zone:
    description: Zone of firewalld for libvirt's bridge.
    type: str
  mac_table_manager:
    description: Who knows which MAC address is behind which port.
    type: str
    choices: [kernel, libvirt]
  mac:
    description: MAC address of libvirt's bridge.
    type: str
  mtu:
    description: Bytes of the largest packet, for the modes that libvirt makes a bridge for.
    type: int
  domain:
    description: DNS domain of the guests.
    type: dict
    suboptions:
      name:
        description: Name.
        type: str
      local_only:
        description: Never ask other servers for names of it.
        type: bool
  dns:
    description: libvirt's name server for the network.
    type: dict
    suboptions:
      enabled:
        description: Whether it runs. Default of libvirt is V(true).
        type: bool
      forward_plain_names:
        description: Ask other servers for names without a domain. Default of libvirt is V(true).
        type: bool
      forwarders:
        description: Servers to ask instead of those of the host.
        type: list
        elements: dict
        suboptions:
          address:
            description: Address of the server, which is the identity of the entry.
            type: str
            required: true
          state:
            description: V(absent) removes it.
            type: str
            choices: [present, absent]
            default: present
          domain:
            description: Ask it for names of this domain only.
            type: str
      hosts:
        description: Names of addresses.
        type: list
        elements: dict
        suboptions:
          ip:
            description: The address, which is the identity of the entry.
            type: str
            required: true
          state:
            description: V(absent) removes it.
            type: str
            choices: [present, absent]
            default: present
          hostnames:
            description: Its names; required for a new entry.
            type: list
            elements: str
      txts:
        description: TXT records.
        type: list
        elements: dict
        suboptions:
          name:
            description: Name of the record.
            type: str
            required: true
          state:
            description: V(absent) removes it.
            type: str
            choices: [present, absent]
            default: present
          value:
            description: Its text; required for a new record.
            type: str
      srvs:
        description: SRV records.
        type: list
        elements: dict
        suboptions:
          service:
            description: Service, without its underscore.
            type: str
            required: true
          protocol:
            description: Protocol, without its underscore.
            type: str
            required: true
          state:
            description: V(absent) removes it.
            type: str
            choices: [present, absent]
            default: present
          domain:
            description: Domain of the record; without it that of the network.
            type: str
          target:
            description: Host that has the service.
            type: str
          port:
            description: Its port; requires C(target).
            type: int
          priority:
            description: Lower is asked first; requires C(target).
            type: int
          weight:
            description: Share among targets of one priority; requires C(target).
            type: int
  ips:
    description:
      - Addresses of the host on the network, with their subnets.
      - Required for the modes V(nat), V(route) and V(open).
    type: list
    elements: dict
    suboptions:
      address:
        description: The address, which is the identity of the entry.
        type: str
        required: true
      state:
        description: V(absent) removes it.
        type: str
        choices: [present, absent]
        default: present
      prefix:
        description: Length of the subnet's prefix; required for a new one.
        type: int
      local_ptr:
        description: Answer reverse look-ups of the subnet here, never elsewhere.
        type: bool
      tftp_root:
        description: Directory that is served by TFTP.
        type: path
      dhcp:
        description: Addresses given away by libvirt's DHCP server; at most one IPv4 and one
          IPv6 address of a network has this.
        type: dict
        suboptions:
          ranges:
            description: Ranges that addresses are taken from.
            type: list
            elements: dict
            suboptions:
              start:
                description: First address.
                type: str
                required: true
              end:
                description: Last address.
                type: str
                required: true
              state:
                description: V(absent) removes it.
                type: str
                choices: [present, absent]
                default: present
              lease:
                description: How long an address is given away.
                type: dict
                suboptions:
                  expiry:
                    description: A number of C(unit); 0 is for ever.
                    type: int
                  unit:
                    description: Default of libvirt is V(minutes).
                    type: str
                    choices: [seconds, minutes, hours]
          hosts:
            description: Addresses kept for one client each; one of C(mac), C(id) and
              C(name) is required.
            type: list
            elements: dict
            suboptions:
              ip:
                description: The address, which is the identity of the entry.
                type: str
                required: true
              state:
                description: V(absent) removes it.
                type: str
                choices: [present, absent]
                default: present
              mac:
                description: MAC address of the client (IPv4).
                type: str
              id:
                description: DHCP unique identifier of the client (IPv6).
                type: str
              name:
                description: Host name that it is given.
                type: str
              lease:
                description: How long an address is given away.
                type: dict
                suboptions:
                  expiry:
                    description: A number of C(unit); 0 is for ever.
                    type: int
                  unit:
                    description: Default of libvirt is V(minutes).
                    type: str
                    choices: [seconds, minutes, hours]
          boot_file:
            description: File that clients boot from.
            type: str
          boot_server:
            description: Server of that file; without it libvirt's own.
            type: str
  routes:
    description: Routes of the host into networks behind guests.
    type: list
    elements: dict
    suboptions:
      address:
        description: Address of that network.
        type: str
        required: true
      prefix:
        description: Length of its prefix.
        type: int
        required: true
      state:
        description: V(absent) removes it.
        type: str
        choices: [present, absent]
        default: present
      gateway:
        description: The guest that leads there; required for a new route.
        type: str
      metric:
        description: Lower is taken first.
        type: int
  portgroups:
    description: Settings that interfaces of guests take by name
      (O(corral.virt.virt_domain#module:interfaces[].portgroup)).
    type: list
    elements: dict
    suboptions:
      name:
        description: Name.
        type: str
        required: true
      state:
        description: V(absent) removes it.
        type: str
        choices: [present, absent]
        default: present
      default:
        description: Interfaces that name no portgroup take this one.
        type: bool
      trust_guest_rx_filters:
        description: Follow changes that guests make to their MAC address and filters.
        type: bool
      vlan:
        description: VLAN tags; see O(vlan).
        type: list
        elements: int
      virtualport:
        description: Kind of switch.
        type: str
        choices: [openvswitch]
      bandwidth:
        description: Limits of an interface, on bridges only.
        type: dict
        suboptions:
          inbound:
            description: To the guests.
            type: dict
            suboptions:
              average:
                description: KiB per second that an interface may receive on average.
                type: int
              peak:
                description: KiB per second at most; requires C(average).
                type: int
              burst:
                description: KiB at the speed of C(peak); requires C(average).
                type: int
          outbound:
            description: From the guests.
            type: dict
            suboptions:
              average:
                description: KiB per second that an interface may send on average.
                type: int
              peak:
                description: KiB per second at most; requires C(average).
                type: int
              burst:
                description: KiB at the speed of C(peak); requires C(average).
                type: int
  vlan:
    description:
      - VLAN tags of all guests; several make a trunk.
      - Taken with mode V(bridge) and O(virtualport=openvswitch), with V(passthrough) and
        V(hostdev), and from libvirt 11.0 on with Linux bridges. Refused elsewhere.
    type: list
    elements: int
  virtualport:
    description: Kind of switch that O(bridge) is.
    type: str
    choices: [openvswitch]
  isolate_ports:
    description: Guests reach the host and the world, and not each other.
    type: bool
  guest_ipv6:
    description: Let guests speak IPv6 with each other where the network has no IPv6 address.
    type: bool
  trust_guest_rx_filters:
    description: Follow changes that guests make to their MAC address and filters.
    type: bool
  bandwidth:
    description: Limits of the network, on bridges only.
    type: dict
    suboptions:
      inbound:
        description: To the guests.
        type: dict
        suboptions:
          average:
            description: KiB per second that the network may receive on average.
            type: int
          peak:
            description: KiB per second at most; requires C(average).
            type: int
          burst:
            description: KiB at the speed of C(peak); requires C(average).
            type: int
      outbound:
        description: From the guests.
        type: dict
        suboptions:
          average:
            description: KiB per second that the network may send on average.
            type: int
          peak:
            description: KiB per second at most; requires C(average).
            type: int
          burst:
            description: KiB at the speed of C(peak); requires C(average).
            type: int
  xml:
    description:
      - A piece of C(<network>) in libvirt's own words, made part of the definition.
      - Elements that are there are changed; nothing is removed.
    type: str
  allow_restart:
    description: Restart a running network for changes that reach it in no other way. Without it
      they are C(pending).
    type: bool
    default: false
  force:
    description:
      - Stop or restart the network although running guests lose it.
      - They are on it again when they are started anew. Without it such a run is refused, and
        the guests are named.
    type: bool
    default: false
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
seealso:
  - module: corral.virt.virt_network_info
  - module: corral.virt.virt_domain
  - ref: Networks <ansible_collections.corral.virt.docsite.guide_networks>
    description: Kinds of networks, and what reaches one that runs.
"""

EXAMPLES = r"""
- name: Have a network behind the host's address
  corral.virt.virt_network:
    name: lab
    domain:
      name: lab.example.com
    ips:
      - address: 192.168.150.1
        prefix: 24
        dhcp:
          ranges:
            - start: 192.168.150.100
              end: 192.168.150.199
          hosts:
            - ip: 192.168.150.10
              mac: "52:54:00:00:00:10"
              name: db1

- name: Give a name to an address, while guests run
  corral.virt.virt_network:
    name: lab
    dns:
      hosts:
        - ip: 192.168.150.1
          hostnames: [gateway, ntp]

- name: Have a network with addresses that the site's router knows
  corral.virt.virt_network:
    name: dmz
    mode: route
    ips:
      - address: 10.20.30.1
        prefix: 24
      - address: 2001:db8:20:30::1
        prefix: 64

- name: Have a network whose firewall rules are the host's own
  corral.virt.virt_network:
    name: own-rules
    mode: open
    ips:
      - address: 10.20.31.1
        prefix: 24

- name: Have a network that leads nowhere
  corral.virt.virt_network:
    name: backend
    mode: isolated

- name: Offer the host's bridge under a name that is the same on all hosts
  corral.virt.virt_network:
    name: lan
    mode: bridge
    bridge: br0

- name: Offer VLANs of an Open vSwitch bridge
  corral.virt.virt_network:
    name: ovs
    mode: bridge
    bridge: ovsbr0
    virtualport: openvswitch
    portgroups:
      - name: office
        default: true
        vlan: [10]
      - name: voice
        vlan: [20]

- name: Give each guest a device of its own
  corral.virt.virt_network:
    name: fast
    mode: passthrough
    interfaces:
      - device: eth2
      - device: eth3
"""

RETURN = r"""
network:
  description: The network as it is defined, or in check mode would be, in the words of the
    options. Null when it is absent.
  returned: success
  type: dict
  contains:
    name: {description: Its name., type: str, returned: always}
    mode: {description: How guests reach the world., type: str, returned: always}
    active: {description: Whether it runs., type: bool, returned: always}
    autostart: {description: Whether it starts with the host., type: bool, returned: always}
steps:
  description: What was done, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [define network lab (mode nat), set autostart of network lab on, start network lab]
pending: {description: What waits for the next start of the network., returned: success, type: list, elements: str}
notes:
  description: What to know beside the steps, such as guests that lost the network.
  returned: success
  type: list
  elements: str
"""

from ansible_collections.corral.virt.plugins.module_utils._front import noun
from ansible_collections.corral.virt.plugins.module_utils._front.module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._libvirt.network import LIBRARY
from ansible_collections.corral.virt.plugins.module_utils._noun.network import NETWORK
from ansible_collections.corral.virt.plugins.module_utils._run import Gate

OPTIONS = {**URI_OPTION, **noun.argument_spec(NETWORK)}


def main() -> None:
    """Entry point."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    with failures(module):
        with opened(module.params["uri"]) as connection:
            gate = Gate(check_mode=module.check_mode)
            result = noun.converge(connection, NETWORK, LIBRARY, module.params, gate)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
