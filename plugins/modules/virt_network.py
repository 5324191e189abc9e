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
  - Configures a libvirt virtual network. Settings that the task does not mention stay unchanged.
  - The module redefines a network in place, under the same UUID. Changes of DHCP ranges and hosts, DNS records,
    portgroups and pool interfaces reach a running network at once. All other changes wait for its next start, and are
    listed in C(pending).
  - A network does not start with a subnet that the host itself has an address in, or that another route of the host
    leads into, nor with one that overlaps another active network. The module refuses this before it defines the
    network, also in check mode. A broader route of the host may stay, and a note names it.
  - If a network does not start, the module restores what was there before. It removes a new network again.
  - If stopping or restarting a network would disconnect running guests, the module refuses unless O(force) is set.
options:
  name:
    description: Name of the network.
    type: str
    required: true
  uuid:
    description: UUID of a new network. An existing network with the same name and another UUID is refused.
    type: str
  state:
    description:
      - V(active) - defined and running.
      - V(present) - defined; a running network keeps running, a new network is off.
      - V(inactive) - defined, not running.
      - V(absent) - unknown to libvirt.
    type: str
    choices: [active, present, inactive, absent]
    default: active
  autostart:
    description:
      - Start the network when the host starts.
      - For a new network, the default is V(true) with O(state=active). An existing network keeps its setting by
        default.
    type: bool
  mode:
    description:
      - How guests reach other networks.
      - V(nat) - through the host, with its address. V(route) - through the host, with their own addresses. V(open) -
        like V(route), without libvirt's firewall rules. V(isolated) - not at all.
      - V(bridge) - on a bridge of the host (O(bridge)) or its devices (O(interfaces)). V(private), V(vepa) and
        V(passthrough) - on network devices of the host.
      - V(hostdev) - through a virtual function of a network card that is assigned to the guest.
      - The default for a new network is V(nat).
    type: str
    choices: [nat, route, open, isolated, bridge, private, vepa, passthrough, hostdev]
  device:
    description: The only host device through which a network of mode V(nat) or V(route) sends.
    type: str
  interfaces:
    description: Pool of host devices that guests share, for the modes that connect guests to devices.
    type: list
    elements: dict
    suboptions:
      device:
        description: Name of the device.
        type: str
        required: true
      state:
        description: V(absent) removes the device from the pool.
        type: str
        choices: [present, absent]
        default: present
  pf:
    description: Network card whose virtual functions are assigned to guests, instead of O(interfaces).
    type: str
  managed:
    description: With mode V(hostdev), let libvirt detach the virtual function from the host and return it.
    type: bool
  nat:
    description: Network address translation.
    type: dict
    suboptions:
      address_start:
        description: First source address for guests' traffic; requires O(nat.address_end).
        type: str
      address_end:
        description: Last source address.
        type: str
      port_start:
        description: First source port; requires O(nat.port_end).
        type: int
      port_end:
        description: Last source port.
        type: int
      ipv6:
        description: Also translate IPv6. Requires libvirt 6.5 or later.
        type: bool
  bridge:
    description:
      - Name of the bridge.
      - With mode V(bridge), a host bridge, which must exist. With the modes for which libvirt creates a bridge, the
        name of that bridge; defaults to the next free C(virbrN).
    type: str
  stp:
    description: Spanning tree protocol on libvirt's bridge. libvirt's default is V(true).
    type: bool
  delay_s:
    description: Forward delay of libvirt's bridge, in seconds.
    type: int
  zone:
    description: firewalld zone of libvirt's bridge.
    type: str
  mac_table_manager:
    description: Component that maintains the bridge's table of MAC addresses and ports.
    type: str
    choices: [kernel, libvirt]
  mac:
    description: MAC address of libvirt's bridge.
    type: str
  mtu:
    description: MTU in bytes, for the modes for which libvirt creates a bridge.
    type: int
  domain:
    description: DNS domain of the guests.
    type: dict
    suboptions:
      name:
        description: Name of the domain.
        type: str
      local_only:
        description: Never forward queries for names in this domain to other servers.
        type: bool
  dns:
    description: libvirt's DNS server for the network.
    type: dict
    suboptions:
      enabled:
        description: Whether the DNS server runs. libvirt's default is V(true).
        type: bool
      forward_plain_names:
        description: Forward queries for names without a domain. libvirt's default is V(true).
        type: bool
      forwarders:
        description: DNS servers to forward queries to, instead of the host's.
        type: list
        elements: dict
        suboptions:
          address:
            description: Address of the server; identifies the entry.
            type: str
            required: true
          state:
            description: V(absent) removes the entry.
            type: str
            choices: [present, absent]
            default: present
          domain:
            description: Forward only queries for names in this domain.
            type: str
      hosts:
        description: Host names, by address.
        type: list
        elements: dict
        suboptions:
          ip:
            description: Address; identifies the entry.
            type: str
            required: true
          state:
            description: V(absent) removes the entry.
            type: str
            choices: [present, absent]
            default: present
          hostnames:
            description: Host names of the address; required for a new entry.
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
            description: V(absent) removes the record.
            type: str
            choices: [present, absent]
            default: present
          value:
            description: Text of the record; required for a new record.
            type: str
      srvs:
        description: SRV records.
        type: list
        elements: dict
        suboptions:
          service:
            description: Service, without the leading underscore.
            type: str
            required: true
          protocol:
            description: Protocol, without the leading underscore.
            type: str
            required: true
          state:
            description: V(absent) removes the record.
            type: str
            choices: [present, absent]
            default: present
          domain:
            description: Domain of the record; defaults to the network's domain.
            type: str
          target:
            description: Host that provides the service.
            type: str
          port:
            description: Port of the service; requires C(target).
            type: int
          priority:
            description: Priority; clients contact the lowest first. Requires C(target).
            type: int
          weight:
            description: Relative weight among targets of the same priority; requires C(target).
            type: int
  ips:
    description:
      - Addresses of the host on the network, with their subnets.
      - Required with the modes V(nat), V(route) and V(open).
    type: list
    elements: dict
    suboptions:
      address:
        description:
          - Address of the host in the network; identifies the entry.
          - The network's own address and its broadcast address are refused.
        type: str
        required: true
      state:
        description: V(absent) removes the entry.
        type: str
        choices: [present, absent]
        default: present
      prefix:
        description: Prefix length of the subnet; required for a new entry.
        type: int
      local_ptr:
        description: Never forward reverse lookups for the subnet to other servers.
        type: bool
      tftp_root:
        description: Directory that the TFTP server serves.
        type: path
      dhcp:
        description: libvirt's DHCP server for the subnet. At most one IPv4 and one IPv6 address of a network can have
          this.
        type: dict
        suboptions:
          ranges:
            description: Address ranges for leases.
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
                description: V(absent) removes the range.
                type: str
                choices: [present, absent]
                default: present
              lease:
                description: Lease time.
                type: dict
                suboptions:
                  expiry:
                    description: Number of C(unit); 0 never expires. Requires libvirt 6.3 or later.
                    type: int
                  unit:
                    description: Unit of the lease time. libvirt's default is V(minutes).
                    type: str
                    choices: [seconds, minutes, hours]
          hosts:
            description: Address reservations, each for one client; one of C(mac), C(id) and C(name) is required.
            type: list
            elements: dict
            suboptions:
              ip:
                description: Address; identifies the entry.
                type: str
                required: true
              state:
                description: V(absent) removes the reservation.
                type: str
                choices: [present, absent]
                default: present
              mac:
                description: MAC address of the client (IPv4).
                type: str
              id:
                description: DHCP unique identifier (DUID) of the client (IPv6).
                type: str
              name:
                description: Host name that the client gets.
                type: str
              lease:
                description: Lease time.
                type: dict
                suboptions:
                  expiry:
                    description: Number of C(unit); 0 never expires. Requires libvirt 6.3 or later.
                    type: int
                  unit:
                    description: Unit of the lease time. libvirt's default is V(minutes).
                    type: str
                    choices: [seconds, minutes, hours]
          boot_file:
            description: File from which clients boot.
            type: str
          boot_server:
            description: Server of that file; defaults to libvirt's own.
            type: str
  routes:
    description: Routes of the host to networks behind guests.
    type: list
    elements: dict
    suboptions:
      address:
        description: Address of the network.
        type: str
        required: true
      prefix:
        description: Prefix length of the network.
        type: int
        required: true
      state:
        description: V(absent) removes the route.
        type: str
        choices: [present, absent]
        default: present
      gateway:
        description: Address of the guest that routes to the network; required for a new route.
        type: str
      metric:
        description: Metric of the route; the lowest is preferred.
        type: int
  portgroups:
    description: Settings that guest interfaces select by name
      (O(corral.virt.virt_domain#module:interfaces[].portgroup)).
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the portgroup.
        type: str
        required: true
      state:
        description: V(absent) removes the portgroup.
        type: str
        choices: [present, absent]
        default: present
      default:
        description: Use this portgroup for interfaces that name none.
        type: bool
      trust_guest_rx_filters:
        description: Apply the changes that guests make to their MAC address and receive filters.
        type: bool
      vlan:
        description: VLAN tags; see O(vlan).
        type: list
        elements: int
      virtualport:
        description: Type of virtual switch.
        type: str
        choices: [openvswitch]
      bandwidth:
        description: Limits per interface, on bridges only.
        type: dict
        suboptions:
          inbound:
            description: Traffic to the guests.
            type: dict
            suboptions:
              average:
                description: Average receive rate of an interface, in KiB per second.
                type: int
              peak:
                description: Maximum rate in KiB per second; requires C(average).
                type: int
              burst:
                description: Amount in KiB that can be transferred at the C(peak) rate; requires C(average).
                type: int
          outbound:
            description: Traffic from the guests.
            type: dict
            suboptions:
              average:
                description: Average send rate of an interface, in KiB per second.
                type: int
              peak:
                description: Maximum rate in KiB per second; requires C(average).
                type: int
              burst:
                description: Amount in KiB that can be transferred at the C(peak) rate; requires C(average).
                type: int
  vlan:
    description:
      - VLAN tags for all guests; several tags make a trunk.
      - Supported with mode V(bridge) and O(virtualport=openvswitch), with V(passthrough) and V(hostdev), and since
        libvirt 11.0 with Linux bridges. Refused in other cases.
    type: list
    elements: int
  virtualport:
    description: Type of virtual switch of O(bridge).
    type: str
    choices: [openvswitch]
  isolate_ports:
    description: Prevent guests from reaching each other; they still reach the host and other networks. Requires
      libvirt 6.1 or later.
    type: bool
  guest_ipv6:
    description: Allow IPv6 between guests if the network has no IPv6 address.
    type: bool
  trust_guest_rx_filters:
    description: Apply the changes that guests make to their MAC address and receive filters.
    type: bool
  bandwidth:
    description: Limits of the network, on bridges only.
    type: dict
    suboptions:
      inbound:
        description: Traffic to the guests.
        type: dict
        suboptions:
          average:
            description: Average receive rate of the network, in KiB per second.
            type: int
          peak:
            description: Maximum rate in KiB per second; requires C(average).
            type: int
          burst:
            description: Amount in KiB that can be transferred at the C(peak) rate; requires C(average).
            type: int
      outbound:
        description: Traffic from the guests.
        type: dict
        suboptions:
          average:
            description: Average send rate of the network, in KiB per second.
            type: int
          peak:
            description: Maximum rate in KiB per second; requires C(average).
            type: int
          burst:
            description: Amount in KiB that can be transferred at the C(peak) rate; requires C(average).
            type: int
  xml:
    description:
      - A fragment of libvirt's C(<network>) XML to merge into the definition.
      - Existing elements are changed; nothing is removed.
    type: str
  allow_restart:
    description: Restart a running network for changes that cannot be applied while it runs. Otherwise such changes are
      listed in C(pending).
    type: bool
    default: false
  force:
    description:
      - Stop or restart the network even if running guests lose their connection to it. Guests whose interface names the
        bridge that libvirt creates for the network count, too.
      - They are connected again when they are next started. Without this option such a run is refused, and the error
        names the guests.
    type: bool
    default: false
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
  - corral.virt.connection.seen
seealso:
  - module: corral.virt.virt_network_info
  - module: corral.virt.virt_domain
  - ref: corral.virt.networks role <ansible_collections.corral.virt.networks_role>
    description: Creates networks from variables.
  - ref: Networks <ansible_collections.corral.virt.docsite.guide_networks>
    description: Network modes, and changes to a running network.
"""

EXAMPLES = r"""
- name: Create a NAT network
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

- name: Add DNS names of an address while guests run
  corral.virt.virt_network:
    name: lab
    dns:
      hosts:
        - ip: 192.168.150.1
          hostnames: [gateway, ntp]

- name: Create a routed network
  corral.virt.virt_network:
    name: dmz
    mode: route
    ips:
      - address: 10.20.30.1
        prefix: 24
      - address: 2001:db8:20:30::1
        prefix: 64

- name: Create a routed network without libvirt's firewall rules
  corral.virt.virt_network:
    name: own-rules
    mode: open
    ips:
      - address: 10.20.31.1
        prefix: 24

- name: Create an isolated network
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
  description: The network as it is defined, or in check mode would be, as options of this module. Null if it is absent.
  returned: success
  type: dict
  contains:
    name: {description: Name of the network., type: str, returned: always}
    mode: {description: How guests reach other networks., type: str, returned: always}
    active: {description: Whether it runs., type: bool, returned: always}
    autostart: {description: Whether it starts when the host starts., type: bool, returned: always}
steps:
  description: Steps that were done, or in check mode would be done.
  returned: success
  type: list
  elements: str
  sample: [define network lab (mode nat), set autostart of network lab on, start network lab]
pending:
  description: Changes that wait for the next start of the network.
  returned: success
  type: list
  elements: str
seen:
  description: Digest of what the steps were planned from, and of the steps; for O(seen) of a later run.
  returned: success
  type: str
notes:
  description: Additional notes, such as guests that lost the network; also shown as warnings.
  returned: success
  type: list
  elements: str
"""

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION
from ansible_collections.corral.virt.plugins.module_utils._network.plan_network import NETWORK
from ansible_collections.corral.virt.plugins.module_utils._network.run_network_verbs import API
from ansible_collections.corral.virt.plugins.module_utils._noun import run_noun_module
from ansible_collections.corral.virt.plugins.module_utils._noun.run_noun_options import argument_spec

OPTIONS = {**URI_OPTION, **argument_spec(NETWORK.schema)}


def main() -> None:
    """Entry point."""
    run_noun_module.run(NETWORK, API, OPTIONS)


if __name__ == "__main__":
    main()
